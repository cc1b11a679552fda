//! Memos: short notes beside keys of how their last build ended.
//!
//! They are bounded by their bytes, which bounds their number too: each counts for a kibibyte at least.

use std::{fmt, sync::Arc};

use foldhash::fast::RandomState;
use quick_cache::{
    Weighter,
    sync::{Cache, DefaultLifecycle},
};
use tokio::time::Instant;

use crate::{
    flight::Failure,
    key::{Digest, Key},
    purges::{Moment, Purges},
};

/// What the smallest memo counts for, in bytes.
const LEAST: usize = 1024;

/// A short note beside a key.
#[derive(Clone, Debug)]
pub(crate) struct Memo {
    pub(crate) note: Note,
    pub(crate) until: Instant,
    /// When the build began that it was learnt from: a purge forgets it.
    pub(crate) began: Moment,
}

/// What a memo says.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// The last response declared itself uncacheable: nobody waits for the next one.
    HitForMiss,
    /// The last builds failed, so many of them in a row: newcomers share the last failure.
    Failed(Arc<Failure>, u32),
}

/// The memos of a cache.
pub(crate) struct Memos(Cache<Key, Memo, Bytes, RandomState>);

/// What a memo takes, its key included.
#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Memo> for Bytes {
    fn weight(&self, key: &Key, memo: &Memo) -> u64 {
        let failure = match &memo.note {
            Note::HitForMiss => 0,
            Note::Failed(failure, _) => failure.weight(),
        };
        (key.as_bytes().len() + failure).max(LEAST) as u64
    }
}

impl Memos {
    /// At most `count` memos, and as many bytes as that number of the smallest.
    pub(crate) fn new(count: usize) -> Self {
        let capacity = count.saturating_mul(LEAST) as u64;
        let hasher = RandomState::default();
        let lifecycle = DefaultLifecycle::default();
        Self(Cache::with(count, capacity, Bytes, hasher, lifecycle))
    }

    /// The note beside `key`, while it holds and if no purge of one of `tags` has overtaken it.
    pub(crate) fn note(&self, key: &Key, tags: &[Digest], purges: &Purges) -> Option<Note> {
        let memo = self.0.get(key)?;
        let valid = Instant::now() < memo.until && !purges.overtake(memo.began, tags);
        valid.then_some(memo.note)
    }

    /// How often in a row the build for `key` has failed, as far as that is remembered.
    pub(crate) fn failures(&self, key: &Key) -> u32 {
        match self.0.get(key).map(|memo| memo.note) {
            Some(Note::Failed(_, failures)) => failures,
            _ => 0,
        }
    }

    pub(crate) fn set(&self, key: Key, memo: Memo) {
        self.0.insert(key, memo);
    }

    pub(crate) fn clear(&self, key: &Key) {
        drop(self.0.remove(key));
    }
}

impl fmt::Debug for Memos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memos").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::{
        entry::{self, Head},
        purges::{Purge, Reach},
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn key(number: usize) -> Key {
        Key::new(&number.to_be_bytes())
    }

    fn memo(note: Note) -> Memo {
        Memo {
            note,
            until: Instant::now() + SECOND,
            began: Moment::default(),
        }
    }

    fn failure(bytes: usize) -> Note {
        let head = Head {
            status: StatusCode::BAD_GATEWAY,
            headers: HeaderMap::new(),
            variant: None,
            age: 0,
        };
        let response = entry::unstored(head, vec![0; bytes].into(), None, Moment::default());
        Note::Failed(Arc::new(Failure::Response(response)), 1)
    }

    fn known(memos: &Memos) -> usize {
        let purges = Purges::new(10);
        let is_known = |number: &usize| memos.note(&key(*number), &[], &purges).is_some();
        (0..1000).filter(is_known).count()
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_bounded_in_number() {
        let memos = Memos::new(100);

        for number in 0..1000 {
            memos.set(key(number), memo(Note::HitForMiss));
        }

        assert!((50..=100).contains(&known(&memos)), "{}", known(&memos));
    }

    #[tokio::test(start_paused = true)]
    async fn large_failures_are_bounded_by_their_bytes() {
        let memos = Memos::new(100);

        for number in 0..1000 {
            memos.set(key(number), memo(failure(10 * LEAST)));
        }

        assert!((1..10).contains(&known(&memos)), "{}", known(&memos));
    }

    #[tokio::test(start_paused = true)]
    async fn one_is_forgotten_when_its_time_is_over_when_it_is_cleared_and_by_a_purge() {
        let (memos, purges) = (Memos::new(100), Purges::new(10));
        let tags = [Digest::of(b"tag")];
        let is_known = || memos.note(&key(0), &tags, &purges).is_some();
        let learn = || {
            let began = purges.now();
            let note = Note::HitForMiss;
            let until = Instant::now() + SECOND;
            memos.set(key(0), Memo { note, until, began });
        };

        learn();
        assert!(is_known());
        memos.clear(&key(0));
        assert!(!is_known());

        learn();
        purges.purge(Purge::hard(Reach::Tag(tags[0])));
        assert!(!is_known());

        learn();
        tokio::time::advance(SECOND).await;
        assert!(!is_known());
    }
}
