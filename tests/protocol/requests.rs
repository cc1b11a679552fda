//! A request's way: look, join a flight, be told, give up, go away.

use crate::{
    process::{
        Beside, Build, Chance, Copied, Door, Flight, Floor, Held, Kind, Memo, Parcel, Phase,
        Request, Role, Seat, Subscription, Tier, Wish,
    },
    rules::Rule,
    state::{Age, Entry, Failure, REQUESTS, Slot, Time},
    wire::{Mark, Script},
    world::{Renewing, StaleMay, World},
};

/// What a request is answered with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// As it is, or as stale as it is.
    Entry(Entry),
    Stale(Entry),
    /// A response that nobody stores.
    Shared(Time),
    Failed(Failure),
}

/// What a flight tells those in it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News {
    Answer(Answer),
    /// What was there already.
    Found(Entry),
    /// Everyone is free.
    Free,
    /// Start over.
    Nothing,
}

/// Whether a request found a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Done,
    /// The model has no room for one more flight: not now.
    NoRoom,
}

impl World {
    /// Ghost: what counts for a request that comes now.
    ///
    /// A process that is cut off serves what it has to the end of its life.
    pub(crate) fn floor(&self, p: usize, r: usize) -> Floor {
        let process = &self.state.processes[p];
        let gap = process.subscription == Subscription::Gap;
        let purges = if gap && process.tier == Tier::Fails {
            Floor::default()
        } else {
            process.handled
        };
        let there = self.state.server.entry;
        let flights = process.flights.iter().flatten();
        let mut known = there.filter(|_| self.wish(r) == Wish::New);
        for flight in flights {
            known = known.filter(|entry| !flight.is_about(*entry));
        }
        Floor {
            known: known.map_or(0, |entry| entry.token),
            ..purges
        }
    }

    /// What the local tier has, if it may be served in some way.
    fn usable(&self, p: usize) -> Option<Copied> {
        let local = self.state.processes[p]
            .local
            .filter(|_| self.trusts_local(p));
        local.filter(|copy| copy.overtaken != Some(Kind::Hard))
    }

    /// Looks into the local tier and the memos, then joins a flight.
    pub(crate) fn seek(&mut self, p: usize, r: usize, floor: Floor) -> Step {
        let process = self.state.processes[p];
        let usable = self.usable(p);
        if let Some(copy) = usable
            && self.wish(r) == Wish::Any
        {
            let fresh = copy.entry.age == Age::Fresh && copy.overtaken.is_none();
            if fresh || self.setting.stale == StaleMay::Answer {
                self.hit(p, r, copy, floor);
                return Step::Done;
            }
        }
        if let Memo::Failed {
            failure,
            overtaken,
            beside,
        } = process.memo
            && (overtaken.is_none() || !self.has(Rule::MemoComparesPurges))
        {
            self.require(
                beside == Beside::Nothing,
                "I13: a failure is remembered beside a fresh entry",
            );
            let stale = usable.map(|copy| Answer::Stale(copy.entry));
            self.answer((p, r), floor, stale.unwrap_or(Answer::Failed(failure)));
            return Step::Done;
        }
        self.join((p, r), Slot::Build, floor)
    }

    fn trusts_local(&self, p: usize) -> bool {
        let process = &self.state.processes[p];
        process.subscription != Subscription::Gap
            || process.tier == Tier::Fails
            || !self.has(Rule::DistrustInGap)
    }

    /// Answers from the local tier; a stale entry is refreshed by a flight that nobody waits for.
    fn hit(&mut self, p: usize, r: usize, copy: Copied, floor: Floor) {
        let process = &self.state.processes[p];
        let gap = process.subscription == Subscription::Gap && process.tier == Tier::Works;
        let purged = self.state.server.purged;
        self.require(
            !gap || copy.entry.source >= purged,
            "rule 9: an entry was served that had been purged in a known gap",
        );
        if copy.entry.age == Age::Fresh && copy.overtaken.is_none() {
            self.answer((p, r), floor, Answer::Entry(copy.entry));
            if self.setting.renewing == Renewing::Nobody {
                return;
            }
        } else {
            self.answer((p, r), floor, Answer::Stale(copy.entry));
        }
        let memo = self.state.processes[p].memo == Memo::None;
        if memo && self.open_flight(p, Slot::Build).is_none() {
            self.start(p, Slot::Build, (Parcel::Refresh, Wish::New));
        }
    }

    /// Joins the open flight, or starts one.
    pub(crate) fn join(&mut self, (p, r): (usize, usize), slot: Slot, floor: Floor) -> Step {
        if let Some(f) = self.open_flight(p, slot) {
            return self.enter((p, f), r, floor);
        }
        match self.start(p, slot, (Parcel::Request, self.wish(r))) {
            None => Step::NoRoom,
            Some(f) => {
                self.seat((p, r), f, Role::Starter, floor);
                Step::Done
            }
        }
    }

    /// The flight that takes newcomers.
    fn open_flight(&mut self, p: usize, slot: Slot) -> Option<usize> {
        let detach = self.has(Rule::DetachOnPurge);
        let flights = &mut self.process(p).flights;
        let f = flights.iter().position(|flight| {
            flight.is_some_and(|flight| flight.slot == slot && flight.door != Door::Sealed)
        })?;
        let flight = flights[f].as_mut()?;
        if flight.overtaken.is_some() && detach {
            flight.door = Door::Sealed;
            return None;
        }
        Some(f)
    }

    /// Takes a seat, or gets at once what the flight has told already.
    fn enter(&mut self, (p, f): (usize, usize), r: usize, floor: Floor) -> Step {
        let flight = *self.flight((p, f));
        let late = flight.overtaken.is_some();
        let told = match flight.phase {
            Phase::Filling { entry, .. } | Phase::Filled { entry, .. } if !late => {
                Some(Answer::Entry(entry))
            }
            Phase::Releasing {
                mark: Mark::Failed(failure),
                ..
            }
            | Phase::Released {
                mark: Mark::Failed(failure),
                ..
            } => Some(flight.stale.map_or(Answer::Failed(failure), Answer::Stale)),
            _ => None,
        };
        if let Some(answer) = told {
            self.answer((p, r), floor, answer);
        } else if flight.door == Door::Free {
            self.process(p).requests[r] = Request::Gone;
        } else {
            self.seat(
                (p, r),
                f,
                if late { Role::Latecomer } else { Role::Waiter },
                floor,
            );
        }
        Step::Done
    }

    fn seat(&mut self, (p, r): (usize, usize), f: usize, role: Role, floor: Floor) {
        let flight = u8::try_from(f).expect("few flights");
        self.process(p).requests[r] = Request::Waiting(Seat {
            flight,
            role,
            floor,
        });
    }

    fn start(&mut self, p: usize, slot: Slot, (parcel, wish): (Parcel, Wish)) -> Option<usize> {
        let f = self.process(p).flights.iter().position(Option::is_none)?;
        let process = self.state.processes[p];
        let marked = process.memo == Memo::HitForMiss && slot == Slot::Build;
        let free = marked && self.has(Rule::FreeUnderMarker);
        let local = self.usable(p);
        let flight = Flight {
            slot,
            door: if free { Door::Free } else { Door::Open },
            overtaken: None,
            since: None,
            parcel,
            stale: local.map(|copy| Entry {
                age: Age::Stale,
                ..copy.entry
            }),
            wish,
            refused: local
                .filter(|_| wish == Wish::New)
                .map_or(0, |copy| copy.entry.token),
            phase: Phase::Building(Build {
                token: 0,
                over: 0,
                began: self.state.clock,
                source: self.state.clock,
                held: Held::Unasked,
            }),
        };
        self.process(p).flights[f] = Some(flight);
        if !marked || self.has(Rule::ProbeClaims) {
            self.ask((p, f), 0, Chance::Open);
        }
        Some(f)
    }

    /// Sends a claim.
    pub(crate) fn ask(&mut self, at: (usize, usize), behind: Time, chance: Chance) {
        let token = self.fresh_token(at.0);
        self.flight(at).since = None;
        self.flight(at).phase = Phase::Claiming {
            token,
            behind,
            chance,
        };
        let key = self.key(at.0);
        let flight = *self.flight(at);
        let refused = self.refusal(&flight, behind);
        self.send(
            at,
            Script::Claim {
                behind,
                key,
                refused,
            },
        );
    }

    /// Answers a request, and checks that the answer is for it.
    pub(crate) fn answer(&mut self, (p, r): (usize, usize), floor: Floor, answer: Answer) {
        self.process(p).requests[r] = Request::Gone;
        let (source, soft) = match answer {
            Answer::Entry(entry) => (entry.source, entry.age == Age::Stale),
            Answer::Stale(entry) => (entry.source, true),
            Answer::Shared(source) => (source, false),
            Answer::Failed(failure) => (failure.source, false),
        };
        self.require(
            source >= floor.hard && (soft || source >= floor.soft),
            "I6: one who came after a purge got what was built before it",
        );
        if let Answer::Entry(entry) = answer {
            self.require(
                floor.known == 0 || entry.token != floor.known,
                "one that renews got what was there before it",
            );
        }
        if let Answer::Entry(entry) | Answer::Stale(entry) = answer {
            let key = self.key(p);
            self.require(entry.key == key, "I15: one got the response of another key");
        }
    }

    /// Tells those in a flight.
    pub(crate) fn tell(&mut self, (p, f): (usize, usize), news: News) {
        for r in 0..REQUESTS {
            let Request::Waiting(seat) = self.state.processes[p].requests[r] else {
                continue;
            };
            if usize::from(seat.flight) != f {
                continue;
            }
            let news = match news {
                News::Found(_) if self.wish(r) == Wish::New && self.has(Rule::FoundIsNotNew) => {
                    News::Nothing
                }
                News::Found(entry) => News::Answer(Answer::Entry(entry)),
                news => news,
            };
            match (news, seat.role) {
                // What was purged before it came is not for it.
                (News::Answer(Answer::Entry(_)), Role::Latecomer) | (News::Nothing, _) => {
                    self.process(p).requests[r] = Request::Looking(seat.floor);
                }
                (News::Answer(answer), _) => self.answer((p, r), seat.floor, answer),
                (News::Free, Role::Starter) => {}
                (News::Free | News::Found(_), _) => self.process(p).requests[r] = Request::Gone,
            }
        }
    }

    /// The wait has been long enough.
    pub(crate) fn give_up(&mut self, (p, r): (usize, usize), seat: Seat) -> Step {
        let f = usize::from(seat.flight);
        let flight = *self.flight((p, f));
        let local = self.usable(p);
        let stale = flight.stale.or_else(|| local.map(|copy| copy.entry));
        if seat.role == Role::Starter {
            self.flight((p, f)).parcel = Parcel::None;
        }
        let step = match stale {
            Some(entry) => {
                self.answer((p, r), seat.floor, Answer::Stale(entry));
                Step::Done
            }
            None if flight.slot == Slot::Extra => {
                self.process(p).requests[r] = Request::Gone;
                Step::Done
            }
            None => self.join((p, r), Slot::Extra, seat.floor),
        };
        self.end_if_idle((p, f));
        step
    }

    /// The client goes away; what it started is another step's concern.
    pub(crate) fn leave(&mut self, (p, r): (usize, usize), seat: Seat) {
        self.process(p).requests[r] = Request::Gone;
        self.end_if_idle((p, usize::from(seat.flight)));
    }

    /// A flight that only waits, for nobody, ends.
    fn end_if_idle(&mut self, (p, f): (usize, usize)) {
        let idle = matches!(self.flight((p, f)).phase, Phase::Waiting { .. });
        if idle && !self.state.processes[p].waits_in(f) {
            self.process(p).flights[f] = None;
        }
    }
}
