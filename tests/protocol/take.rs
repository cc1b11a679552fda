//! Taking a step.

use crate::{
    canon,
    process::{Door, Held, Phase, Purging, Request, Seat},
    requests::Step,
    server::Hearing,
    state::{Marker, State},
    steps::{Action, Cause, Heard},
    world::{Breach, Setting, World},
};

/// The state after `action`, and what it broke; `None` if the model has no room for it.
pub(crate) fn take(
    state: &State,
    setting: Setting,
    (action, cause): (Action, Cause),
) -> Option<(State, Option<Breach>)> {
    let mut world = World {
        state: state.clone(),
        setting,
        breach: None,
    };
    if let Cause::Fault(fault) = cause {
        world.state.faults.spend(fault);
    }
    let step = world.take(action);
    canon::forget(&mut world.state);
    (step == Step::Done).then_some((world.state, world.breach))
}

impl World {
    fn take(&mut self, action: Action) -> Step {
        match action {
            Action::Arrive(p) => return self.arrive(p.into()),
            Action::Seek(p, r) => return self.seek_again(p.into(), r.into()),
            Action::GiveUp(p, r) => {
                let at = (p.into(), r.into());
                let seat = self.seated(at);
                return self.give_up(at, seat);
            }
            Action::Leave(p, r) => {
                let at = (p.into(), r.into());
                let seat = self.seated(at);
                self.leave(at, seat);
            }
            Action::Cancel(p, r) => {
                let at = (p.into(), r.into());
                let seat = self.seated(at);
                self.leave(at, seat);
                self.give_back((at.0, seat.flight.into()));
            }
            Action::Deliver(p, f) => self.deliver((p.into(), f.into())),
            Action::TimeOut(p, f) => self.time_out((p.into(), f.into())),
            Action::Poll(p, f) => self.poll((p.into(), f.into())),
            Action::NoticeLoss(p, f) => self.notice_loss((p.into(), f.into())),
            Action::Land(p, f, outcome) => {
                let at = (p.into(), f.into());
                if let Phase::Building(build) = self.flight(at).phase {
                    self.land(at, build, outcome);
                }
            }
            action => self.take_outside(action),
        }
        Step::Done
    }

    /// A step of the server, the network, or a process as a whole.
    fn take_outside(&mut self, action: Action) {
        match action {
            Action::Execute(at) => self.run_script(at, Hearing::Hears),
            Action::ExecuteUnheard(at) => self.run_script(at, Hearing::Deaf),
            Action::ExecuteTwice(at, heard) => {
                let message = self.state.wire.copy(at.into());
                let hearing = match heard {
                    Heard::First => Hearing::Hears,
                    Heard::Second => Hearing::Deaf,
                };
                self.execute(message, hearing);
            }
            Action::Expire(slot) => self.expire(slot),
            Action::Purge(p, kind) => self.purge_from(p.into(), kind),
            Action::PurgeReturns(p) => self.purge_returns(p.into()),
            Action::PurgeTimesOut(p) => self.process(p.into()).purging = Purging::No,
            Action::ReadMail(p) => self.read_mail(p.into()),
            Action::LoseEvents(p) => self.lose_events(p.into()),
            Action::NoticeGap(p) => self.notice_gap(p.into()),
            Action::Resubscribe(p) => self.resubscribe(p.into()),
            Action::Crash(p) => self.crash(p.into()),
            Action::Age => self.age(),
            Action::ForgetMarker => self.state.server.marker = Marker::None,
            Action::ForgetMemo(p) => self.forget_memo(p.into()),
            _ => {}
        }
    }

    fn arrive(&mut self, p: usize) -> Step {
        match self.next_unborn(p) {
            Some(r) => {
                let floor = self.floor(p, r);
                self.seek(p, r, floor)
            }
            None => Step::NoRoom,
        }
    }

    fn seek_again(&mut self, p: usize, r: usize) -> Step {
        match self.state.processes[p].requests[r] {
            Request::Looking(floor) => self.seek(p, r, floor),
            _ => Step::NoRoom,
        }
    }

    fn seated(&self, (p, r): (usize, usize)) -> Seat {
        match self.state.processes[p].requests[r] {
            Request::Waiting(seat) => seat,
            _ => panic!("only a request that waits gives up or leaves"),
        }
    }

    fn run_script(&mut self, at: u8, hearing: Hearing) {
        let message = self.state.wire.take(at.into());
        self.execute(message, hearing);
    }

    fn poll(&mut self, at: (usize, usize)) {
        if let Phase::Waiting { behind, chance } = self.flight(at).phase {
            self.ask(at, behind, chance);
        }
    }

    fn notice_loss(&mut self, at: (usize, usize)) {
        let flight = self.flight(at);
        flight.door = Door::Sealed;
        if let Phase::Building(build) = &mut flight.phase {
            build.held = Held::Lost;
        }
    }
}
