//! A flight's way: claim, wait or build, land, fill or release.

use crate::{
    process::{
        Beside, Build, Chance, Copied, Door, Filled, Flight, Held, Kind, Marked, Memo, Parcel,
        Phase, Reply, Request, Tier, Wish,
    },
    requests::{Answer, News},
    rules::Rule,
    state::{Age, Entry, Failure, Marker, Slot, Time},
    wire::{Mark, Script},
    world::{StaleMay, World},
};

/// How a handler's response is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Storable,
    Shared,
    Uncacheable,
    Failed,
}

type At = (usize, usize);

impl World {
    /// The flight acts on the reply that it waited for.
    pub(crate) fn deliver(&mut self, at: At) {
        self.process(at.0).tier = Tier::Works;
        match self.flight(at).phase {
            Phase::Claimed {
                token,
                behind,
                chance,
                reply,
            } => {
                if let Reply::Failed { failure, .. } = reply {
                    let awaited = failure.began >= behind;
                    self.require(
                        awaited,
                        "I13: one was told of a failure that it never waited for",
                    );
                }
                if !self.has(Rule::SampleBeforeClaim) {
                    self.flight(at).since = None;
                }
                self.claimed(at, token, (behind, chance), reply);
            }
            Phase::Filled { entry, reply, .. } => {
                if reply == Filled::Stored || !self.has(Rule::FencedOffNowhere) {
                    let stored = reply == Filled::Stored;
                    self.require(stored, "I7: what was fenced off went into the local tier");
                    let since = self.flight(at).since;
                    self.keep(at, entry, since);
                }
                self.end(at);
            }
            Phase::Released { mark, reply, .. } => {
                if let Some(beside) = reply {
                    self.remember(at, mark, beside);
                }
                self.end(at);
            }
            _ => {}
        }
    }

    fn claimed(&mut self, at: At, token: u8, (behind, chance): (Time, Chance), reply: Reply) {
        match reply {
            Reply::Fresh(entry) => self.found(at, entry, (behind, chance)),
            Reply::Leased {
                began,
                stale,
                marked,
            } => {
                self.require(
                    chance == Chance::Open || marked == Marked::HitForMiss,
                    "I13: one who waited for a failed build built in turn",
                );
                self.note_stale(at, stale);
                if marked == Marked::HitForMiss && self.flight(at).parcel == Parcel::Refresh {
                    return self.give_back(at);
                }
                let source = self.state.clock;
                let over = stale.map_or(0, |entry| entry.token);
                let slot = self.flight(at).slot;
                let ours = self.lease(slot).is_some_and(|lease| lease.token == token);
                let held = if ours { Held::Ours } else { Held::Expired };
                self.build(
                    at,
                    Build {
                        token,
                        began,
                        over,
                        source,
                        held,
                    },
                    marked,
                );
            }
            Reply::Busy {
                behind,
                stale,
                marked,
            } => self.busy(at, behind, stale, marked),
            Reply::Failed { failure, stale } => {
                let held = self.flight(at).stale;
                let stale = held
                    .or(stale)
                    .filter(|_| self.flight(at).since != Some(Kind::Hard));
                let answer = match stale {
                    Some(entry) if self.has(Rule::StaleBeforeFailure) => Answer::Stale(entry),
                    _ => Answer::Failed(failure),
                };
                let waits = self.state.processes[at.0].waits_in(at.1);
                self.require(
                    !waits || stale.is_none() || matches!(answer, Answer::Stale(_)),
                    "I13: a failure was told though a stale entry could stand in",
                );
                self.tell(at, News::Answer(answer));
                self.end(at);
            }
            Reply::Refused if self.flight(at).parcel == Parcel::Refresh => self.end(at),
            Reply::Refused => self.build_without(at, Held::Never),
        }
    }

    /// The shared tier has a fresh entry, which is not what everybody wants.
    fn found(&mut self, at: At, entry: Entry, (behind, chance): (Time, Chance)) {
        let Flight {
            since,
            wish,
            parcel,
            ..
        } = *self.flight(at);
        self.keep(at, entry, since);
        if behind != 0 {
            self.tell(at, News::Answer(Answer::Entry(entry)));
        } else if wish == Wish::New && parcel != Parcel::Refresh {
            self.flight(at).refused = entry.token;
            return self.ask(at, behind, chance);
        } else {
            self.tell(at, News::Found(entry));
        }
        self.end(at);
    }

    fn note_stale(&mut self, at: At, stale: Option<Entry>) {
        let flight = self.flight(at);
        let stale = stale.filter(|_| flight.since != Some(Kind::Hard));
        flight.stale = stale.or(flight.stale);
    }

    fn busy(&mut self, at: At, behind: u8, stale: Option<Entry>, marked: Marked) {
        self.note_stale(at, stale);
        let Flight { parcel, wish, .. } = *self.flight(at);
        if marked == Marked::HitForMiss && parcel == Parcel::Refresh {
            return self.end(at);
        }
        if marked == Marked::HitForMiss && self.has(Rule::FreeUnderMarker) {
            return self.set_free(at);
        }
        let may_answer = self.setting.stale == StaleMay::Answer && wish == Wish::Any;
        let stale = self
            .flight(at)
            .stale
            .filter(|_| may_answer && stale.is_some());
        if let Some(entry) = stale
            && self.has(Rule::StaleWhileBusy)
        {
            let entry = Entry {
                age: Age::Stale,
                ..entry
            };
            self.tell(at, News::Answer(Answer::Stale(entry)));
            return self.end(at);
        }
        let waits = self.state.processes[at.0].waits_in(at.1);
        if !waits && parcel != Parcel::Refresh {
            return self.end(at);
        }
        self.require(
            stale.is_none(),
            "rule 11: one waits beside a stale entry that may answer",
        );
        self.require(
            marked == Marked::No,
            "I14: one waits under a hit-for-miss marker",
        );
        self.flight(at).phase = Phase::Waiting {
            behind,
            chance: Chance::Open,
        };
    }

    /// Another process probes; everyone here is free, the starter through its own build.
    pub(crate) fn set_free(&mut self, at: At) {
        self.flight(at).set_door_free();
        self.tell(at, News::Free);
        self.build_without(at, Held::Refused);
    }

    fn build_without(&mut self, at: At, held: Held) {
        let source = self.state.clock;
        self.build(
            at,
            Build {
                token: 0,
                over: 0,
                began: source,
                source,
                held,
            },
            Marked::No,
        );
    }

    fn build(&mut self, at: At, build: Build, marked: Marked) {
        if marked == Marked::HitForMiss && self.has(Rule::FreeUnderMarker) {
            self.flight(at).set_door_free();
            self.tell(at, News::Free);
        }
        let taken_back = self.flight(at).parcel == Parcel::None;
        self.flight(at).phase = Phase::Building(build);
        if taken_back {
            self.give_back(at);
        }
    }

    /// The flight ends with nothing; those in it start over.
    pub(crate) fn give_back(&mut self, at: At) {
        if self.flight(at).token() != 0 {
            let mark = Mark::Nothing;
            self.send(at, Script::Release { mark, over: 0 });
        }
        self.end(at);
    }

    /// The build has ended.
    pub(crate) fn land(&mut self, at: At, build: Build, outcome: Outcome) {
        match outcome {
            Outcome::Storable => self.store(at, build),
            Outcome::Shared => {
                self.tell(at, News::Answer(Answer::Shared(build.source)));
                self.give_back(at);
            }
            Outcome::Uncacheable => {
                self.tell(at, News::Free);
                self.flight(at).set_door_free();
                self.answer_starter(at);
                self.release_with(at, build, Mark::HitForMiss);
            }
            Outcome::Failed => {
                let Build {
                    token,
                    began,
                    source,
                    ..
                } = build;
                let failure = Failure {
                    token,
                    began,
                    source,
                };
                let stale = self.flight(at).stale;
                self.tell(
                    at,
                    News::Answer(stale.map_or(Answer::Failed(failure), Answer::Stale)),
                );
                self.release_with(at, build, Mark::Failed(failure));
            }
        }
    }

    /// The one whose request was built has its own response.
    fn answer_starter(&mut self, (p, f): At) {
        for request in &mut self.process(p).requests {
            if matches!(request, Request::Waiting(seat) if usize::from(seat.flight) == f) {
                *request = Request::Gone;
            }
        }
    }

    fn store(&mut self, at: At, build: Build) {
        let Build {
            token,
            began,
            source,
            held,
            ..
        } = build;
        let key = self.key(at.0);
        let entry = Entry {
            token,
            began,
            source,
            key,
            age: Age::Fresh,
        };
        let marked = self.state.server.marker == Marker::HitForMiss;
        let cleared = !(marked && held == Held::Unasked);
        self.require(cleared, "I14: a storable response did not clear the marker");
        if self.flight(at).door == Door::Free {
            self.answer_starter(at);
        }
        self.tell(at, News::Answer(Answer::Entry(entry)));
        match held {
            Held::Never | Held::Unasked | Held::Refused => {
                let overtaken = self.flight(at).overtaken;
                self.keep(at, entry, overtaken);
                self.end(at);
            }
            Held::Lost => self.end(at),
            Held::Ours | Held::Expired => {
                self.flight(at).since = None;
                self.flight(at).phase = Phase::Filling { build, entry };
                self.send(at, Script::Fill(entry));
            }
        }
    }

    fn release_with(&mut self, at: At, build: Build, mark: Mark) {
        // Without the tier nobody can know.
        let fresh = build.held != Held::Never && self.state.server.has_fresh_beside(build.over);
        let beside = if fresh {
            Beside::FreshEntry
        } else {
            Beside::Nothing
        };
        if build.held == Held::Never || !self.has(Rule::MemoOnlyIfOurs) {
            self.remember(at, mark, beside);
        }
        if build.token == 0 {
            return self.end(at);
        }
        self.flight(at).phase = Phase::Releasing { build, mark };
        let over = build.over;
        self.send(at, Script::Release { mark, over });
    }

    /// Makes a memo of what a build has taught.
    fn remember(&mut self, at: At, mark: Mark, beside: Beside) {
        let overtaken = self.flight(at).overtaken;
        if self.flight(at).slot == Slot::Extra {
            return;
        }
        self.process(at.0).memo = match mark {
            Mark::Nothing => return,
            Mark::HitForMiss => Memo::HitForMiss,
            Mark::Failed(failure) => Memo::Failed {
                failure,
                overtaken,
                beside,
            },
        };
    }

    /// Puts an entry into the local tier, with the purges that have reached it.
    fn keep(&mut self, at: At, entry: Entry, overtaken: Option<Kind>) {
        let overtaken = overtaken.filter(|_| self.has(Rule::LocalFence));
        let process = self.process(at.0);
        process.local = Some(Copied { entry, overtaken });
        process.memo = Memo::None;
    }

    /// The server has not answered in time.
    pub(crate) fn time_out(&mut self, at: At) {
        self.process(at.0).tier = Tier::Fails;
        match self.flight(at).phase {
            Phase::Claiming { behind, .. } | Phase::Claimed { behind, .. } => {
                if self.has(Rule::Undo) {
                    self.send(at, Script::Undo);
                }
                if behind != 0 && self.flight(at).parcel == Parcel::Refresh {
                    return self.end(at);
                }
                self.build_without(at, Held::Never);
            }
            Phase::Filling { entry, .. } | Phase::Filled { entry, .. } => {
                let overtaken = self.flight(at).overtaken;
                self.keep(at, entry, overtaken);
                self.give_back(at);
            }
            Phase::Releasing { mark, .. } | Phase::Released { mark, .. } => {
                self.remember(at, mark, Beside::Nothing);
                self.end(at);
            }
            _ => {}
        }
    }

    /// Removes a flight; whoever is still in it starts over.
    pub(crate) fn end(&mut self, at: At) {
        self.tell(at, News::Nothing);
        self.process(at.0).flights[at.1] = None;
    }
}
