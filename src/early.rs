//! Refreshing ahead of time, so that nobody ever waits for what everybody asks for.
//!
//! By probability: each hit refreshes with a chance that grows as the entry's end comes near, and is
//! the greater the longer its build took (Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic
//! Cache Stampede Prevention", VLDB 2015). By threshold: the first hit after a part of its life.

use std::time::Duration;

use tokio::time::Instant;

use crate::entry::Entry;

/// When hits refresh a fresh entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Early {
    /// The time before the end is the build time, multiplied by this and by a random number whose
    /// mean is 1.
    Probably { beta: f64 },
    /// After this part of its life.
    After { part: f64 },
}

impl Early {
    /// `chance` is uniform in 0..1.
    pub(crate) fn is_due(self, entry: &Entry, now: Instant, chance: f64) -> bool {
        let left = entry.fresh_until().saturating_duration_since(now);
        match self {
            Self::Probably { beta } => left < gap(entry.build_time, beta, chance),
            Self::After { part } => {
                let whole = entry.lifetime.fresh_for();
                left < whole.mul_f64(1.0 - part)
            }
        }
    }
}

/// How long before its end an entry is refreshed.
fn gap(build_time: Duration, beta: f64, chance: f64) -> Duration {
    let factor = -beta * chance.max(f64::MIN_POSITIVE).ln();
    Duration::try_from_secs_f64(build_time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_early_refreshes_agrees_with_the_exponential() {
        let build_time = Duration::from_millis(100);
        let trials = 200_000_u32;
        let mut random = fastrand::Rng::with_seed(7);
        for (left, beta) in [(50, 1.0), (100, 1.0), (300, 1.0), (200, 2.0)] {
            let left = Duration::from_millis(left);
            let early: u32 = (0..trials)
                .map(|_| u32::from(left < gap(build_time, beta, random.f64())))
                .sum();

            let rate = f64::from(early) / f64::from(trials);

            let expected = (-left.as_secs_f64() / (beta * build_time.as_secs_f64())).exp();
            // Five standard deviations.
            let tolerance = 5.0 * (expected * (1.0 - expected) / f64::from(trials)).sqrt();
            assert!((rate - expected).abs() < tolerance, "{rate} for {expected}");
        }
    }

    #[test]
    fn no_chance_overflows() {
        for chance in [0.0, f64::MIN_POSITIVE, 0.5, 1.0] {
            for beta in [0.0, 1.0, 1e300] {
                assert!(gap(Duration::from_secs(1), beta, chance) <= Duration::MAX);
            }
        }
    }
}
