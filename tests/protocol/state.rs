//! What there is at one moment: the server, the processes, what is on its way between them, and
//! what may still go wrong.
//!
//! One clock orders everything: it moves with each lease and each purge. What is ghost (the model
//! knows it to check, the protocol does not) is marked so.

use crate::wire::{Mark, Run, Wire};

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

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Process {
    pub(crate) life: Life,
    pub(crate) subscription: Subscription,
    pub(crate) tier: Tier,
    pub(crate) mail: [Option<Event>; MAIL],
    pub(crate) local: Option<Copied>,
    pub(crate) memo: Memo,
    pub(crate) flights: [Option<Flight>; FLIGHTS],
    pub(crate) requests: [Request; REQUESTS],
    pub(crate) purging: Purging,
    /// Ghost: the last purges that have been handled here.
    pub(crate) handled: Floor,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Life {
    Alive,
    Crashed,
}

/// Whether events come in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Subscription {
    Live,
    /// They don't, and the process does not know it yet.
    Broken,
    /// The process knows.
    Gap,
}

/// How the last call to the server went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Tier {
    Works,
    Fails,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Event {
    Purged {
        kind: Kind,
        at: Time,
        by: u8,
    },
    /// A lease has been given back.
    Landed(Verdict),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Other,
    Uncacheable,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) enum Kind {
    Soft,
    Hard,
}

/// The purges that count for a request: what was built before them is not for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Floor {
    pub(crate) hard: Time,
    pub(crate) soft: Time,
}

/// An entry of the local tier, and which purge has been handled since its flight began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Copied {
    pub(crate) entry: Entry,
    pub(crate) overtaken: Option<Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Memo {
    None,
    HitForMiss,
    Failed {
        failure: Failure,
        overtaken: Option<Kind>,
        beside: Beside,
    },
}

/// Ghost: whether the tier had a fresh entry when the failure was remembered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Beside {
    Nothing,
    FreshEntry,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Purging {
    No,
    Asked(Kind),
    Done(Kind, Time),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Request {
    Unborn,
    /// It has to look, or to look again.
    Looking(Floor),
    Waiting(Seat),
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Seat {
    pub(crate) flight: u8,
    pub(crate) role: Role,
    pub(crate) floor: Floor,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Role {
    /// Its request is what gets built.
    Starter,
    Waiter,
    /// It joined a flight that a purge had overtaken.
    Latecomer,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Flight {
    pub(crate) slot: Slot,
    pub(crate) door: Door,
    /// Which purge has been handled here since it began.
    pub(crate) overtaken: Option<Kind>,
    pub(crate) parcel: Parcel,
    pub(crate) stale: Option<Entry>,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Door {
    Open,
    /// Nobody waits: all who come are free.
    Free,
    Sealed,
}

/// The request that gets built with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Parcel {
    Request,
    /// A request that has been answered already: nobody waits.
    Refresh,
    /// Its sender has taken it back.
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    /// The claim is on its way; `behind` is when the lease began that the flight waited for.
    Claiming {
        token: Token,
        behind: Time,
        chance: Chance,
    },
    Claimed {
        token: Token,
        behind: Time,
        chance: Chance,
        reply: Reply,
    },
    /// Another process builds.
    Waiting {
        behind: Time,
        chance: Chance,
    },
    Building(Build),
    Filling {
        build: Build,
        entry: Entry,
    },
    Filled {
        build: Build,
        entry: Entry,
        reply: Filled,
    },
    Releasing {
        build: Build,
        mark: Mark,
    },
    Released {
        build: Build,
        mark: Mark,
        reply: Option<Beside>,
    },
}

/// Ghost: what became of the build that a flight waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Chance {
    Open,
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Build {
    /// 0: without a lease.
    pub(crate) token: Token,
    pub(crate) began: Time,
    /// Ghost: when the handler was called.
    pub(crate) source: Time,
    pub(crate) held: Held,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Held {
    Ours,
    /// Ghost: it has run out, and the process does not know.
    Expired,
    /// The process knows.
    Lost,
    /// There never was one: the server did not answer.
    Never,
    /// There never was one: nobody asked for it.
    Unasked,
    /// There never was one: another process has it, under a marker.
    Refused,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Reply {
    Fresh(Entry),
    Leased {
        began: Time,
        stale: Option<Entry>,
        marked: Marked,
    },
    Busy {
        behind: Time,
        stale: Option<Entry>,
        marked: Marked,
    },
    Failed {
        failure: Failure,
        stale: Option<Entry>,
    },
    Refused,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Marked {
    No,
    HitForMiss,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Filled {
    Stored,
    FencedOff,
}

impl Server {
    /// Whether what began then has not been purged since.
    pub(crate) fn is_current(&self, began: Time) -> bool {
        began > self.purged && began > self.softened
    }

    /// Whether there is a fresh entry whose build began later.
    pub(crate) fn has_younger(&self, began: Time) -> bool {
        self.has_fresh() && self.entry.is_some_and(|entry| entry.began > began)
    }

    pub(crate) fn has_fresh(&self) -> bool {
        self.entry
            .is_some_and(|entry| entry.age == Age::Fresh && self.is_current(entry.began))
    }
}

impl Process {
    pub(crate) const NEW: Self = Self {
        life: Life::Alive,
        subscription: Subscription::Live,
        tier: Tier::Works,
        mail: [None; MAIL],
        local: None,
        memo: Memo::None,
        flights: [None; FLIGHTS],
        requests: [Request::Gone; REQUESTS],
        purging: Purging::No,
        handled: Floor { hard: 0, soft: 0 },
    };

    pub(crate) fn is_alive(&self) -> bool {
        self.life == Life::Alive
    }

    pub(crate) fn waits_in(&self, flight: usize) -> bool {
        self.requests.iter().any(|request| {
            matches!(request, Request::Waiting(seat) if usize::from(seat.flight) == flight)
        })
    }
}

impl Flight {
    /// The token that the flight answers for.
    pub(crate) fn token(&self) -> Token {
        match self.phase {
            Phase::Claiming { token, .. } | Phase::Claimed { token, .. } => token,
            Phase::Waiting { .. } => 0,
            Phase::Building(build)
            | Phase::Filling { build, .. }
            | Phase::Filled { build, .. }
            | Phase::Releasing { build, .. }
            | Phase::Released { build, .. } => build.token,
        }
    }

    /// Ghost: whether the build it waits for has failed, and it has not heard of it.
    pub(crate) fn has_failed_ahead(&self) -> bool {
        matches!(
            self.phase,
            Phase::Waiting {
                chance: Chance::Failed,
                ..
            } | Phase::Claiming {
                chance: Chance::Failed,
                ..
            }
        )
    }

    /// Nobody waits any more; a sealed flight stays sealed.
    pub(crate) fn set_door_free(&mut self) {
        if self.door == Door::Open {
            self.door = Door::Free;
        }
    }

    pub(crate) fn build(&mut self) -> Option<&mut Build> {
        match &mut self.phase {
            Phase::Building(build)
            | Phase::Filling { build, .. }
            | Phase::Filled { build, .. }
            | Phase::Releasing { build, .. }
            | Phase::Released { build, .. } => Some(build),
            Phase::Claiming { .. } | Phase::Claimed { .. } | Phase::Waiting { .. } => None,
        }
    }
}
