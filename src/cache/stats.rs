//! What has happened in this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A reading of a cache's counters and gauges. Counters only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests answered by a fresh local entry.
    pub hits: u64,
    /// Requests answered by a stale entry.
    pub stale: u64,
    /// Requests answered by an entry that the shared tier gave or confirmed, or would have if it were
    /// there.
    pub shared_hits: u64,
    /// Requests answered by another request's build.
    pub collapsed: u64,
    /// Runs of the inner service that were not bypasses.
    pub builds: u64,
    /// Requests that took no part.
    pub bypassed: u64,
    /// Requests that shared the failure of another one's build.
    pub failed: u64,
    /// Requests whose wait timeout passed, or that were turned away by a full flight.
    pub timed_out: u64,
    /// Failures of the shared tier, by kind.
    pub shared_failures: SharedFailures,
    /// How often the shared tier was not asked for an entry, or not given one, since it had failed too often
    /// just before.
    pub shared_skipped: u64,
    /// Leases that were found to be lost: what was built under them is not stored.
    pub lost_leases: u64,
    /// Builds that the shared tier refused to store, since a purge had overtaken them, or their lease had been
    /// lost unnoticed.
    pub fenced_fills: u64,
    /// Messages of other processes that were not believed: not signed as
    /// [`event_secret`](crate::CacheBuilder::event_secret) demands, or of an unknown form.
    pub doubtful_events: u64,
    /// Local entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flights under way.
    pub flights: usize,
    /// Requests in them.
    pub waiters: usize,
    /// Bytes of bodies that are being built.
    pub building_bytes: usize,
}

/// How often the shared tier failed, by kind. Counters only ever grow.
///
/// None of these is a failed request: it goes on without the shared tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedFailures {
    /// There was no connection, or the server was out of service: it was loading, say, or only reads. In a
    /// Cluster, also that of the one part that was asked.
    pub unreachable: u64,
    /// No answer came in time.
    pub timed_out: u64,
    /// The connection ended before the answer.
    pub lost: u64,
    /// So many commands were under way that it was not even asked.
    pub overloaded: u64,
    /// The server refused the command: it is not permitted, say.
    pub refused: u64,
    /// The server took no lease or no entry: its memory is full, say.
    pub out_of_memory: u64,
    /// The answer made no sense.
    pub garbled: u64,
    /// An entry could not be read or belonged to another key, and counted as a miss.
    pub unusable: u64,
}

impl SharedFailures {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.unreachable
            + self.timed_out
            + self.lost
            + self.overloaded
            + self.refused
            + self.out_of_memory
            + self.garbled
            + self.unusable
    }
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    hits: AtomicU64,
    stale: AtomicU64,
    shared_hits: AtomicU64,
    collapsed: AtomicU64,
    builds: AtomicU64,
    bypassed: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
}

fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn hit(&self) {
        one_more(&self.hits);
    }

    pub(crate) fn stale(&self) {
        one_more(&self.stale);
    }

    pub(crate) fn shared_hit(&self) {
        one_more(&self.shared_hits);
    }

    pub(crate) fn collapsed(&self) {
        one_more(&self.collapsed);
    }

    pub(crate) fn built(&self) {
        one_more(&self.builds);
    }

    pub(crate) fn bypassed(&self) {
        one_more(&self.bypassed);
    }

    pub(crate) fn failed(&self) {
        one_more(&self.failed);
    }

    pub(crate) fn timed_out(&self) {
        one_more(&self.timed_out);
    }

    pub(super) fn read(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            hits: read(&self.hits),
            stale: read(&self.stale),
            shared_hits: read(&self.shared_hits),
            collapsed: read(&self.collapsed),
            builds: read(&self.builds),
            bypassed: read(&self.bypassed),
            failed: read(&self.failed),
            timed_out: read(&self.timed_out),
            ..Stats::default()
        }
    }
}
