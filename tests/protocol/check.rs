//! The invariants that hold in every state, and those at rest.

use crate::{
    process::{Door, Held, Phase, Process, Request},
    state::{Lease, PROCESSES, Slot, State},
    wire::{Run, Script},
    world::Breach,
};

/// What does not hold in this state.
pub(crate) fn always(state: &State) -> Option<Breach> {
    [one_build, one_build_per_process, owned_leases]
        .iter()
        .find_map(|check| check(state))
}

/// What does not hold where the protocol has nothing left to do.
pub(crate) fn at_rest(state: &State) -> Option<Breach> {
    let waits = |request: &Request| matches!(request, Request::Waiting(_) | Request::Looking(_));
    let processes = &state.processes;
    if processes
        .iter()
        .any(|process| process.requests.iter().any(waits))
    {
        return Some(Breach("every waiter ends: one waits for ever"));
    }
    if processes
        .iter()
        .any(|process| process.flights.iter().any(Option::is_some))
    {
        return Some(Breach("I12: a flight is left over"));
    }
    if state.server.leases.iter().any(Option::is_some) {
        return Some(Breach("I12: a lease is left over"));
    }
    None
}

/// I1: while leases are alive, one build per key; those that a purge fences aside.
fn one_build(state: &State) -> Option<Breach> {
    for slot in [Slot::Build, Slot::Extra] {
        let builds = state
            .processes
            .iter()
            .flat_map(|process| process.flights.iter().flatten());
        let held = builds.filter(|flight| {
            flight.slot == slot
                && matches!(flight.phase, Phase::Building(build)
                    if build.held == Held::Ours && state.server.is_current(build.began))
        });
        if held.count() > 1 {
            return Some(Breach("I1: two builds at once, each under a lease"));
        }
    }
    None
}

/// I1, without the tier: one build per key and process.
fn one_build_per_process(state: &State) -> Option<Breach> {
    let crowded = |process: &Process| {
        let builds = process.flights.iter().flatten().filter(|flight| {
            flight.slot == Slot::Build
                && flight.door != Door::Sealed
                && matches!(flight.phase, Phase::Building(_))
        });
        builds.count() > 1
    };
    let crowded = state.processes.iter().any(crowded);
    crowded.then_some(Breach("I1: two builds at once in one process"))
}

/// I12: whoever holds a lease knows it, or gives it back. A copy of a claim may run after all that
/// and take one that only its time to live ends.
fn owned_leases(state: &State) -> Option<Breach> {
    for (slot, lease) in [Slot::Build, Slot::Extra]
        .into_iter()
        .zip(state.server.leases)
    {
        let Some(lease) = lease else { continue };
        let owner = &state.processes[usize::from(lease.owner)];
        if owner.is_alive() && lease.run == Run::Once && is_stray(state, slot, lease) {
            return Some(Breach("I12: a lease that nobody knows of"));
        }
    }
    None
}

/// Whether nobody knows of a lease, nor is it being given back.
pub(crate) fn is_stray(state: &State, slot: Slot, lease: Lease) -> bool {
    let owner = &state.processes[usize::from(lease.owner)];
    let mut flown = owner.flights.iter().flatten();
    let known = flown.any(|flight| flight.slot == slot && flight.token() == lease.token);
    let freed = state.wire.iter().any(|message| {
        message.slot == slot
            && message.token == lease.token
            && matches!(
                message.script,
                Script::Fill(_) | Script::Release { .. } | Script::Undo
            )
    });
    !known && !freed
}

const _: () = assert!(
    PROCESSES >= 2,
    "one process alone has nobody to differ with"
);
