//! The pause before the next attempt to connect.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);

/// The longest pause there is.
pub(super) const fn longest() -> Duration {
    LONGEST
}

/// The pause after `failures` failures in a row: doubling from 20 to 500 ms, of which `unit` (0 to 1, drawn
/// anew each time) decides the second half, so that the workers of a fleet do not come back in step.
pub(super) fn pause(failures: u32, unit: f64) -> Duration {
    let ceiling = FIRST
        .saturating_mul(2_u32.saturating_pow(failures))
        .min(LONGEST);
    let fixed = if failures == 0 { 0.0 } else { 0.5 };
    ceiling.mul_f64(fixed + (1.0 - fixed) * unit.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_comes_within_twenty_milliseconds() {
        assert_eq!(pause(0, 0.0), Duration::ZERO);
        assert_eq!(pause(0, 1.0), Duration::from_millis(20));
    }

    #[test]
    fn pauses_double_up_to_half_a_second_and_vary_by_half() {
        assert_eq!(pause(1, 0.0), Duration::from_millis(20));
        assert_eq!(pause(1, 1.0), Duration::from_millis(40));
        assert_eq!(pause(3, 1.0), Duration::from_millis(160));
        assert_eq!(pause(u32::MAX, 0.0), longest() / 2);
        assert_eq!(pause(u32::MAX, 1.0), longest());
    }
}
