//! Retry strategies: how long to pause between attempts, and when to stop.

use std::{fmt, sync::Arc, time::Duration};

/// A schedule of pauses between attempts.
///
/// A strategy is a value without state: every wait starts it anew, and any number of waits may use
/// it at the same time.
///
/// ```
/// use std::time::Duration;
/// use tower_stampede::lock::Retry;
///
/// let patient = Retry::exponential(Duration::from_millis(16), Duration::from_secs(1)).limit(20);
/// assert!(patient.pauses().count() <= 20);
/// ```
#[derive(Clone)]
pub struct Retry {
    schedule: Schedule,
    limit: Option<u32>,
}

#[derive(Clone)]
enum Schedule {
    Never,
    Linear(Duration),
    Exponential { least: Duration, most: Duration },
    Custom(Arc<dyn Fn(u32) -> Option<Duration> + Send + Sync>),
}

impl Retry {
    /// One attempt, no second one.
    pub fn none() -> Self {
        Self::new(Schedule::Never)
    }

    /// The same pause after every attempt.
    pub fn linear(pause: Duration) -> Self {
        Self::new(Schedule::Linear(pause))
    }

    /// Pauses that double from `least` up to `most`, each shortened by a random part of up to a
    /// fifth so that many waiters do not march in step, but never below `least`.
    pub fn exponential(least: Duration, most: Duration) -> Self {
        Self::new(Schedule::Exponential {
            least,
            most: most.max(least),
        })
    }

    /// Pauses of your own: `pause` gets the number of attempts that failed (1 for the first) and
    /// returns the pause before the next one, or `None` to give up.
    pub fn with<F>(pause: F) -> Self
    where
        F: Fn(u32) -> Option<Duration> + Send + Sync + 'static,
    {
        Self::new(Schedule::Custom(Arc::new(pause)))
    }

    /// The same schedule with at most `retries` further attempts after the first.
    pub fn limit(mut self, retries: u32) -> Self {
        self.limit = Some(self.limit.map_or(retries, |limit| limit.min(retries)));
        self
    }

    /// The pauses of one wait, from the first to the last.
    pub fn pauses(&self) -> impl Iterator<Item = Duration> + Send + use<> {
        let retry = self.clone();
        let mut failed = 0_u32;
        std::iter::from_fn(move || {
            failed = failed.saturating_add(1);
            retry.pause_after(failed)
        })
    }

    fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            limit: None,
        }
    }

    fn pause_after(&self, failed: u32) -> Option<Duration> {
        if self.limit.is_some_and(|limit| failed > limit) {
            return None;
        }
        match &self.schedule {
            Schedule::Never => None,
            Schedule::Linear(pause) => Some(*pause),
            Schedule::Exponential { least, most } => Some(backoff(failed, *least, *most)),
            Schedule::Custom(pause) => pause(failed),
        }
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schedule = match &self.schedule {
            Schedule::Never => "none",
            Schedule::Linear(_) => "linear",
            Schedule::Exponential { .. } => "exponential",
            Schedule::Custom(_) => "custom",
        };
        f.debug_struct("Retry")
            .field("schedule", &schedule)
            .field("limit", &self.limit)
            .finish()
    }
}

/// `least` doubled for each failure after the first, at most `most`, jittered downwards.
pub(super) fn backoff(failed: u32, least: Duration, most: Duration) -> Duration {
    let doublings = failed.saturating_sub(1).min(31);
    let full = least.saturating_mul(1 << doublings).min(most);
    jittered(full).max(least)
}

/// `pause`, shortened by a random part of up to a fifth.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 - fastrand::f64() / 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn none_never_pauses_and_linear_always_pauses_the_same() {
        assert_eq!(Retry::none().pauses().count(), 0);
        assert_eq!(
            Retry::linear(7 * MS).pauses().take(3).collect::<Vec<_>>(),
            [7 * MS; 3]
        );
    }

    #[test]
    fn a_limit_counts_retries_and_the_smaller_of_two_limits_holds() {
        let retry = Retry::linear(MS).limit(3).limit(5);

        assert_eq!(retry.pauses().count(), 3);
    }

    #[test]
    fn exponential_pauses_stay_within_their_bounds_and_grow() {
        let pauses: Vec<_> = Retry::exponential(10 * MS, 80 * MS)
            .pauses()
            .take(40)
            .collect();

        assert!(
            pauses
                .iter()
                .all(|pause| *pause >= 10 * MS && *pause <= 80 * MS)
        );
        assert!(pauses[10] >= 64 * MS);
    }

    #[test]
    fn a_strategy_starts_anew_for_every_wait() {
        let retry = Retry::exponential(MS, 100 * MS).limit(2);
        let mut first = retry.pauses();
        let mut second = retry.pauses();

        assert!(first.next().is_some() && first.next().is_some() && first.next().is_none());
        assert_eq!(second.next(), Some(MS));
    }

    #[test]
    fn bounds_in_the_wrong_order_and_very_many_failures_do_no_harm() {
        assert_eq!(backoff(u32::MAX, 5 * MS, 5 * MS), 5 * MS);
        assert_eq!(
            Retry::exponential(5 * MS, MS).pauses().nth(100),
            Some(5 * MS)
        );
    }

    #[test]
    fn a_schedule_of_ones_own_sees_the_number_of_failures() {
        let retry = Retry::with(|failed| (failed < 3).then_some(failed * MS));

        assert_eq!(retry.pauses().collect::<Vec<_>>(), [MS, 2 * MS]);
    }
}
