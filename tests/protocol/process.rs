//! What there is in one process: the local tier, the flights, and those who wait in them.

use std::hash::{Hash, Hasher};

use crate::{
    state::{Entry, FLIGHTS, Failure, MAIL, REQUESTS, Slot, Time, Token},
    wire::Mark,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// Of one that renews: the entry that was there when it came, which is not for it either.
    pub(crate) known: Token,
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
    /// The same since its last call was sent: what the server confirms is as new as that.
    pub(crate) since: Option<Kind>,
    pub(crate) parcel: Parcel,
    pub(crate) stale: Option<Entry>,
    pub(crate) wish: Wish,
    /// The fresh entry that will not do; 0: any will.
    pub(crate) refused: Token,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Door {
    Open,
    /// Nobody waits: all who come are free.
    Free,
    Sealed,
}

/// What a request, and the flight that it starts, is content with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Wish {
    Any,
    New,
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
    /// The entry that was there when the lease was granted; 0: none.
    pub(crate) over: Token,
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

// Written by hand: a crashed process is like any other.
impl Hash for Process {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.life.hash(hasher);
        if self.is_alive() {
            (
                self.subscription,
                self.tier,
                self.mail,
                self.local,
                self.memo,
            )
                .hash(hasher);
            (self.flights, self.requests, self.purging, self.handled).hash(hasher);
        }
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
        handled: Floor {
            hard: 0,
            soft: 0,
            known: 0,
        },
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

    /// Ghost: whether it has built this entry, or waits for its build: whoever comes shares that.
    pub(crate) fn is_about(&self, entry: Entry) -> bool {
        match self.phase {
            Phase::Claimed {
                reply: Reply::Busy { behind, .. },
                ..
            }
            | Phase::Claiming { behind, .. }
            | Phase::Claimed { behind, .. }
            | Phase::Waiting { behind, .. } => behind == entry.began,
            _ => self.token() == entry.token,
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
            } | Phase::Claimed {
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
