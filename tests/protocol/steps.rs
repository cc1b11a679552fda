//! Every step that can be taken in a state.

use crate::{
    check,
    flights::Outcome,
    process::{
        Build, Event, Flight, Held, Kind, Life, Memo, Phase, Process, Purging, Reply, Request,
        Role, Seat, Subscription,
    },
    rules::Rule,
    state::{Age, FLIGHTS, Fault, PROCESSES, REQUESTS, Slot, State},
    world::{Setting, World},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// A request comes.
    Arrive(u8),
    /// A request starts over.
    Seek(u8, u8),
    GiveUp(u8, u8),
    Leave(u8, u8),
    /// A client goes away, and with it the build it started.
    Cancel(u8, u8),
    /// The server runs the script at this place of the wire.
    Execute(u8),
    /// ... and the reply is lost.
    ExecuteUnheard(u8),
    /// ... and a copy of it comes later.
    ExecuteTwice(u8, Heard),
    Deliver(u8, u8),
    TimeOut(u8, u8),
    Poll(u8, u8),
    NoticeLoss(u8, u8),
    Land(u8, u8, Outcome),
    Expire(Slot),
    Purge(u8, Kind),
    PurgeReturns(u8),
    PurgeTimesOut(u8),
    ReadMail(u8),
    LoseEvents(u8),
    NoticeGap(u8),
    Resubscribe(u8),
    Crash(u8),
    Age,
    ForgetMarker,
    ForgetMemo(u8),
}

/// Which of two executions is heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    First,
    Second,
}

/// Whether a step is the protocol's own, or comes from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    Protocol,
    Request,
    Fault(Fault),
}

/// All steps from `state`, as those who take them would.
pub(crate) fn all(state: &State, setting: Setting) -> Vec<(Action, Cause)> {
    let world = World {
        state: state.clone(),
        setting,
        breach: None,
    };
    let mut steps = Vec::with_capacity(32);
    for p in 0..PROCESSES {
        if state.processes[p].life == Life::Alive {
            of_process(&world, p, &mut steps);
            for f in 0..FLIGHTS {
                if let Some(flight) = state.processes[p].flights[f] {
                    of_flight(&world, (p, f), flight, &mut steps);
                }
            }
        }
    }
    of_server(&world, &mut steps);
    steps.retain(|(_, cause)| match cause {
        Cause::Fault(fault) => state.faults.left(*fault),
        Cause::Protocol | Cause::Request => true,
    });
    steps
}

fn small(number: usize) -> u8 {
    u8::try_from(number).expect("small numbers")
}

type Steps = Vec<(Action, Cause)>;

fn of_process(world: &World, p: usize, steps: &mut Steps) {
    let process = &world.state.processes[p];
    let n = small(p);
    let earlier = p
        .checked_sub(1)
        .map(|q| world.state.processes[q].requests[0]);
    // Processes are alike: their first requests come in their order.
    if world
        .next_unborn(p)
        .is_some_and(|r| r > 0 || earlier != Some(Request::Unborn))
    {
        steps.push((Action::Arrive(n), Cause::Request));
    }
    of_requests(world, p, steps);
    match process.purging {
        Purging::No => {
            steps.push((Action::Purge(n, Kind::Hard), Cause::Fault(Fault::Purge)));
            steps.push((Action::Purge(n, Kind::Soft), Cause::Fault(Fault::SoftPurge)));
        }
        Purging::Asked(_) => {
            let cause = timeout(&world.state, p, 0);
            steps.push((Action::PurgeTimesOut(n), cause));
        }
        Purging::Done(..) => steps.push((Action::PurgeReturns(n), Cause::Protocol)),
    }
    if process.mail[0].is_some_and(|event| is_read(event, process)) {
        steps.push((Action::ReadMail(n), Cause::Protocol));
    }
    match process.subscription {
        Subscription::Live => steps.push((Action::LoseEvents(n), Cause::Fault(Fault::Loss))),
        Subscription::Broken => steps.push((Action::NoticeGap(n), Cause::Protocol)),
        Subscription::Gap => steps.push((Action::Resubscribe(n), Cause::Protocol)),
    }
    steps.push((Action::Crash(n), Cause::Fault(Fault::Crash)));
    if process.memo != Memo::None {
        steps.push((Action::ForgetMemo(n), Cause::Fault(Fault::Forgetting)));
    }
}

/// A flight that asks is registered already: what wakes it stays until it waits.
fn is_read(event: Event, process: &Process) -> bool {
    let asks =
        |flight: &Flight| matches!(flight.phase, Phase::Claiming { .. } | Phase::Claimed { .. });
    let kept = process.flights.iter().flatten().any(asks);
    !(kept && matches!(event, Event::Landed(_)))
}

fn of_requests(world: &World, p: usize, steps: &mut Steps) {
    let process = &world.state.processes[p];
    for r in 0..REQUESTS {
        let (n, m) = (small(p), small(r));
        match process.requests[r] {
            Request::Unborn | Request::Gone => {}
            Request::Looking(_) => steps.push((Action::Seek(n, m), Cause::Protocol)),
            Request::Waiting(seat) => {
                steps.push((Action::Leave(n, m), Cause::Fault(Fault::Leaving)));
                let flight = process.flights[usize::from(seat.flight)];
                let builds =
                    flight.is_some_and(|flight| matches!(flight.phase, Phase::Building(_)));
                if builds && alone(process.requests, seat) {
                    steps.push((Action::Cancel(n, m), Cause::Fault(Fault::Leaving)));
                }
                if !(builds && seat.role == Role::Starter) {
                    steps.push((Action::GiveUp(n, m), Cause::Fault(Fault::WaitTimeout)));
                }
            }
        }
    }
}

fn alone(requests: [Request; REQUESTS], seat: Seat) -> bool {
    let here = |request: &&Request| matches!(request, Request::Waiting(other) if other.flight == seat.flight);
    requests.iter().filter(here).count() == 1
}

/// What can still be answered times out only if something goes wrong.
fn timeout(state: &State, p: usize, token: u8) -> Cause {
    let answerable = state
        .wire
        .iter()
        .any(|message| usize::from(message.from) == p && message.token == token);
    if answerable {
        Cause::Fault(Fault::Timeout)
    } else {
        Cause::Protocol
    }
}

fn of_flight(world: &World, (p, f): (usize, usize), flight: Flight, steps: &mut Steps) {
    let (n, m) = (small(p), small(f));
    let budget = world.has(Rule::Budget);
    match flight.phase {
        Phase::Claiming { token, .. }
        | Phase::Filling {
            build: Build { token, .. },
            ..
        }
        | Phase::Releasing {
            build: Build { token, .. },
            ..
        } => {
            if budget {
                steps.push((Action::TimeOut(n, m), timeout(&world.state, p, token)));
            }
        }
        Phase::Claimed { .. } | Phase::Filled { .. } | Phase::Released { .. } => {
            steps.push((Action::Deliver(n, m), Cause::Protocol));
            if budget {
                steps.push((Action::TimeOut(n, m), Cause::Fault(Fault::Timeout)));
            }
        }
        Phase::Waiting { behind, .. } => {
            let reply = world.look(
                0,
                flight.slot,
                behind,
                (world.key(p), world.refusal(&flight, behind)),
            );
            let still = matches!(reply, Reply::Busy { behind: holder, .. } if holder == behind);
            if world.has(Rule::PollsBeneath) && !still {
                steps.push((Action::Poll(n, m), Cause::Protocol));
            }
        }
        Phase::Building(build) => {
            let lease = world.state.server.leases[flight.slot as usize];
            let lost = lease.is_none_or(|lease| lease.token != build.token);
            if lost && matches!(build.held, Held::Ours | Held::Expired) {
                steps.push((Action::NoticeLoss(n, m), Cause::Protocol));
            }
            for (outcome, cause) in [
                (Outcome::Storable, Cause::Protocol),
                (Outcome::Shared, Cause::Fault(Fault::Shared)),
                (Outcome::Uncacheable, Cause::Fault(Fault::Uncacheable)),
                (Outcome::Failed, Cause::Fault(Fault::Failure)),
            ] {
                steps.push((Action::Land(n, m, outcome), cause));
            }
        }
    }
}

fn of_server(world: &World, steps: &mut Steps) {
    let state = &world.state;
    for at in state.wire.distinct() {
        let n = small(at);
        steps.push((Action::Execute(n), Cause::Protocol));
        steps.push((Action::ExecuteUnheard(n), Cause::Fault(Fault::Timeout)));
        steps.push((
            Action::ExecuteTwice(n, Heard::First),
            Cause::Fault(Fault::Twice),
        ));
        steps.push((
            Action::ExecuteTwice(n, Heard::Second),
            Cause::Fault(Fault::Twice),
        ));
    }
    for slot in [Slot::Build, Slot::Extra] {
        if let Some(lease) = state.server.leases[slot as usize] {
            let alone = check::is_stray(state, slot, lease);
            let lapses = alone && world.has(Rule::LeaseExpires) || !world.has(Rule::Renewal);
            let cause = if lapses {
                Cause::Protocol
            } else {
                Cause::Fault(Fault::Expiry)
            };
            steps.push((Action::Expire(slot), cause));
        }
    }
    if state
        .server
        .entry
        .is_some_and(|entry| entry.age == Age::Fresh)
    {
        steps.push((Action::Age, Cause::Fault(Fault::Ageing)));
    }
    if world.may_forget_marker() {
        steps.push((Action::ForgetMarker, Cause::Fault(Fault::Forgetting)));
    }
}
