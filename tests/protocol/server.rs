//! The server: each script is one atomic step.

use crate::{
    process::{
        Beside, Chance, Event, Filled, Flight, Held, Kind, Marked, Phase, Purging, Reply,
        Subscription, Verdict,
    },
    rules::Rule,
    state::{Age, Entry, Failure, Lease, Marker, PROCESSES, Slot, Time, Token},
    wire::{Mark, Message, Script},
    world::{PurgeBy, World},
};

/// Whether the caller hears of a script's outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hearing {
    Hears,
    Deaf,
}

impl World {
    pub(crate) fn execute(&mut self, message: Message, hearing: Hearing) {
        match message.script {
            Script::Claim {
                behind,
                key,
                refused,
            } => {
                let reply = self.claim(message, behind, (key, refused));
                self.reply(message, hearing, |phase| match *phase {
                    Phase::Claiming {
                        token,
                        behind,
                        chance,
                    }
                    | Phase::Claimed {
                        token,
                        behind,
                        chance,
                        ..
                    } => Some(Phase::Claimed {
                        token,
                        behind,
                        chance,
                        reply,
                    }),
                    _ => None,
                });
            }
            Script::Fill(entry) => {
                let reply = self.fill(message, entry);
                self.reply(message, hearing, |phase| match *phase {
                    Phase::Filling { build, entry } | Phase::Filled { build, entry, .. } => {
                        Some(Phase::Filled {
                            build,
                            entry,
                            reply,
                        })
                    }
                    _ => None,
                });
            }
            Script::Release { mark, over } => {
                let reply = self.release(message, mark, over);
                self.reply(message, hearing, |phase| match *phase {
                    Phase::Releasing { build, mark } | Phase::Released { build, mark, .. } => {
                        Some(Phase::Released { build, mark, reply })
                    }
                    _ => None,
                });
            }
            Script::Undo => self.undo(message),
            Script::Purge(kind) => self.purge(message, kind, hearing),
        }
    }

    /// Hands a reply to the flight that waits for it, if it still does.
    fn reply(
        &mut self,
        message: Message,
        hearing: Hearing,
        next: impl Fn(&Phase) -> Option<Phase>,
    ) {
        let flights = &mut self.process(message.from.into()).flights;
        let asking =
            |flight: &&mut Flight| flight.token() == message.token && flight.slot == message.slot;
        if hearing == Hearing::Hears
            && let Some(flight) = flights.iter_mut().flatten().find(asking)
            && let Some(phase) = next(&flight.phase)
        {
            flight.phase = phase;
        }
    }

    fn claim(&mut self, message: Message, behind: Time, sought: (u8, Token)) -> Reply {
        let reply = self.look(message.token, message.slot, behind, sought);
        let granted = matches!(reply, Reply::Leased { .. });
        let held = self
            .lease(message.slot)
            .is_some_and(|lease| lease.token == message.token);
        if granted && !held {
            let began = self.tick();
            let token = message.token;
            *self.lease(message.slot) = Some(Lease {
                token,
                began,
                owner: message.from,
                run: message.run,
            });
            let Reply::Leased { stale, marked, .. } = reply else {
                return reply;
            };
            return Reply::Leased {
                began,
                stale,
                marked,
            };
        }
        let waits = matches!(reply, Reply::Busy { .. });
        self.require(!(waits && held), "I12: one waits for its own lease");
        reply
    }

    /// What a claim for a key would be told, by one who refuses an entry; a lease that would be granted
    /// has not begun.
    pub(crate) fn look(
        &self,
        token: Token,
        slot: Slot,
        behind: Time,
        (key, refused): (u8, Token),
    ) -> Reply {
        let server = &self.state.server;
        let record = self.has(Rule::ClaimComparesRecord);
        let mut usable = server.entry;
        usable = usable.filter(|entry| !record || entry.began > server.purged);
        usable = usable.filter(|entry| !self.has(Rule::Proof) || entry.key == key);
        let usable = usable.map(|entry| {
            let soft = record && entry.began <= server.softened;
            Entry {
                age: if soft { Age::Stale } else { entry.age },
                ..entry
            }
        });
        let stale = match usable {
            Some(entry) if entry.age == Age::Fresh && entry.token != refused => {
                return Reply::Fresh(entry);
            }
            stale => stale,
        };
        let marked = match server.marker {
            Marker::HitForMiss => Marked::HitForMiss,
            Marker::Failed(failure) if self.is_told(failure, behind) => {
                return Reply::Failed { failure, stale };
            }
            Marker::Failed(_) | Marker::None => Marked::No,
        };
        if self.has(Rule::Tombstone) && server.tombstones & (1 << token) != 0 {
            return Reply::Refused;
        }
        match server.leases[slot as usize] {
            Some(lease) if lease.token == token && self.has(Rule::ClaimTwice) => Reply::Leased {
                began: lease.began,
                stale,
                marked,
            },
            Some(lease) => Reply::Busy {
                behind: lease.began,
                stale,
                marked,
            },
            None => Reply::Leased {
                began: 0,
                stale,
                marked,
            },
        }
    }

    /// Whether a failure is for one who waited for the lease that began at `behind`.
    fn is_told(&self, failure: Failure, behind: Time) -> bool {
        let awaited = !self.has(Rule::FailureOfTheAwaited) || failure.began >= behind;
        let current =
            !self.has(Rule::MarkerComparesRecord) || self.state.server.is_current(failure.began);
        self.has(Rule::FailureIsTold) && behind != 0 && awaited && current
    }

    fn fill(&mut self, message: Message, entry: Entry) -> Filled {
        let before = self.state.server.entry;
        let there = before.is_some_and(|stored| stored.token == message.token);
        if there && self.has(Rule::FillTwice) {
            return Filled::Stored;
        }
        let ours = self
            .lease(message.slot)
            .is_some_and(|lease| lease.token == message.token);
        let current = self.state.server.is_current(entry.began);
        let younger = before.is_none_or(|stored| stored.began <= entry.began);
        let stores = (ours || !self.has(Rule::FillOnlyIfOurs))
            && (current || !self.has(Rule::FillComparesRecord))
            && (younger || !self.has(Rule::YoungerStays));
        if stores {
            self.require(ours, "I7: a lost lease stored");
            self.require(
                current,
                "I6: what a purge had overtaken was stored in the shared tier",
            );
            self.require(younger, "rule 12: an older build replaced a younger one");
            self.state.server.entry = Some(entry);
            if self.has(Rule::StoredClearsMarker) {
                self.state.server.marker = Marker::None;
            }
            let cleared = self.state.server.marker == Marker::None;
            self.require(cleared, "I14: a marker outlived a storable response");
            self.nobody_failed();
        } else {
            self.require(
                !there,
                "rule 1: a fill was told that it is fenced off, and is stored",
            );
        }
        if ours && (stores || self.has(Rule::FencedFillFreesLease)) {
            *self.lease(message.slot) = None;
            self.publish(Event::Landed(Verdict::Other));
        }
        if stores {
            Filled::Stored
        } else {
            Filled::FencedOff
        }
    }

    /// Says whether the lease was the caller's.
    fn release(&mut self, message: Message, mark: Mark, over: Token) -> Option<Beside> {
        let lease = *self.lease(message.slot);
        let ours = lease.is_some_and(|lease| lease.token == message.token);
        let told_over = if self.has(Rule::RenewalIsTold) {
            over
        } else {
            0
        };
        let outdone =
            self.has(Rule::EntrySilencesFailure) && self.state.server.has_fresh_beside(told_over);
        if let Mark::Failed(failure) = mark
            && ours
            && !self.state.server.has_fresh_beside(over)
            && self.state.server.is_current(failure.began)
        {
            self.somebody_failed(failure.began);
        }
        let mark = if outdone { Mark::Nothing } else { mark };
        if lease.is_some() && (ours || !self.has(Rule::ReleaseOnlyIfOurs)) {
            *self.lease(message.slot) = None;
            self.mark(mark);
            let free = mark == Mark::HitForMiss;
            let verdict = if free {
                Verdict::Uncacheable
            } else {
                Verdict::Other
            };
            self.publish(Event::Landed(verdict));
        }
        let fresh = self.state.server.has_fresh_beside(over);
        (ours && !outdone).then_some(if fresh {
            Beside::FreshEntry
        } else {
            Beside::Nothing
        })
    }

    fn mark(&mut self, mark: Mark) {
        match mark {
            Mark::Nothing => {}
            Mark::HitForMiss => self.state.server.marker = Marker::HitForMiss,
            Mark::Failed(failure) => {
                self.state.server.marker = Marker::Failed(failure);
                let entry = self.state.server.entry;
                if !self.has(Rule::EntrySurvivesFailure) {
                    self.state.server.entry = None;
                }
                let kept = self.state.server.entry == entry;
                self.require(kept, "I13: a failure took the place of a stale entry");
            }
        }
    }

    fn undo(&mut self, message: Message) {
        if self
            .lease(message.slot)
            .is_some_and(|lease| lease.token == message.token)
        {
            *self.lease(message.slot) = None;
            self.publish(Event::Landed(Verdict::Other));
        }
        self.state.server.tombstones |= 1 << message.token;
    }

    fn purge(&mut self, message: Message, kind: Kind, hearing: Hearing) {
        let now = self.tick();
        let by_key = self.setting.purge == PurgeBy::Key;
        let server = &mut self.state.server;
        match kind {
            Kind::Hard => server.purged = now,
            Kind::Soft => server.softened = now,
        }
        if by_key {
            server.leases = [None; 2];
            server.marker = Marker::None;
            server.entry = match kind {
                Kind::Hard => None,
                Kind::Soft => server.entry.map(|entry| Entry {
                    age: Age::Stale,
                    ..entry
                }),
            };
        }
        self.nobody_failed();
        self.publish(Event::Purged {
            kind,
            at: now,
            by: message.from,
        });
        let purging = &mut self.process(message.from.into()).purging;
        if hearing == Hearing::Hears && *purging == Purging::Asked(kind) {
            *purging = Purging::Done(kind, now);
        }
    }

    /// A lease's time to live has passed.
    pub(crate) fn expire(&mut self, slot: Slot) {
        let Some(lease) = self.lease(slot).take() else {
            return;
        };
        if !self.has(Rule::Renewal) {
            // Nothing has gone wrong, so nothing excuses a second build.
            return;
        }
        for flight in self.flights() {
            if flight.slot == slot
                && let Some(build) = flight.build()
                && build.token == lease.token
                && build.held == Held::Ours
            {
                build.held = Held::Expired;
            }
        }
    }

    fn publish(&mut self, event: Event) {
        let wakes = matches!(event, Event::Landed(_));
        if wakes && self.has(Rule::EventsOnlyWake) && self.has(Rule::PollsBeneath) {
            // A poll finds whatever an event would wake for.
            return;
        }
        for p in 0..PROCESSES {
            let process = self.process(p);
            let registered = !wakes
                || process.flights.iter().flatten().any(|flight| {
                    matches!(
                        flight.phase,
                        Phase::Waiting { .. } | Phase::Claiming { .. } | Phase::Claimed { .. }
                    )
                });
            if process.is_alive() && process.subscription == Subscription::Live && registered {
                let free = process.mail.iter().position(Option::is_none);
                process.mail[free.expect("the mailbox has room for every event")] = Some(event);
            }
        }
    }

    pub(crate) fn lease(&mut self, slot: Slot) -> &mut Option<Lease> {
        &mut self.state.server.leases[slot as usize]
    }

    pub(crate) fn flights(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.state
            .processes
            .iter_mut()
            .flat_map(|process| process.flights.iter_mut().flatten())
    }

    /// Ghost: the build that some flights wait for has failed.
    fn somebody_failed(&mut self, began: Time) {
        for flight in self.flights() {
            if let Phase::Waiting { behind, chance } | Phase::Claiming { behind, chance, .. } =
                &mut flight.phase
                && *behind == began
            {
                *chance = Chance::Failed;
            }
        }
    }

    /// Ghost: that does not count any more.
    pub(crate) fn nobody_failed(&mut self) {
        for flight in self.flights() {
            if let Phase::Waiting { chance, .. }
            | Phase::Claiming { chance, .. }
            | Phase::Claimed { chance, .. } = &mut flight.phase
            {
                *chance = Chance::Open;
            }
        }
    }
}
