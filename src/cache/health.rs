//! How the connections of a cache are.

use std::time::Duration;

/// The state of a cache's connections, for a health endpoint.
///
/// A cache without a shared tier has none. A broken connection is no reason to take a worker out of
/// service: it goes on by itself.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// One for claims, one for fills and large values, one for leases, one for events; in a Redis Cluster
    /// the first three are one to each node that has been asked. Or one for the store and one for the
    /// locks.
    pub links: Vec<LinkHealth>,
}

/// One connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkHealth {
    /// What logs call it.
    pub name: &'static str,
    /// Where it leads, such as `10.0.0.1:7001`, if it is one of several servers: in a Cluster, or behind
    /// Sentinel.
    pub node: Option<String>,
    /// What it is doing.
    pub state: LinkState,
    /// For how long it has been connected, or down.
    pub since: Duration,
    /// Why it last broke.
    pub last_error: Option<String>,
    /// How long its last answer took.
    pub latency: Option<Duration>,
    /// Failed commands since the start, of all kinds.
    pub failures: u64,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// Nobody has asked for it yet.
    Idle,
    /// The first attempt to connect is under way.
    Connecting,
    /// Commands are sent.
    Connected,
    /// Commands fail at once; the next attempt comes after a pause.
    Broken,
    /// Commands fail at once; an attempt to connect is under way.
    Probing,
}

#[cfg(feature = "redis")]
impl From<crate::link::Health> for LinkHealth {
    fn from(health: crate::link::Health) -> Self {
        use crate::link::Phase;

        let failures = health.failures;
        Self {
            name: health.name,
            node: health.node,
            state: match health.phase {
                Phase::Idle => LinkState::Idle,
                Phase::Connecting => LinkState::Connecting,
                Phase::Connected => LinkState::Connected,
                Phase::Broken => LinkState::Broken,
                Phase::Probing => LinkState::Probing,
            },
            since: health.since.elapsed(),
            last_error: health.last_error.map(|error| error.to_string()),
            latency: health.latency,
            failures: failures.unavailable
                + failures.timed_out
                + failures.lost
                + failures.refused
                + failures.garbled,
        }
    }
}
