//! What `health()` tells of one link.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    error::{Error, Kind},
    state::Phase,
};

/// The state of one link.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    pub(crate) name: &'static str,
    /// Where it leads, if it is one of several servers.
    pub(crate) node: Option<String>,
    pub(crate) phase: Phase,
    /// Since when the link is connected, or since when it is down.
    pub(crate) since: Instant,
    /// Why the link last broke.
    pub(crate) last_error: Option<Arc<Error>>,
    /// How long the last command that was answered took.
    pub(crate) latency: Option<Duration>,
    pub(crate) failures: Failures,
}

/// How many commands failed, by kind, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) unavailable: u64,
    pub(crate) timed_out: u64,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    pub(crate) garbled: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    unavailable: AtomicU64,
    timed_out: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
    garbled: AtomicU64,
    /// Of the last answer, in microseconds, plus one: 0 is "none yet".
    latency: AtomicU64,
}

impl Counters {
    pub(super) fn failed(&self, kind: Kind) {
        let counter = match kind {
            Kind::Unavailable => &self.unavailable,
            Kind::TimedOut => &self.timed_out,
            Kind::Lost => &self.lost,
            Kind::Refused => &self.refused,
            Kind::Garbled => &self.garbled,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn answered(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latency.store(micros.saturating_add(1), Relaxed);
    }

    pub(super) fn failures(&self) -> Failures {
        Failures {
            unavailable: self.unavailable.load(Relaxed),
            timed_out: self.timed_out.load(Relaxed),
            lost: self.lost.load(Relaxed),
            refused: self.refused.load(Relaxed),
            garbled: self.garbled.load(Relaxed),
        }
    }

    pub(super) fn latency(&self) -> Option<Duration> {
        let micros = self.latency.load(Relaxed).checked_sub(1)?;
        Some(Duration::from_micros(micros))
    }
}
