//! One line when something of the tier fails, and one when it works again; for what comes and goes, one
//! pair of them once in a while.

use std::{
    fmt::Display,
    mem,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::key::Digest;

/// What fails again sooner than this is told only if it lasts.
const QUIET: Duration = Duration::from_secs(5);

/// What people have been told: a state machine without a clock of its own.
#[derive(Debug, Default)]
pub(super) struct Bulletin {
    last: Last,
    /// When a failure was last told.
    told: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Works,
    Fails,
}

/// Whether there is something to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    News,
}

impl Bulletin {
    /// It fails.
    pub(super) fn fails(&mut self, now: Instant) -> Effect {
        let quiet = self.told.is_some_and(|told| now < told + QUIET);
        if quiet || self.last == Last::Fails {
            return Effect::None;
        }
        self.last = Last::Fails;
        self.told = Some(now);
        Effect::News
    }

    /// It works.
    pub(super) fn works(&mut self) -> Effect {
        match mem::take(&mut self.last) {
            Last::Works => Effect::None,
            Last::Fails => Effect::News,
        }
    }
}

/// Whether the tier takes what it is given.
#[derive(Debug)]
pub(super) struct Notice {
    what: &'static str,
    bulletin: Mutex<Bulletin>,
}

impl Notice {
    pub(super) fn new(what: &'static str) -> Self {
        let bulletin = Mutex::default();
        Self { what, bulletin }
    }

    pub(super) fn refused(&self, cause: impl Display) {
        if self.with(|bulletin| bulletin.fails(Instant::now())) == Effect::News {
            tracing::warn!(
                what = self.what,
                %cause,
                "the shared tier takes none: going on without it"
            );
        }
    }

    pub(super) fn works(&self) {
        if self.with(Bulletin::works) == Effect::News {
            tracing::info!(what = self.what, "the shared tier takes them again");
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Bulletin) -> T) -> T {
        work(&mut self.bulletin.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Entries that are of no use: each is counted, and one told once in a while.
#[derive(Debug, Default)]
pub(super) struct Unusable {
    count: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl Unusable {
    pub(super) fn found(&self, resource: Digest) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.is_news(Instant::now()) {
            tracing::warn!(key = %resource, "an entry of the shared tier is no use: a miss");
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn is_news(&self, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = told.is_none_or(|told| now >= told + QUIET);
        if is_news {
            *told = Some(now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let (mut bulletin, now) = (Bulletin::default(), Instant::now());

        assert_eq!(bulletin.works(), Effect::None, "it is taken for granted");
        assert_eq!(bulletin.fails(now), Effect::News);
        assert_eq!(bulletin.fails(now + QUIET), Effect::None);
        assert_eq!(bulletin.works(), Effect::News);
        assert_eq!(bulletin.works(), Effect::None);
    }

    #[test]
    fn what_comes_and_goes_is_told_once_in_a_while_and_what_lasts_after_that() {
        let (mut bulletin, now) = (Bulletin::default(), Instant::now());
        let ms = Duration::from_millis;
        let mut lines = 0;

        for at in 0..1000 {
            lines += usize::from(bulletin.fails(now + ms(10 * at)) == Effect::News);
            lines += usize::from(bulletin.works() == Effect::News);
        }
        assert_eq!(lines, 4, "two pairs in ten seconds");

        assert_eq!(bulletin.fails(now + ms(9_990)), Effect::None);
        let lasted = bulletin.fails(now + ms(10_010));
        assert_eq!(lasted, Effect::News);
    }
}
