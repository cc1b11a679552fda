//! The clocks: waits and freshness use tokio's, which tests can pause; dates use the wall clock; what
//! the processes order between them, the shared tier's own.

use std::time::{Duration, SystemTime};

/// Longer than anything lasts, and short enough that no instant overflows: ten years. Whoever says "for
/// ever" gets this.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The wall clock, for `Date` and `Expires` alone: no lifetime is decided by comparing two hosts' clocks.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the wall clock"
)]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// A point in time by the shared tier's clock, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TierTime(pub(crate) u64);
