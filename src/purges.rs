//! What this process knows to have been purged, and when.
//!
//! Time here is a [`Moment`]: the number of purges so far. A build remembers the moment it began;
//! whatever is purged later is newer than the build, so what it made is never served as fresh to
//! anyone who comes after that purge, whenever it is inserted. So nothing has to be found and removed
//! by a purge, and no build in flight can slip past one.

use std::{
    collections::HashMap,
    sync::{
        PoisonError, RwLock, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::time::Instant;

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

/// What a purge is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    All,
    Tag(Digest),
}

/// What a purge does to the entries that it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// They are gone.
    Hard,
    /// They are stale from then on.
    Soft,
}

/// One purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Purge {
    pub(crate) reach: Reach,
    pub(crate) force: Force,
}

impl Purge {
    pub(crate) fn hard(reach: Reach) -> Self {
        let force = Force::Hard;
        Self { reach, force }
    }

    pub(crate) fn soft(reach: Reach) -> Self {
        let force = Force::Soft;
        Self { reach, force }
    }
}

/// What has become of an entry since a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    Nothing,
    /// It has been stale from then on.
    Softened(Instant),
    Purged,
}

/// The purges of one cache.
#[derive(Debug)]
pub(crate) struct Purges {
    latest: AtomicU64,
    /// Since this moment purges may be missed, or were.
    gap: AtomicU64,
    records: RwLock<Records>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Records {
    hard: Ledger<Moment>,
    soft: Ledger<(Moment, Instant)>,
}

/// The latest purge of everything, and of each tag.
#[derive(Debug)]
struct Ledger<T> {
    all: Option<T>,
    by_tag: HashMap<Digest, T>,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self {
            all: None,
            by_tag: HashMap::new(),
        }
    }
}

impl<T: Copy> Ledger<T> {
    fn record(&mut self, reach: Reach, purge: T) {
        match reach {
            Reach::Tag(tag) => {
                self.by_tag.insert(tag, purge);
            }
            Reach::All => {
                self.by_tag.clear();
                self.all = Some(purge);
            }
        }
    }

    /// The purges that reach what carries `tags`.
    fn reaching<'a>(&'a self, tags: &'a [Digest]) -> impl Iterator<Item = T> + 'a {
        let tagged = tags.iter().filter_map(|tag| self.by_tag.get(tag));
        tagged.copied().chain(self.all)
    }
}

impl Purges {
    /// Remembers the latest purge of `capacity` tags; beyond, all of the past counts as purged.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            latest: AtomicU64::new(0),
            gap: AtomicU64::new(0),
            records: RwLock::default(),
            capacity,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(self.latest.load(Ordering::Acquire))
    }

    pub(crate) fn purge(&self, Purge { reach, force }: Purge) {
        self.next(|records, moment| {
            if records.hard.by_tag.len() + records.soft.by_tag.len() >= self.capacity {
                records.hard.record(Reach::All, moment);
                records.soft = Ledger::default();
            }
            match force {
                Force::Hard => records.hard.record(reach, moment),
                Force::Soft => records.soft.record(reach, (moment, Instant::now())),
            }
        });
    }

    /// From now on purges may be missed.
    pub(crate) fn interrupt(&self) {
        self.next(|_, moment| self.gap.store(moment.0, Ordering::Relaxed));
    }

    /// Lets a new moment begin: whoever sees it finds what has been recorded with it.
    fn next(&self, record: impl FnOnce(&mut Records, Moment)) {
        let mut records: RwLockWriteGuard<'_, _> =
            self.records.write().unwrap_or_else(PoisonError::into_inner);
        let moment = Moment(self.latest.load(Ordering::Relaxed) + 1);
        record(&mut records, moment);
        self.latest.store(moment.0, Ordering::Release);
    }

    /// Whether what began at `began`, and is still under way, is not for those who come now: it has
    /// been purged since, or may have been.
    pub(crate) fn overtake(&self, began: Moment, tags: &[Digest]) -> bool {
        began.0 < self.gap.load(Ordering::Relaxed) || self.since(began, tags) != Since::Nothing
    }

    /// What has become since of something with these `tags` that began at `began`.
    pub(crate) fn since(&self, began: Moment, tags: &[Digest]) -> Since {
        if began >= self.now() {
            return Since::Nothing;
        }
        let records = self.records.read().unwrap_or_else(PoisonError::into_inner);
        if records.hard.reaching(tags).any(|purged| purged > began) {
            return Since::Purged;
        }
        let softened = records.soft.reaching(tags);
        softened
            .filter_map(|(moment, at)| (moment > began).then_some(at))
            .min()
            .map_or(Since::Nothing, Since::Softened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    fn reach(name: &str) -> Reach {
        Reach::Tag(tag(name))
    }

    #[test]
    fn a_purge_reaches_what_began_before_it_and_nothing_else() {
        let purges = Purges::new(10);
        let before = purges.now();

        purges.purge(Purge::hard(reach("a")));

        assert_eq!(purges.since(before, &[tag("b"), tag("a")]), Since::Purged);
        assert_eq!(purges.since(before, &[tag("b")]), Since::Nothing);
        assert_eq!(purges.since(purges.now(), &[tag("a")]), Since::Nothing);
    }

    #[test]
    fn purging_all_reaches_whatever_began_before() {
        let purges = Purges::new(10);
        let before = purges.now();

        purges.purge(Purge::hard(Reach::All));

        assert_eq!(purges.since(before, &[]), Since::Purged);
        assert_eq!(purges.since(purges.now(), &[]), Since::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_soft_purge_makes_stale_from_then_on_and_a_hard_one_outdoes_it() {
        for all in [reach("a"), Reach::All] {
            let purges = Purges::new(10);
            let (before, at) = (purges.now(), Instant::now());

            purges.purge(Purge::soft(all));
            assert_eq!(purges.since(before, &[tag("a")]), Since::Softened(at));
            assert!(purges.overtake(before, &[tag("a")]), "it fences builds");
            assert_eq!(purges.since(purges.now(), &[tag("a")]), Since::Nothing);

            purges.purge(Purge::hard(all));
            assert_eq!(purges.since(before, &[tag("a")]), Since::Purged);
        }
    }

    #[test]
    fn where_purges_may_be_missed_what_is_under_way_is_overtaken_and_nothing_is_purged() {
        let purges = Purges::new(10);
        let before = purges.now();

        purges.interrupt();

        assert!(purges.overtake(before, &[]));
        assert_eq!(purges.since(before, &[]), Since::Nothing);
        assert!(!purges.overtake(purges.now(), &[]));
    }

    #[test]
    fn forgetting_a_purge_counts_all_of_the_past_as_purged() {
        for force in [Force::Hard, Force::Soft] {
            let purges = Purges::new(1);
            let before = purges.now();
            purges.purge(Purge {
                reach: reach("a"),
                force,
            });
            let between = purges.now();

            purges.purge(Purge {
                reach: reach("b"),
                force,
            });

            assert_eq!(purges.since(before, &[tag("c")]), Since::Purged);
            assert_eq!(purges.since(between, &[tag("a")]), Since::Purged);
            assert!(!purges.overtake(purges.now(), &[tag("a"), tag("b")]));
        }
    }
}
