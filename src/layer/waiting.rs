//! Who waits how long, for whom, and what then.

use std::time::Duration;

use super::BufferLayer;
use crate::{
    policy::{Fallback, OnDisconnect},
    time::LONGEST,
};

/// # Waiting
impl BufferLayer {
    /// How long a request waits for another one's build before it falls back. Default: 5 s.
    pub fn wait_timeout(self, timeout: Duration) -> Self {
        self.with(|policy| policy.wait_timeout = timeout.min(LONGEST))
    }

    /// How long a build may take, the inner service's readiness included. Default: 30 s. Beyond, it
    /// is dropped and those who wait get a stale entry or 503; a body that is already on its way
    /// goes on for its own request.
    pub fn build_timeout(self, timeout: Duration) -> Self {
        self.with(|policy| policy.build_timeout = timeout.min(LONGEST))
    }

    /// What a waiter does when it has waited long enough. Default: [`Fallback::Stale`], then
    /// [`Fallback::Build`].
    pub fn fallback(self, fallback: impl IntoIterator<Item = Fallback>) -> Self {
        self.with(|policy| policy.fallback = fallback.into_iter().collect())
    }

    /// How many extra builds of one key the whole fleet may have under way by
    /// [`Fallback::Build`], each in another process. Default: 1, at least 1.
    /// Without the shared tier it is one in each process.
    pub fn extra_builds(self, builds: u8) -> Self {
        self.with(|policy| policy.extra_builds = builds.max(1))
    }

    /// How many requests may wait for one build. Default: 10 000; beyond, they fall back at once. As
    /// many may wait for an extra build ([`Fallback::Build`]); beyond that, they are rejected.
    pub fn max_waiters(self, waiters: usize) -> Self {
        self.with(|policy| policy.waiters.per_flight = waiters.max(1))
    }

    /// How many requests may wait in the whole cache before those of this layer that would wait for
    /// another one's build fall back at once. Default: 50 000. A request that finds nobody to wait for
    /// builds, however many wait for other keys.
    pub fn max_waiters_in_all(self, waiters: usize) -> Self {
        self.with(|policy| policy.waiters.in_all = waiters.max(1))
    }

    /// What becomes of a build that nobody waits for any more. Default: [`OnDisconnect::Finish`].
    pub fn on_disconnect(self, choice: OnDisconnect) -> Self {
        self.with(|policy| policy.on_disconnect = choice)
    }
}
