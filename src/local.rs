//! The local tier: entries, the variants of a resource, and the memos beside them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use foldhash::fast::RandomState;
use moka::{Expiry, ops::compute::Op, sync::Cache};
use tokio::time::Instant;

pub(crate) use crate::memos::{Memo, Note};
use crate::{
    entry::{self, Entry, Fields, Worth},
    key::{self, Digest, Key},
    memos::Memos,
    purges::Purges,
};

/// The entries of this process. Reading is synchronous and takes no lock of ours.
#[derive(Debug)]
pub(crate) struct Local {
    slots: Cache<Key, Slot, RandomState>,
    memos: Memos,
}

#[derive(Clone, Debug)]
enum Slot {
    Entry(Arc<Entry>),
    Variants(Arc<Variants>),
}

/// What a resource varies by, and the variants of it that are known here.
#[derive(Debug)]
pub(crate) struct Variants {
    pub(crate) fields: Fields,
    known: Mutex<Vec<(Digest, Instant)>>,
}

/// What the local tier has for a request.
#[derive(Debug)]
pub(crate) enum Found {
    Entry(Arc<Entry>, Worth),
    Nothing,
}

#[expect(clippy::disallowed_types, reason = "moka's trait has it")]
type RealInstant = std::time::Instant;

/// moka's own expiry only gives memory back; whether an entry is fresh is decided on the entry.
struct Backstop;

impl Expiry<Key, Slot> for Backstop {
    fn expire_after_create(&self, _: &Key, slot: &Slot, _: RealInstant) -> Option<Duration> {
        match slot {
            Slot::Entry(entry) => Some(entry.lifetime.end() - entry.lifetime.received),
            Slot::Variants(_) => None,
        }
    }

    fn expire_after_update(
        &self,
        key: &Key,
        slot: &Slot,
        now: RealInstant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_create(key, slot, now)
    }
}

impl Local {
    /// A tier of at most `capacity` bytes, keys and fields counted, with at most `memos` memos.
    pub(crate) fn new(capacity: u64, memos: usize) -> Self {
        let slots = Cache::builder()
            .max_capacity(capacity)
            .weigher(|key: &Key, slot: &Slot| {
                let weight = match slot {
                    Slot::Entry(entry) => entry.weight(),
                    Slot::Variants(_) => 1024,
                };
                u32::try_from(key.as_bytes().len() + weight).unwrap_or(u32::MAX)
            })
            .expire_after(Backstop)
            .build_with_hasher(RandomState::default());
        let memos = Memos::new(memos);
        Self { slots, memos }
    }

    /// Looks up `key` for a request with these fields.
    ///
    /// Where the resource has variants, `key` becomes the key of the variant asked for.
    pub(crate) fn find(
        &self,
        key: &mut Vec<u8>,
        request: &http::HeaderMap,
        purges: &Purges,
        now: Instant,
    ) -> Found {
        let slot = match self.slots.get(key.as_slice()) {
            Some(Slot::Variants(variants)) => {
                append_variant(key, &variants.fields, request);
                self.slots.get(key.as_slice())
            }
            slot => slot,
        };
        match slot {
            Some(Slot::Entry(entry)) if entry.is_valid(purges) && entry.head.fits(request) => {
                let worth = entry.worth(now);
                Found::Entry(entry, worth)
            }
            _ => Found::Nothing,
        }
    }

    /// The entry under exactly this key.
    pub(crate) fn entry(&self, key: &Key, purges: &Purges) -> Option<Arc<Entry>> {
        match self.slots.get(key) {
            Some(Slot::Entry(entry)) if entry.is_valid(purges) => Some(entry),
            _ => None,
        }
    }

    /// The fields that the resource under `key` varies by.
    pub(crate) fn fields(&self, key: &Key) -> Option<Fields> {
        match self.slots.get(key) {
            Some(Slot::Variants(variants)) => Some(Arc::clone(&variants.fields)),
            _ => None,
        }
    }

    /// Notes that the resource under `primary` varies by `fields`.
    pub(crate) fn varies(&self, primary: &Key, fields: Fields) -> Arc<Variants> {
        match self.slots.get(primary) {
            Some(Slot::Variants(known)) if known.fields == fields => known,
            _ => {
                let known = Mutex::default();
                let variants = Arc::new(Variants { fields, known });
                self.slots
                    .insert(primary.clone(), Slot::Variants(Arc::clone(&variants)));
                variants
            }
        }
    }

    /// Puts an entry in, unless there is one of a later build; a purge that came since its build
    /// began keeps it from being served.
    pub(crate) fn insert(&self, key: Key, entry: Arc<Entry>, purges: &Purges) {
        self.slots
            .entry(key)
            .and_compute_with(|known| match known.map(moka::Entry::into_value) {
                Some(Slot::Entry(known))
                    if known.built.is_after(&entry.built) && known.is_valid(purges) =>
                {
                    Op::Nop
                }
                _ => Op::Put(Slot::Entry(entry)),
            });
    }

    /// The note beside `key`, if no purge of `tag` has overtaken it.
    pub(crate) fn note(&self, key: &Key, tag: Digest, purges: &Purges) -> Option<Note> {
        self.memos.note(key, tag, purges)
    }

    pub(crate) fn set_memo(&self, key: Key, memo: Memo) {
        self.memos.set(key, memo);
    }

    pub(crate) fn clear_memo(&self, key: &Key) {
        self.memos.clear(key);
    }

    /// Entries, and the bytes they take, as last counted.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.slots.entry_count(), self.slots.weighted_size())
    }
}

impl Variants {
    /// Makes room for one more variant, if there are fewer than `limit` live ones.
    pub(crate) fn admit(&self, key: &Key, until: Instant, limit: usize) -> bool {
        let (now, digest) = (Instant::now(), key.digest());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(other, until)| *other != digest && now < *until);
        let free = known.len() < limit;
        if free {
            known.push((digest, until));
        }
        free
    }
}

/// Turns the key of a resource into the key of the variant that a request asks for.
pub(crate) fn append_variant(key: &mut Vec<u8>, fields: &Fields, request: &http::HeaderMap) {
    key::push_variant(key, &entry::values(fields, request));
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::{
        entry::{Built, Head, Lifetime, Origin},
        purges::Moment,
    };

    const MINUTE: Duration = Duration::from_secs(60);

    fn built(at: Instant, began: Moment, body: &'static str) -> Arc<Entry> {
        let head = Head {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            variant: None,
            age: 0,
        };
        let origin = Origin {
            lifetime: Lifetime::starting(Instant::now(), MINUTE, MINUTE, MINUTE),
            tags: Box::default(),
            began,
            built: Built::here(at),
        };
        Arc::new(Entry::new(head, Bytes::from(body), None, origin))
    }

    fn body(local: &Local, purges: &Purges) -> Option<Bytes> {
        let entry = local.entry(&Key::new(b"key"), purges)?;
        Some(entry.body.clone())
    }

    #[tokio::test]
    async fn an_older_build_that_ends_later_does_not_replace_a_younger_one() {
        let (local, purges) = (Local::new(100_000, 10), Purges::new(10));
        let (now, key) = (Instant::now(), Key::new(b"key"));
        let insert = |at, body| local.insert(key.clone(), built(at, purges.now(), body), &purges);

        insert(now + MINUTE, "younger");
        insert(now, "older");
        assert_eq!(body(&local, &purges).unwrap(), "younger");

        insert(now + MINUTE, "as young");
        assert_eq!(body(&local, &purges).unwrap(), "as young");
    }

    #[tokio::test]
    async fn what_has_been_purged_gives_way_to_any_build() {
        let (local, purges) = (Local::new(100_000, 10), Purges::new(10));
        let (now, key) = (Instant::now(), Key::new(b"key"));
        local.insert(
            key.clone(),
            built(now + MINUTE, purges.now(), "younger"),
            &purges,
        );

        purges.purge_all();
        local.insert(key, built(now, purges.now(), "older"), &purges);

        assert_eq!(body(&local, &purges).unwrap(), "older");
    }
}
