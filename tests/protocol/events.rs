//! What reaches a process, or happens to it: purges, events, gaps, and the end of its life.

use crate::{
    process::{
        Event, Flight, Floor, Kind, Life, Memo, Phase, Process, Purging, Reply, Request,
        Subscription, Verdict,
    },
    rules::Rule,
    state::{Age, MAIL, Marker, Slot},
    wire::{Message, Run, Script},
    world::World,
};

impl World {
    /// Someone purges here: first this process, then the tier.
    pub(crate) fn purge_from(&mut self, p: usize, kind: Kind) {
        overtake(self.process(p), kind);
        self.process(p).purging = Purging::Asked(kind);
        let from = u8::try_from(p).expect("few processes");
        let script = Script::Purge(kind);
        self.state.wire.send(Message {
            from,
            token: 0,
            slot: Slot::Build,
            script,
            run: Run::Once,
        });
    }

    /// The purge returns to the one who asked for it.
    pub(crate) fn purge_returns(&mut self, p: usize) {
        let again = self.has(Rule::PurgeAgainAfterTier);
        let process = self.process(p);
        if let Purging::Done(kind, at) = process.purging {
            if again {
                overtake(process, kind);
            }
            handle(&mut process.handled, kind, at);
        }
        process.purging = Purging::No;
    }

    /// The process reads its next event.
    pub(crate) fn read_mail(&mut self, p: usize) {
        let own = self.has(Rule::HeedOwnEvents);
        let process = self.process(p);
        let Some(event) = process.mail[0].take() else {
            return;
        };
        process.mail.rotate_left(1);
        match event {
            Event::Purged { kind, at, by } => {
                if own || usize::from(by) != p {
                    overtake(process, kind);
                }
                handle(&mut process.handled, kind, at);
            }
            Event::Landed(verdict) => self.wake(p, verdict),
        }
    }

    fn wake(&mut self, p: usize, verdict: Verdict) {
        for f in 0..self.state.processes[p].flights.len() {
            let Some(flight) = self.state.processes[p].flights[f] else {
                continue;
            };
            let Phase::Waiting { behind, chance } = flight.phase else {
                continue;
            };
            if verdict == Verdict::Uncacheable && !self.has(Rule::EventsOnlyWake) {
                let marked = self.state.server.marker == Marker::HitForMiss;
                self.require(
                    marked,
                    "I1: everybody was set free beside a lease, without a marker",
                );
                self.set_free((p, f));
            } else {
                self.ask((p, f), behind, chance);
            }
        }
    }

    /// The process sees that events may have been missed.
    pub(crate) fn notice_gap(&mut self, p: usize) {
        let Floor { hard, soft, .. } = self.records();
        let detach = self.has(Rule::DetachOnGap);
        let process = self.process(p);
        process.subscription = Subscription::Gap;
        process.handled = Floor {
            hard,
            soft,
            known: 0,
        };
        if detach {
            for flight in process.flights.iter_mut().flatten() {
                flight.overtaken = Some(Kind::Hard);
                flight.since = Some(Kind::Hard);
                flight.stale = None;
            }
            if let Memo::Failed { overtaken, .. } = &mut process.memo {
                *overtaken = Some(Kind::Hard);
            }
        }
    }

    /// Events come in again: whatever is older counts as purged.
    pub(crate) fn resubscribe(&mut self, p: usize) {
        let records = self.records();
        let drop = self.has(Rule::DropAfterGap);
        let process = self.process(p);
        process.subscription = Subscription::Live;
        process.handled = records;
        if drop {
            overtake(process, Kind::Hard);
        }
    }

    fn records(&self) -> Floor {
        Floor {
            hard: self.state.server.purged,
            soft: self.state.server.softened,
            known: 0,
        }
    }

    pub(crate) fn lose_events(&mut self, p: usize) {
        let process = self.process(p);
        process.subscription = Subscription::Broken;
        process.mail = [None; MAIL];
    }

    pub(crate) fn crash(&mut self, p: usize) {
        let process = self.process(p);
        *process = Process {
            life: Life::Crashed,
            ..Process::NEW
        };
    }

    /// The entry's freshness ends, in all its copies.
    pub(crate) fn age(&mut self) {
        let Some(aged) = &mut self.state.server.entry else {
            return;
        };
        aged.age = Age::Stale;
        let token = aged.token;
        for process in &mut self.state.processes {
            if let Some(copy) = &mut process.local
                && copy.entry.token == token
            {
                copy.entry.age = Age::Stale;
            }
            for flight in process.flights.iter_mut().flatten() {
                if let Phase::Claimed {
                    reply: Reply::Fresh(entry),
                    ..
                }
                | Phase::Filled { entry, .. }
                | Phase::Filling { entry, .. } = &mut flight.phase
                    && entry.token == token
                {
                    entry.age = Age::Stale;
                }
            }
        }
    }

    /// The marker's time to live passes; one of a failure lives longer than a poll takes.
    pub(crate) fn may_forget_marker(&self) -> bool {
        let polled = |process: &Process| {
            process
                .flights
                .iter()
                .flatten()
                .any(Flight::has_failed_ahead)
        };
        match self.state.server.marker {
            Marker::None => false,
            Marker::HitForMiss => true,
            Marker::Failed(_) => {
                !self.has(Rule::PollsBelowMemo) || !self.state.processes.iter().any(polled)
            }
        }
    }

    pub(crate) fn forget_memo(&mut self, p: usize) {
        self.process(p).memo = Memo::None;
    }

    /// A request that nobody has made yet comes.
    pub(crate) fn next_unborn(&self, p: usize) -> Option<usize> {
        self.state.processes[p]
            .requests
            .iter()
            .position(|request| *request == Request::Unborn)
    }
}

/// A purge reaches all that has begun in a process.
fn overtake(process: &mut Process, kind: Kind) {
    if let Some(copy) = &mut process.local {
        copy.overtaken = copy.overtaken.max(Some(kind));
    }
    if let Memo::Failed { overtaken, .. } = &mut process.memo {
        *overtaken = (*overtaken).max(Some(kind));
    }
    for flight in process.flights.iter_mut().flatten() {
        flight.overtaken = flight.overtaken.max(Some(kind));
        flight.since = flight.since.max(Some(kind));
        if kind == Kind::Hard {
            flight.stale = None;
        }
    }
}

/// Ghost: requests that come from now on are newer than this purge.
fn handle(floor: &mut Floor, kind: Kind, at: u8) {
    let handled = match kind {
        Kind::Hard => &mut floor.hard,
        Kind::Soft => &mut floor.soft,
    };
    *handled = at.max(*handled);
}
