//! What this process knows to have been purged, and when.
//!
//! Time here is a [`Moment`]: the number of purges so far. A build remembers the moment it began;
//! whatever is purged later is newer than the build, so what it made is never served to anyone who
//! comes after that purge, whenever it is inserted. So nothing has to be found and removed by a
//! purge, and no build in flight can slip past one.

use std::{
    collections::HashMap,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::key::Digest;

/// A point in the order of purges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn at(number: u64) -> Self {
        Self(number)
    }
}

/// The purges of one cache.
#[derive(Debug)]
pub(crate) struct Purges {
    latest: AtomicU64,
    /// Whatever began before this moment is purged.
    floor: AtomicU64,
    /// Since this moment purges may be missed, or were.
    gap: AtomicU64,
    by_tag: RwLock<HashMap<Digest, Moment>>,
    capacity: usize,
}

impl Purges {
    /// Remembers the latest purge of `capacity` tags; beyond, all of the past counts as purged.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            latest: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            gap: AtomicU64::new(0),
            by_tag: RwLock::default(),
            capacity,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(self.latest.load(Ordering::Acquire))
    }

    /// Purges what carries `tag`.
    pub(crate) fn purge(&self, tag: Digest) {
        let mut by_tag = self.by_tag.write().unwrap_or_else(PoisonError::into_inner);
        if by_tag.len() >= self.capacity && !by_tag.contains_key(&tag) {
            by_tag.clear();
            self.raise_floor();
        }
        // Under the lock: whoever sees the new moment finds the tag's.
        let moment = Moment(self.latest.load(Ordering::Relaxed) + 1);
        by_tag.insert(tag, moment);
        self.latest.store(moment.0, Ordering::Release);
    }

    /// Purges everything.
    pub(crate) fn purge_all(&self) {
        let mut by_tag = self.by_tag.write().unwrap_or_else(PoisonError::into_inner);
        by_tag.clear();
        self.raise_floor();
    }

    /// From now on purges may be missed.
    pub(crate) fn interrupt(&self) {
        // The lock keeps moments in order.
        let _by_tag = self.by_tag.write().unwrap_or_else(PoisonError::into_inner);
        let moment = self.latest.load(Ordering::Relaxed) + 1;
        self.gap.store(moment, Ordering::Relaxed);
        self.latest.store(moment, Ordering::Release);
    }

    fn raise_floor(&self) {
        let moment = self.latest.load(Ordering::Relaxed) + 1;
        self.floor.store(moment, Ordering::Relaxed);
        self.latest.store(moment, Ordering::Release);
    }

    /// Whether what began at `began`, and is still under way, is not for those who come now: it has
    /// been purged since, or may have been.
    pub(crate) fn overtake(&self, began: Moment, tags: &[Digest]) -> bool {
        self.since(began, tags) || began.0 < self.gap.load(Ordering::Relaxed)
    }

    /// Whether anything with one of `tags` that began at `began` has been purged since.
    pub(crate) fn since(&self, began: Moment, tags: &[Digest]) -> bool {
        if began >= self.now() {
            return false;
        }
        let by_tag = self.by_tag.read().unwrap_or_else(PoisonError::into_inner);
        began.0 < self.floor.load(Ordering::Relaxed)
            || tags
                .iter()
                .any(|tag| by_tag.get(tag).is_some_and(|purged| *purged > began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    #[test]
    fn a_purge_reaches_what_began_before_it_and_nothing_else() {
        let purges = Purges::new(10);
        let before = purges.now();

        purges.purge(tag("a"));

        assert!(purges.since(before, &[tag("b"), tag("a")]));
        assert!(!purges.since(before, &[tag("b")]));
        assert!(!purges.since(purges.now(), &[tag("a")]));
    }

    #[test]
    fn purging_all_reaches_whatever_began_before() {
        let purges = Purges::new(10);
        let before = purges.now();

        purges.purge_all();

        assert!(purges.since(before, &[]));
        assert!(!purges.since(purges.now(), &[]));
    }

    #[test]
    fn where_purges_may_be_missed_what_is_under_way_is_overtaken_and_nothing_is_purged() {
        let purges = Purges::new(10);
        let before = purges.now();

        purges.interrupt();

        assert!(purges.overtake(before, &[]));
        assert!(!purges.since(before, &[]));
        assert!(!purges.overtake(purges.now(), &[]));
    }

    #[test]
    fn forgetting_a_purge_counts_all_of_the_past_as_purged() {
        let purges = Purges::new(1);
        let before = purges.now();
        purges.purge(tag("a"));
        let between = purges.now();

        purges.purge(tag("b"));

        assert!(purges.since(before, &[tag("c")]));
        assert!(purges.since(between, &[tag("a")]));
        assert!(!purges.since(purges.now(), &[tag("a"), tag("b")]));
    }
}
