//! How long builds take, and what follows from that: how long to wait for one, and for how long to
//! lease it.

use std::{
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::time::LONGEST;

/// So many builds are looked back on.
const KNOWN: usize = 64;

/// With fewer than this nothing is derived.
const ENOUGH: usize = 8;

/// Waits and leases are this many times what nearly all builds take.
const AMPLE: u32 = 3;

/// A shorter lease would be lost between two renewals.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// The build times of a layer. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    limits: Option<RangeInclusive<Duration>>,
    known: Arc<Mutex<Known>>,
    nears_limit: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Known {
    times: Vec<Duration>,
    next: usize,
}

impl Known {
    fn add(&mut self, time: Duration) {
        match self.times.get_mut(self.next) {
            Some(oldest) => *oldest = time,
            None => self.times.push(time),
        }
        self.next = (self.next + 1) % KNOWN;
    }

    /// What 95 of a hundred builds do not exceed, once there have been enough.
    fn percentile_95(&self) -> Option<Duration> {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * 95).div_ceil(100).checked_sub(1)?;
        sorted.get(at).copied().filter(|_| sorted.len() >= ENOUGH)
    }
}

impl Pace {
    /// From now on timeouts are derived, within these limits.
    pub(crate) fn within(limits: RangeInclusive<Duration>) -> Self {
        let (least, most) = limits.into_inner();
        Self {
            limits: Some(least.min(LONGEST)..=most.min(LONGEST)),
            ..Self::default()
        }
    }

    /// Notes a build that took `time`, of at most `limit`; says, once for each change, that builds come
    /// near it.
    pub(crate) fn note(&self, layer: Option<&str>, time: Duration, limit: Duration) {
        self.known().add(time);
        let near = time > limit.mul_f64(0.8);
        if near == self.nears_limit.swap(near, Ordering::Relaxed) {
            return;
        }
        if near {
            tracing::warn!(
                layer,
                ?time,
                ?limit,
                "a build took nearly all of its build_timeout"
            );
        } else {
            tracing::info!(
                layer,
                ?time,
                ?limit,
                "builds are far from their build_timeout again"
            );
        }
    }

    /// How long to wait for a build: as derived, or else `configured`.
    pub(crate) fn wait_timeout(&self, configured: Duration) -> Duration {
        self.derived().unwrap_or(configured)
    }

    /// For how long to lease a build: as derived, but not too short to be renewed in time, and never
    /// longer than `longest`.
    pub(crate) fn lease_ttl(&self, longest: Duration) -> Duration {
        self.derived()
            .map_or(longest, |derived| derived.max(SHORTEST_LEASE).min(longest))
    }

    fn derived(&self) -> Option<Duration> {
        let limits = self.limits.as_ref()?;
        let usual = self.known().percentile_95()?;
        let ample = usual.saturating_mul(AMPLE);
        Some(ample.max(*limits.start()).min(*limits.end()))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn after(times: impl IntoIterator<Item = u64>) -> Pace {
        let pace = Pace::within(ms(100)..=10 * SECOND);
        for time in times {
            pace.note(None, ms(time), 30 * SECOND);
        }
        pace
    }

    #[test]
    fn what_nearly_all_builds_take_decides_and_not_the_rare_slow_one() {
        let pace = after((0..100).map(|number| if number % 30 == 0 { 9_000 } else { 200 }));

        assert_eq!(pace.wait_timeout(5 * SECOND), ms(600));
        assert_eq!(pace.lease_ttl(3 * SECOND), ms(600));
    }

    #[test]
    fn builds_of_long_ago_do_not_count() {
        let pace = after((0..200).map(|number| if number < 136 { 3_000 } else { 50 }));

        assert_eq!(pace.wait_timeout(5 * SECOND), ms(150));
    }

    #[test]
    fn nothing_is_derived_from_few_builds_and_nothing_leaves_the_limits() {
        assert_eq!(after([1; 7]).wait_timeout(5 * SECOND), 5 * SECOND);
        assert_eq!(after([1; 8]).wait_timeout(5 * SECOND), ms(100));
        assert_eq!(after([9_000; 8]).wait_timeout(5 * SECOND), 10 * SECOND);
        assert_eq!(after([9_000; 8]).lease_ttl(3 * SECOND), 3 * SECOND);
    }

    #[test]
    fn however_fast_builds_are_a_lease_lasts_until_it_can_be_renewed() {
        let pace = Pace::within(Duration::ZERO..=Duration::ZERO);
        for _ in 0..8 {
            pace.note(None, Duration::from_micros(10), SECOND);
        }

        assert_eq!(pace.wait_timeout(5 * SECOND), Duration::ZERO);
        assert_eq!(pace.lease_ttl(3 * SECOND), SHORTEST_LEASE);
        assert_eq!(pace.lease_ttl(ms(50)), ms(50));
    }

    #[test]
    fn without_limits_nothing_is_derived() {
        let pace = Pace::default();
        for _ in 0..100 {
            pace.note(None, ms(1), SECOND);
        }

        assert_eq!(pace.wait_timeout(5 * SECOND), 5 * SECOND);
        assert_eq!(pace.lease_ttl(3 * SECOND), 3 * SECOND);
    }
}
