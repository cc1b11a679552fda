//! When an entry may be used, and for what.

use std::{ops::Range, time::Duration};

use tokio::time::Instant;

use crate::{
    http::freshness::{Freshness, Revalidation},
    time::LONGEST,
};

/// When an entry may be used, as instants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) received: Instant,
    pub(crate) fresh_until: Instant,
    /// Until when it may be served while it is refreshed (RFC 5861 section 3).
    pub(crate) revalidate_until: Instant,
    /// Until when it may be served in place of an error (RFC 5861 section 4).
    pub(crate) error_until: Instant,
    /// Until when it is kept, were it only to be validated.
    pub(crate) kept_until: Instant,
}

impl Lifetime {
    /// Of a response that was received at `received`.
    pub(crate) fn of(freshness: &Freshness, received: Instant) -> Self {
        let usable = freshness.revalidation != Revalidation::Always;
        let fresh = if usable {
            freshness.remaining()
        } else {
            Duration::ZERO
        };
        // A response that was stale on arrival has used up a part of its windows.
        let overdue = freshness.initial_age.saturating_sub(freshness.lifetime);
        let window = |window: Duration| match freshness.revalidation {
            Revalidation::WhenStale => window.saturating_sub(overdue),
            Revalidation::NeverStale | Revalidation::Always => Duration::ZERO,
        };
        Self::starting(
            received,
            fresh,
            window(freshness.stale_while_revalidate),
            window(freshness.stale_if_error),
        )
    }

    pub(crate) fn starting(
        received: Instant,
        fresh: Duration,
        stale_while_revalidate: Duration,
        stale_if_error: Duration,
    ) -> Self {
        let fresh_until = received + fresh.min(LONGEST);
        let window = stale_while_revalidate.max(stale_if_error);
        Self {
            received,
            fresh_until,
            revalidate_until: fresh_until + stale_while_revalidate.min(LONGEST),
            error_until: fresh_until + stale_if_error.min(LONGEST),
            kept_until: fresh_until + window.min(LONGEST),
        }
    }

    /// The same, kept for at least `window` beyond freshness, so that it can be validated.
    pub(crate) fn kept_for(self, window: Duration) -> Self {
        let kept_until = self.fresh_until + window.min(LONGEST);
        Self {
            kept_until: self.kept_until.max(kept_until),
            ..self
        }
    }

    pub(super) fn worth(&self, now: Instant) -> Worth {
        if now < self.fresh_until {
            Worth::Fresh
        } else if now < self.revalidate_until {
            Worth::StaleWhileRevalidate
        } else if now < self.error_until {
            Worth::StaleIfError
        } else {
            Worth::Nothing
        }
    }

    /// The time around `now` in which it is worth the same, as far as it is kept.
    pub(super) fn steady(&self, now: Instant) -> Range<Instant> {
        let ends = [
            self.fresh_until,
            self.revalidate_until,
            self.error_until,
            self.kept_until,
        ];
        let past = ends.into_iter().filter(|end| *end <= now).max();
        let coming = ends.into_iter().filter(|end| now < *end).min();
        past.unwrap_or_else(|| self.received.min(now))..coming.unwrap_or(now)
    }

    /// The same, stale from `at` on at the latest.
    pub(super) fn stale_from(self, at: Instant) -> Self {
        let cut = self.fresh_until.saturating_duration_since(at);
        Self {
            fresh_until: self.fresh_until - cut,
            revalidate_until: self.revalidate_until - cut,
            error_until: self.error_until - cut,
            ..self
        }
    }

    /// When the entry is of no use any more.
    pub(crate) fn end(&self) -> Instant {
        self.kept_until
    }

    /// Until when it may answer anything without being validated.
    pub(crate) fn usable_until(&self) -> Instant {
        self.revalidate_until.max(self.error_until)
    }

    pub(crate) fn fresh_for(&self) -> Duration {
        self.fresh_until - self.received
    }

    /// How long it is kept once it is stale.
    pub(crate) fn stale_window(&self) -> Duration {
        self.end() - self.fresh_until
    }
}

/// What an entry is worth at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    Fresh,
    /// May be served now, while it is refreshed.
    StaleWhileRevalidate,
    /// May be served only if a build fails.
    StaleIfError,
    Nothing,
}

impl Worth {
    /// Whether it may answer without anything having failed.
    pub(crate) fn answers(self) -> bool {
        matches!(self, Self::Fresh | Self::StaleWhileRevalidate)
    }
}
