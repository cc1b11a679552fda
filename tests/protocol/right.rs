//! With all rules on, nothing breaks.

use Fault::{
    Ageing, Crash, Expiry, Failure, Forgetting, Leaving, Loss, Purge, Shared, SoftPurge, Timeout,
    Twice, Uncacheable, WaitTimeout,
};

use crate::{
    scenario::Scenario,
    state::{Age, Fault},
};

fn holds(scenario: Scenario) {
    let explored = scenario.explore();
    if let Some(counterexample) = explored.counterexample {
        panic!(
            "{} states, then {}",
            explored.states,
            counterexample.trace()
        );
    }
    println!("{} states", explored.states);
}

const ALL: [Fault; Fault::COUNT] = [
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
];

#[test]
fn nothing_breaks_when_nothing_goes_wrong() {
    holds(Scenario::with_requests(&[2, 2, 2]));
}

#[test]
fn nothing_breaks_in_any_two_mishaps() {
    holds(Scenario::with_requests(&[2, 1]).faults(&ALL).at_most(2));
}

#[test]
fn nothing_breaks_in_any_two_mishaps_around_a_fresh_entry() {
    holds(
        Scenario::with_requests(&[2, 1])
            .faults(&ALL)
            .at_most(2)
            .starting_with(Age::Fresh),
    );
}

#[test]
fn nothing_breaks_in_any_two_mishaps_around_a_stale_entry() {
    holds(
        Scenario::with_requests(&[2, 1])
            .faults(&ALL)
            .at_most(2)
            .starting_with(Age::Stale),
    );
}

#[test]
fn nothing_breaks_in_any_two_mishaps_while_a_stale_entry_answers() {
    holds(
        Scenario::with_requests(&[2, 1])
            .faults(&ALL)
            .at_most(2)
            .starting_with(Age::Stale)
            .stale_may_answer(),
    );
}

#[test]
fn nothing_breaks_in_any_two_mishaps_under_a_marker() {
    holds(
        Scenario::with_requests(&[2, 1])
            .faults(&ALL)
            .at_most(2)
            .starting_marked(),
    );
}

#[test]
fn nothing_breaks_when_calls_run_late_or_twice() {
    holds(
        Scenario::with_requests(&[1, 1])
            .fault(Timeout, 2)
            .fault(Twice, 2)
            .fault(Failure, 1)
            .at_most(4),
    );
}
