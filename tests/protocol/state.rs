//! What there is at one moment: the server, the processes, what is on its way between them, and
//! what may still go wrong.
//!
//! One clock orders everything: it moves with each lease and each purge. What is ghost (the model
//! knows it to check, the protocol does not) is marked so.

use crate::{
    process::Process,
    wire::{Run, Wire},
};

pub(crate) const PROCESSES: usize = 3;
pub(crate) const FLIGHTS: usize = 3;
pub(crate) const REQUESTS: usize = 2;
pub(crate) const MAIL: usize = 6;

/// Whoever asks more often than that never ends.
pub(crate) const TOKENS: Token = 15;

/// A claim's token; 0 is none.
pub(crate) type Token = u8;
pub(crate) type Time = u8;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) server: Server,
    pub(crate) processes: [Process; PROCESSES],
    pub(crate) wire: Wire,
    pub(crate) faults: Faults,
    pub(crate) tokens: Token,
    pub(crate) clock: Time,
}

/// How often each fault may still happen, and how many in all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) each: [u8; Fault::COUNT],
    pub(crate) in_all: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Fault {
    Purge,
    SoftPurge,
    Timeout,
    Twice,
    Expiry,
    Crash,
    Loss,
    Failure,
    Uncacheable,
    Shared,
    Ageing,
    Leaving,
    WaitTimeout,
    Forgetting,
}

impl Fault {
    pub(crate) const COUNT: usize = 14;
}

impl Faults {
    pub(crate) fn left(&self, fault: Fault) -> bool {
        self.in_all > 0 && self.each[fault as usize] > 0
    }

    pub(crate) fn spend(&mut self, fault: Fault) {
        self.each[fault as usize] -= 1;
        self.in_all -= 1;
        if self.in_all == 0 {
            // States that allow the same are the same.
            *self = Self::default();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Server {
    pub(crate) entry: Option<Entry>,
    pub(crate) leases: [Option<Lease>; 2],
    pub(crate) marker: Marker,
    /// One bit for each token that must not be granted any more.
    pub(crate) tombstones: u16,
    /// The purge record: when the last purge and the last soft purge ran.
    pub(crate) purged: Time,
    pub(crate) softened: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lease {
    pub(crate) token: Token,
    pub(crate) began: Time,
    /// Ghost.
    pub(crate) owner: u8,
    /// Ghost: how it was granted.
    pub(crate) run: Run,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) token: Token,
    pub(crate) began: Time,
    /// Ghost: when its handler was called.
    pub(crate) source: Time,
    /// Which of two colliding keys it is for.
    pub(crate) key: u8,
    pub(crate) age: Age,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) enum Age {
    Fresh,
    Stale,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Marker {
    #[default]
    None,
    HitForMiss,
    Failed(Failure),
}

/// A build that failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct Failure {
    pub(crate) token: Token,
    pub(crate) began: Time,
    pub(crate) source: Time,
}

/// Which of a key's leases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Default)]
pub(crate) enum Slot {
    #[default]
    Build,
    Extra,
}

impl Server {
    /// Whether what began then has not been purged since.
    pub(crate) fn is_current(&self, began: Time) -> bool {
        began > self.purged && began > self.softened
    }

    /// Whether there is a fresh entry other than this one.
    pub(crate) fn has_fresh_beside(&self, known: Token) -> bool {
        self.entry.is_some_and(|entry| {
            entry.age == Age::Fresh && entry.token != known && self.is_current(entry.began)
        })
    }
}
