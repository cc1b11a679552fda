//! With all rules on, nothing breaks.
//!
//! The short explorations take some seconds without optimisation. The long ones are for whoever
//! changes the protocol: `cargo test --release --test protocol -- --ignored --nocapture`.

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

/// Two processes, and a request to each.
fn one_each() -> Scenario {
    Scenario::with_requests(&[1, 1])
}

/// What goes wrong without anybody purging, or giving up.
const MISHAPS: [Fault; 11] = [
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
    Forgetting,
];

const PURGES: [Fault; 2] = [Purge, SoftPurge];

#[test]
fn nothing_breaks_when_nothing_goes_wrong() {
    holds(Scenario::with_requests(&[2, 2, 2]));
}

#[test]
fn nothing_breaks_in_one_mishap_among_three_processes() {
    holds(
        Scenario::with_requests(&[1, 1, 1])
            .faults(&MISHAPS)
            .at_most(1),
    );
}

#[test]
fn nothing_breaks_in_three_mishaps_between_two_processes() {
    let faults = [Timeout, Twice, Expiry, Crash, Loss, Failure, Forgetting];
    holds(one_each().faults(&faults).at_most(3));
}

#[test]
fn nothing_breaks_in_a_purge_and_a_mishap() {
    holds(one_each().faults(&[Purge]).faults(&MISHAPS).at_most(2));
}

#[test]
fn nothing_breaks_in_a_purge_and_a_mishap_within_one_process() {
    holds(
        Scenario::with_requests(&[2])
            .faults(&[Purge])
            .faults(&MISHAPS)
            .at_most(2),
    );
}

#[test]
fn nothing_breaks_in_two_purges_of_any_kind() {
    holds(
        Scenario::with_requests(&[2])
            .faults(&PURGES)
            .faults(&[Timeout, Failure])
            .at_most(2),
    );
}

#[test]
fn nothing_breaks_when_a_missed_purge_meets_two_mishaps() {
    let faults = [Purge, Loss, Timeout, Failure, Shared];
    holds(Scenario::with_requests(&[2]).faults(&faults).at_most(3));
}

#[test]
fn nothing_breaks_when_a_purge_deletes_the_lease() {
    let faults = [Purge, Twice, Timeout, Expiry];
    holds(
        Scenario::with_requests(&[2])
            .faults(&faults)
            .at_most(2)
            .purged_by_key(),
    );
}

#[test]
fn nothing_breaks_when_a_wait_times_out() {
    holds(
        one_each()
            .faults(&[WaitTimeout])
            .faults(&MISHAPS)
            .at_most(2),
    );
}

#[test]
fn nothing_breaks_around_a_fresh_entry() {
    let scenario = one_each().faults(&PURGES).faults(&MISHAPS).at_most(1);
    holds(scenario.starting_with(Age::Fresh));
}

#[test]
fn nothing_breaks_around_a_stale_entry_that_stands_in_for_failures() {
    let scenario = one_each().faults(&PURGES).faults(&MISHAPS).at_most(1);
    holds(scenario.starting_with(Age::Stale));
}

#[test]
fn nothing_breaks_around_a_stale_entry_that_answers_while_it_is_refreshed() {
    let scenario = Scenario::with_requests(&[2, 1]).faults(&MISHAPS).at_most(1);
    holds(scenario.starting_with(Age::Stale).stale_may_answer());
}

#[test]
fn nothing_breaks_where_a_fresh_entry_is_renewed() {
    let scenario = one_each().faults(&MISHAPS).at_most(2);
    holds(scenario.starting_with(Age::Fresh).renewing(0));
}

#[test]
fn nothing_breaks_where_an_entry_is_renewed_and_others_take_what_there_is() {
    let faults = [Timeout, Failure, Uncacheable, Purge, SoftPurge];
    let scenario = Scenario::with_requests(&[1, 2]).faults(&faults).at_most(1);
    holds(scenario.starting_with(Age::Fresh).renewing(1));
}

#[test]
fn nothing_breaks_under_a_marker() {
    holds(
        one_each()
            .faults(&PURGES)
            .faults(&MISHAPS)
            .at_most(1)
            .starting_marked(),
    );
}

#[test]
fn nothing_breaks_when_two_keys_share_a_digest() {
    holds(
        one_each()
            .faults(&PURGES)
            .faults(&MISHAPS)
            .at_most(1)
            .colliding_keys(),
    );
}

// ===== the long ones =====

fn everything(requests: &[usize]) -> Scenario {
    Scenario::with_requests(requests)
        .faults(&PURGES)
        .faults(&MISHAPS)
        .faults(&[WaitTimeout])
}

#[test]
#[ignore = "some millions of states"]
fn nothing_breaks_in_any_three_faults_between_two_processes() {
    holds(everything(&[1, 1]).at_most(3));
}

#[test]
#[ignore = "some millions of states"]
fn nothing_breaks_in_any_two_faults_where_an_entry_is_renewed() {
    let scenario = everything(&[1, 1]).at_most(2);
    holds(scenario.starting_with(Age::Fresh).renewing(0));
}

#[test]
#[ignore = "some millions of states"]
fn nothing_breaks_in_any_three_faults_within_one_process() {
    holds(everything(&[2]).at_most(3));
}

#[test]
#[ignore = "a hundred million states: minutes, and some ten gigabytes"]
fn nothing_breaks_in_any_two_faults_among_three_requests() {
    holds(everything(&[2, 1]).at_most(2));
}

#[test]
#[ignore = "some millions of states"]
fn nothing_breaks_in_any_two_mishaps_among_three_processes() {
    holds(
        Scenario::with_requests(&[1, 1, 1])
            .faults(&MISHAPS)
            .at_most(2),
    );
}

#[test]
#[ignore = "some millions of states"]
fn nothing_breaks_in_any_two_faults_whatever_there_was_before() {
    holds(everything(&[1, 1]).at_most(2).starting_with(Age::Fresh));
    holds(everything(&[1, 1]).at_most(2).starting_with(Age::Stale));
    holds(
        everything(&[1, 1])
            .at_most(2)
            .starting_with(Age::Stale)
            .stale_may_answer(),
    );
    holds(everything(&[1, 1]).at_most(2).starting_marked());
    holds(everything(&[1, 1]).at_most(2).purged_by_key());
    holds(everything(&[1, 1]).at_most(2).colliding_keys());
}
