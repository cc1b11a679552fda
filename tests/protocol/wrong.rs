//! With one rule off, something breaks.

use Fault::{
    Crash, Expiry, Failure, Forgetting, Loss, Purge, Shared, SoftPurge, Timeout, Twice,
    Uncacheable, WaitTimeout,
};

use crate::{
    rules::Rule,
    scenario::Scenario,
    state::{Age, Fault},
};

/// Asserts that the scenario breaks without the rule, in this way.
fn breaks(rule: Rule, scenario: Scenario, invariant: &str) {
    let explored = scenario.without(rule).explore();
    let Some(counterexample) = explored.counterexample else {
        panic!(
            "{rule:?} is good for nothing: {} states hold without it",
            explored.states
        );
    };
    println!(
        "{rule:?} | {} | {:?}",
        counterexample.breach, counterexample.steps
    );
    assert!(
        counterexample.breach.0.starts_with(invariant),
        "{}",
        counterexample.trace()
    );
}

fn one_each() -> Scenario {
    Scenario::with_requests(&[1, 1])
}

fn two_and_one() -> Scenario {
    Scenario::with_requests(&[2, 1])
}

// ===== rule 1 =====

#[test]
fn a_token_used_twice_breaks_under_its_own_undo() {
    breaks(
        Rule::FreshTokens,
        Scenario::with_requests(&[2, 1])
            .faults(&[Timeout])
            .fault(Shared, 1),
        "I1",
    );
}

#[test]
fn a_claim_that_runs_twice_must_find_its_own_lease() {
    breaks(Rule::ClaimTwice, one_each().faults(&[Twice]), "I12");
}

#[test]
fn a_fill_that_runs_twice_must_find_its_own_entry() {
    breaks(Rule::FillTwice, one_each().faults(&[Twice]), "rule 1");
}

#[test]
fn a_claim_without_an_answer_must_be_undone() {
    breaks(Rule::Undo, one_each().faults(&[Timeout]), "I12");
}

#[test]
fn a_claim_that_was_undone_must_not_run_later() {
    breaks(Rule::Tombstone, one_each().faults(&[Timeout]), "I12");
}

// ===== rule 2 =====

#[test]
fn a_local_fill_must_be_fenced() {
    breaks(Rule::LocalFence, two_and_one().faults(&[Purge]), "I6");
}

#[test]
fn the_fence_must_be_sampled_before_the_claim() {
    breaks(
        Rule::SampleBeforeClaim,
        two_and_one().faults(&[Purge]).starting_with(Age::Stale),
        "I6",
    );
}

#[test]
fn what_was_fenced_off_must_not_go_into_the_local_tier() {
    breaks(Rule::FencedOffNowhere, one_each().faults(&[Expiry]), "I7");
}

// ===== rule 3 =====

#[test]
fn a_purge_must_detach_the_flights_under_way() {
    breaks(
        Rule::DetachOnPurge,
        two_and_one().faults(&[Purge, Shared]),
        "I6",
    );
}

#[test]
fn a_gap_must_detach_the_flights_under_way() {
    breaks(
        Rule::DetachOnGap,
        Scenario::with_requests(&[2]).faults(&[Purge, Loss]),
        "I6",
    );
}

#[test]
fn a_purge_must_reach_what_was_read_before_it_ran() {
    breaks(
        Rule::PurgeAgainAfterTier,
        two_and_one().faults(&[Purge]).starting_with(Age::Fresh),
        "I6",
    );
}

#[test]
fn a_purge_that_runs_late_must_reach_its_own_process() {
    breaks(
        Rule::HeedOwnEvents,
        two_and_one()
            .faults(&[Purge, Timeout])
            .starting_with(Age::Fresh),
        "I6",
    );
}

// ===== rule 4 =====

#[test]
fn a_claim_must_compare_with_the_purge_record() {
    breaks(
        Rule::ClaimComparesRecord,
        two_and_one().faults(&[Purge]).starting_with(Age::Fresh),
        "I6",
    );
}

#[test]
fn a_fill_must_compare_with_the_purge_record() {
    breaks(Rule::FillComparesRecord, one_each().faults(&[Purge]), "I6");
}

#[test]
fn a_fill_must_compare_with_the_purge_record_though_purges_delete_the_lease() {
    breaks(
        Rule::FillComparesRecord,
        one_each().faults(&[Purge, Twice]).purged_by_key(),
        "I6",
    );
}

#[test]
fn a_fill_must_compare_with_the_record_of_a_soft_purge_too() {
    breaks(
        Rule::FillComparesRecord,
        one_each().faults(&[SoftPurge]),
        "I6",
    );
}

#[test]
fn a_fill_that_a_purge_fences_must_free_its_lease() {
    breaks(
        Rule::FencedFillFreesLease,
        one_each().faults(&[Purge]),
        "I12",
    );
}

#[test]
fn a_failure_from_before_a_purge_must_not_be_told_after_it() {
    breaks(
        Rule::MarkerComparesRecord,
        one_each().faults(&[Purge, Failure]),
        "I6",
    );
}

#[test]
fn a_memo_from_before_a_purge_must_not_answer_after_it() {
    breaks(
        Rule::MemoComparesPurges,
        two_and_one().faults(&[Purge, Failure]),
        "I6",
    );
}

// ===== rule 5 =====

#[test]
fn a_failure_must_not_take_the_place_of_an_entry() {
    breaks(
        Rule::EntrySurvivesFailure,
        one_each().faults(&[Failure]).starting_with(Age::Stale),
        "I13",
    );
}

#[test]
fn a_stale_entry_must_stand_in_for_another_process_s_failure() {
    breaks(
        Rule::StaleBeforeFailure,
        one_each().faults(&[Failure]).starting_with(Age::Stale),
        "I13",
    );
}

#[test]
fn a_memo_needs_a_lease_that_was_still_held() {
    breaks(
        Rule::MemoOnlyIfOurs,
        two_and_one().faults(&[Expiry, Failure]),
        "I13",
    );
}

#[test]
fn what_is_stored_must_clear_the_marker() {
    breaks(
        Rule::StoredClearsMarker,
        one_each().starting_marked(),
        "I14",
    );
}

#[test]
fn a_failure_must_be_told_to_those_who_wait_elsewhere() {
    breaks(Rule::FailureIsTold, one_each().faults(&[Failure]), "I13");
}

// ===== rule 6 =====

#[test]
fn nobody_may_wait_under_a_marker() {
    breaks(Rule::FreeUnderMarker, one_each().starting_marked(), "I14");
}

#[test]
fn somebody_must_probe_under_a_marker() {
    breaks(Rule::ProbeClaims, one_each().starting_marked(), "I14");
}

// ===== rule 7 =====

#[test]
fn an_event_must_only_wake() {
    breaks(
        Rule::EventsOnlyWake,
        Scenario::with_requests(&[2, 2]).faults(&[Uncacheable, Forgetting]),
        "I1",
    );
}

#[test]
fn polls_must_go_on_beneath_the_events() {
    breaks(
        Rule::PollsBeneath,
        one_each().faults(&[Loss]),
        "every waiter ends",
    );
}

#[test]
fn a_failure_must_be_remembered_for_longer_than_a_poll_takes() {
    breaks(
        Rule::PollsBelowMemo,
        one_each().faults(&[Failure, Forgetting]),
        "I13",
    );
}

// ===== rule 8 =====

#[test]
fn a_lease_must_expire() {
    breaks(Rule::LeaseExpires, one_each().faults(&[Crash]), "I12");
}

#[test]
fn a_lease_must_be_renewed() {
    breaks(Rule::Renewal, one_each(), "I1");
}

#[test]
fn a_lost_lease_must_not_store() {
    breaks(Rule::FillOnlyIfOurs, one_each().faults(&[Expiry]), "I7");
}

#[test]
fn a_release_must_not_free_another_s_lease() {
    breaks(
        Rule::ReleaseOnlyIfOurs,
        Scenario::with_requests(&[1, 1, 1]).faults(&[Expiry, Shared]),
        "I1",
    );
}

// ===== rule 9 =====

#[test]
fn the_local_tier_must_not_be_trusted_in_a_gap() {
    breaks(
        Rule::DistrustInGap,
        Scenario::with_requests(&[1, 1])
            .faults(&[Loss, Purge])
            .starting_with(Age::Fresh),
        "rule 9",
    );
}

#[test]
fn the_local_tier_must_be_dropped_after_a_gap() {
    breaks(
        Rule::DropAfterGap,
        Scenario::with_requests(&[1, 1])
            .faults(&[Loss, Purge])
            .starting_with(Age::Fresh),
        "I6",
    );
}

// ===== rules 10 to 13 =====

#[test]
fn a_request_must_not_wait_for_the_server_for_ever() {
    breaks(
        Rule::Budget,
        one_each().faults(&[Timeout]),
        "every waiter ends",
    );
}

#[test]
fn a_stale_entry_must_answer_while_another_process_builds() {
    breaks(
        Rule::StaleWhileBusy,
        one_each().starting_with(Age::Stale).stale_may_answer(),
        "rule 11",
    );
}

#[test]
fn an_older_build_must_not_replace_a_younger_one() {
    breaks(
        Rule::YoungerStays,
        one_each().faults(&[WaitTimeout]),
        "rule 12",
    );
}

#[test]
fn a_failure_must_not_be_remembered_beside_a_fresh_entry() {
    breaks(
        Rule::EntrySilencesFailure,
        two_and_one().faults(&[WaitTimeout, Failure]),
        "I13",
    );
}

#[test]
fn a_claim_must_compare_the_key_s_proof() {
    breaks(Rule::Proof, one_each().colliding_keys(), "I15");
}

#[test]
fn a_failure_must_be_that_of_the_build_that_was_waited_for() {
    breaks(
        Rule::FailureOfTheAwaited,
        Scenario::with_requests(&[1, 1, 1]).faults(&[Failure]),
        "I13",
    );
}

// ===== renewals =====

#[test]
fn what_is_refused_must_be_refused_for_as_long_as_the_wait_lasts() {
    let scenario = one_each().starting_with(Age::Fresh).renewing(0);
    breaks(Rule::RefusalLasts, scenario, "one that renews");
}

#[test]
fn who_renews_must_not_take_what_those_find_whom_it_joins() {
    let scenario = Scenario::with_requests(&[1, 2]).starting_with(Age::Fresh);
    breaks(Rule::FoundIsNotNew, scenario.renewing(1), "one that renews");
}

#[test]
fn what_comes_of_a_renewal_must_be_told_beside_the_entry() {
    let scenario = one_each().faults(&[Failure]).starting_with(Age::Fresh);
    breaks(Rule::RenewalIsTold, scenario.renewing(0), "I13");
}
