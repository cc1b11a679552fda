//! Forgetting what cannot matter any more, so that states which differ in nothing else are one.

use crate::{
    process::{Door, Flight, Floor, Memo, Process, Purging, Request, Subscription, Tier},
    state::{MAIL, State},
};

pub(crate) fn forget(state: &mut State) {
    state
        .processes
        .iter_mut()
        .filter(|process| nobody_asks(process))
        .for_each(clear);
}

/// Whether nobody will ever be answered here.
fn nobody_asks(process: &Process) -> bool {
    process
        .requests
        .iter()
        .all(|request| *request == Request::Gone)
}

fn clear(process: &mut Process) {
    process.mail = [None; MAIL];
    process.local = None;
    process.memo = Memo::None;
    process.handled = Floor::default();
    process.purging = Purging::No;
    process.subscription = Subscription::Live;
    process.tier = Tier::Works;
    process.flights.iter_mut().flatten().for_each(empty);
}

/// What a flight that nobody is in does not need.
fn empty(flight: &mut Flight) {
    flight.overtaken = None;
    flight.since = None;
    flight.stale = None;
    if flight.door == Door::Free {
        flight.door = Door::Open;
    }
}
