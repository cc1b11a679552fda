//! The clocks: waits and freshness use tokio's, which tests can pause; dates use the wall clock.

use std::time::SystemTime;

/// The wall clock, for `Date` and `Expires` alone: no lifetime is decided by comparing two hosts' clocks.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the wall clock"
)]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}
