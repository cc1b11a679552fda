//! What has become of what the tier was asked.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Fault;
use crate::cache::{SharedFailures, Stats};

#[derive(Debug, Default)]
pub(super) struct Counts {
    unreachable: AtomicU64,
    timed_out: AtomicU64,
    lost: AtomicU64,
    overloaded: AtomicU64,
    refused: AtomicU64,
    out_of_memory: AtomicU64,
    garbled: AtomicU64,
    skipped: AtomicU64,
    lost_leases: AtomicU64,
    fenced: AtomicU64,
}

fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
    pub(super) fn failed(&self, fault: Fault) {
        one_more(match fault {
            Fault::Unreachable | Fault::Partial => &self.unreachable,
            Fault::TimedOut => &self.timed_out,
            Fault::Lost => &self.lost,
            Fault::Overloaded => &self.overloaded,
            Fault::Refused => &self.refused,
            Fault::OutOfMemory => &self.out_of_memory,
            Fault::Garbled => &self.garbled,
        });
    }

    pub(super) fn skipped(&self) {
        one_more(&self.skipped);
    }

    pub(super) fn lost_lease(&self) {
        one_more(&self.lost_leases);
    }

    pub(super) fn fenced(&self) {
        one_more(&self.fenced);
    }

    /// `stats` with these counters, and the entries that were of no use.
    pub(super) fn read(&self, unusable: u64, stats: Stats) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            shared_failures: SharedFailures {
                unreachable: read(&self.unreachable),
                timed_out: read(&self.timed_out),
                lost: read(&self.lost),
                overloaded: read(&self.overloaded),
                refused: read(&self.refused),
                out_of_memory: read(&self.out_of_memory),
                garbled: read(&self.garbled),
                unusable,
            },
            shared_skipped: read(&self.skipped),
            lost_leases: read(&self.lost_leases),
            fenced_fills: read(&self.fenced),
            ..stats
        }
    }
}
