//! The local tier: entries, and the variants of a resource.
//!
//! What it holds is bounded by its bytes alone. Whether an entry may be used is decided on the entry,
//! and one that is of no use any more is removed by whoever comes across it.

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU32, Ordering},
    },
};

use foldhash::fast::RandomState;
use quick_cache::{
    OptionsBuilder, UnitWeighter, Weighter,
    sync::{Cache, DefaultLifecycle},
};
use tokio::time::Instant;

use crate::{
    entry::{self, Entry, Fields, Present, Variant},
    key::{self, Digest, Key},
    purges::Purges,
};

/// The entries of this process. Reading is synchronous, and waits at most for a write to one of the
/// map's shards.
pub(crate) struct Local {
    slots: Cache<Key, Slot, Bytes, RandomState>,
    /// Held by whoever looks at a slot and then fills it.
    filling: Mutex<()>,
    uses: Cache<Key, Arc<AtomicU32>, UnitWeighter, RandomState>,
}

#[derive(Clone, Debug)]
enum Slot {
    Entry(Arc<Present>),
    Variants(Arc<Variants>),
}

/// What a resource varies by, and the variants of it that are known here.
#[derive(Debug)]
pub(crate) struct Variants {
    pub(crate) fields: Fields,
    known: Mutex<Vec<(Digest, Instant)>>,
}

/// What a slot takes, its key included.
#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Slot> for Bytes {
    fn weight(&self, key: &Key, slot: &Slot) -> u64 {
        let weight = match slot {
            Slot::Entry(present) => present.entry.weight(),
            Slot::Variants(_) => 1024,
        };
        (key.as_bytes().len() + weight) as u64
    }
}

/// What a shard holds at least, where there is more than one: an entry has to fit into one.
const SHARD: u64 = 32 * 1024 * 1024;

const MOST_SHARDS: u64 = 8;

/// What entries take on an average, more or less: it sizes what is remembered of evicted ones.
const USUAL_ENTRY: u64 = 8 * 1024;

fn slots(capacity: u64) -> Cache<Key, Slot, Bytes, RandomState> {
    let shards = (capacity / SHARD).clamp(1, MOST_SHARDS);
    let entries = (capacity / USUAL_ENTRY).max(32 * shards);
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let options = OptionsBuilder::new()
        .weight_capacity(capacity)
        .estimated_items_capacity(count(entries))
        .shards(1 << shards.ilog2())
        .build()
        .expect("both capacities are given");
    let hasher = RandomState::default();
    Cache::with_options(options, Bytes, hasher, DefaultLifecycle::default())
}

impl Local {
    /// A tier of at most `capacity` bytes, keys and fields counted, which counts the uses of at most
    /// `counted` resources.
    pub(crate) fn new(capacity: u64, counted: usize) -> Self {
        let hasher = RandomState::default();
        let lifecycle = DefaultLifecycle::default();
        Self {
            slots: slots(capacity),
            filling: Mutex::default(),
            uses: Cache::with(counted, counted as u64, UnitWeighter, hasher, lifecycle),
        }
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
    ) -> Option<Arc<Present>> {
        let slot = match self.slots.get(key.as_slice()) {
            Some(Slot::Variants(variants)) => {
                append_variant(key, &variants.fields, request);
                self.slots.get(key.as_slice())
            }
            slot => slot,
        };
        match slot {
            Some(Slot::Entry(present)) if present.entry.is_valid(purges) => {
                let present = if present.holds(now) {
                    present
                } else {
                    self.renew(key, &present, now)
                };
                present.entry.head.fits(request).then_some(present)
            }
            Some(Slot::Entry(present)) => {
                self.remove(key, &present.entry);
                None
            }
            _ => None,
        }
    }

    /// Puts an entry as it is at `now` in the place of what it was before.
    ///
    /// Nobody waits for others who do so, and an entry that has gone meanwhile does not come back.
    #[cold]
    fn renew(&self, key: &[u8], past: &Arc<Present>, now: Instant) -> Arc<Present> {
        let present = Present::of(Arc::clone(&past.entry), now);
        if present.entry.is_over(now) {
            self.remove(key, &present.entry);
            return present;
        }
        let turn = self.filling.try_lock();
        if !matches!(turn, Err(TryLockError::WouldBlock))
            && let Some(Slot::Entry(known)) = self.slots.peek(key)
            && Arc::ptr_eq(&known, past)
        {
            let slot = Slot::Entry(Arc::clone(&present));
            drop(self.slots.replace(Key::new(key), slot, true));
        }
        present
    }

    /// Nobody else fills a slot until the guard is dropped.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what an entry takes that is of no use any more, unless another has its place.
    #[cold]
    fn remove(&self, key: &[u8], dead: &Arc<Entry>) {
        let is_dead =
            |slot: &Slot| matches!(slot, Slot::Entry(known) if Arc::ptr_eq(&known.entry, dead));
        drop(self.slots.remove_if(key, is_dead));
    }

    /// The entry under exactly this key.
    pub(crate) fn entry(&self, key: &Key, purges: &Purges) -> Option<Arc<Entry>> {
        match self.slots.get(key) {
            Some(Slot::Entry(present)) if present.entry.is_valid(purges) => {
                Some(Arc::clone(&present.entry))
            }
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
        let _turn = self.turn();
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

    /// Whether there is a place for one more variant, of which there may be `limit`.
    pub(crate) fn has_room(
        &self,
        primary: &Key,
        (variant, key): (&Variant, &Key),
        limit: usize,
    ) -> bool {
        match self.slots.peek(primary) {
            Some(Slot::Variants(known)) if known.fields == variant.fields => {
                known.has_room(key, limit)
            }
            _ => limit > 0,
        }
    }

    /// Puts an entry in, unless there is one of a later build; a purge that came since its build
    /// began keeps it from being served.
    pub(crate) fn insert(&self, key: &Key, entry: Arc<Entry>, purges: &Purges) {
        let present = Present::of(entry, Instant::now());
        let entry = &present.entry;
        let is_better = |slot: &Slot| {
            matches!(slot, Slot::Entry(known)
            if known.entry.built.is_after(&entry.built) && known.entry.is_valid(purges))
        };
        let _turn = self.turn();
        if !self.slots.peek(key).as_ref().is_some_and(is_better) {
            self.slots.insert(key.clone(), Slot::Entry(present));
        }
    }

    /// Counts a request for `resource` that no entry has answered.
    pub(crate) fn use_once_more(&self, resource: &Key) {
        let count = || Ok::<_, Infallible>(Arc::default());
        let Ok(uses) = self.uses.get_or_insert_with(resource, count);
        uses.fetch_add(1, Ordering::Relaxed);
    }

    /// How many of them there were.
    pub(crate) fn uses(&self, resource: &Key) -> u32 {
        let uses = self.uses.get(resource);
        uses.map_or(0, |uses| uses.load(Ordering::Relaxed))
    }

    /// What one entry may take at most: the map lets it have 97 % of a shard.
    pub(crate) fn largest(&self) -> u64 {
        let shard = self.slots.shard_capacity();
        shard - shard.div_ceil(33)
    }

    /// Entries, and the bytes they take.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.slots.len() as u64, self.slots.weight())
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
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

    /// Whether [`admit`](Self::admit) would find room.
    fn has_room(&self, key: &Key, limit: usize) -> bool {
        let (now, digest) = (Instant::now(), key.digest());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let others = known
            .iter()
            .filter(|(other, until)| *other != digest && now < *until);
        others.count() < limit
    }
}

/// Turns the key of a resource into the key of the variant that a request asks for.
pub(crate) fn append_variant(key: &mut Vec<u8>, fields: &Fields, request: &http::HeaderMap) {
    key::push_variant(key, &entry::values(fields, request));
}

#[cfg(test)]
mod tests;
