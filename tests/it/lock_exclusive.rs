//! The plain lock: one holder, and how it ends.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use tower_stampede::lock::{Attempt, ErrorKind, OnDrop, Released, Remaining, Token, Who};

use crate::lock_ground::{
    Fault, MINUTE, SHORT, eventually, is_busy, ms, on_both, poll_once, spawn, take,
};

on_both! {
    async fn a_free_lock_is_acquired_and_then_busy_for_everyone(ground: Ground) {
        let lock = ground.locks.lock("job");

        let guard = take(&lock).await;

        assert!(is_busy(&lock).await);
        assert!(is_busy(&ground.elsewhere.lock("job")).await);
        assert!(guard.is_valid());
        assert!(guard.is_still_held().await.unwrap());
    }

    async fn a_refusal_tells_the_remaining_time_and_changes_nothing(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(MINUTE)).await;

        let Attempt::Busy(busy) = ground.elsewhere.lock("job").ttl(ms(1)).try_acquire().await.unwrap() else {
            panic!("two holders");
        };

        let Some(Remaining::Millis(left)) = busy.remaining() else {
            panic!("it has an end");
        };
        assert!(left > 50_000 && left <= 60_000);
        assert!(!busy.deadline_passed());
        assert!(guard.is_still_held().await.unwrap());
    }

    async fn of_many_tasks_and_two_managers_exactly_one_wins(ground: Ground) {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..100 {
            let locks = if number % 2 == 0 { &ground.locks } else { &ground.elsewhere };
            let request = locks.lock("job").on_drop(OnDrop::Expire);
            tasks.spawn(async move { request.try_acquire().await.unwrap().guard().is_some() });
        }

        let won = tasks.join_all().await.into_iter().filter(|won| *won).count();

        assert_eq!(won, 1);
    }

    async fn a_released_lock_is_free(ground: Ground) {
        let guard = take(&ground.locks.lock("job")).await;

        assert_eq!(guard.release().await.unwrap(), Released::Released);

        assert!(!is_busy(&ground.elsewhere.lock("job")).await);
    }

    async fn different_names_and_names_that_differ_by_case_do_not_contend(ground: Ground) {
        let held = [
            take(&ground.locks.lock("a")).await,
            take(&ground.locks.lock("b")).await,
            take(&ground.locks.lock("A")).await,
            take(&ground.locks.lock("")).await,
            take(&ground.locks.lock("\u{1f512}")).await,
            take(&ground.locks.lock([0xff, 0x00])).await,
        ];

        assert!(is_busy(&ground.elsewhere.lock("\u{1f512}")).await);
        assert_eq!(held.len(), 6);
    }

    async fn namespaces_do_not_contend(ground: Ground) {
        let _held = take(&ground.locks.lock("job")).await;
        let other = ground.manager(|builder| builder.namespace("shop:lock:"));

        assert!(!is_busy(&other.lock("job")).await);
    }

    async fn two_acquisitions_have_different_tokens_of_32_hex_digits(ground: Ground) {
        let one = take(&ground.locks.lock("a")).await;
        let two = take(&ground.locks.lock("b")).await;

        let text = one.token().as_str().unwrap();
        assert!(text.len() == 32 && text.chars().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(one.token(), two.token());
    }

    async fn an_expired_lock_is_free_and_its_guard_is_not_valid(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(SHORT)).await;

        ground.outlive(SHORT).await;

        assert!(!guard.is_valid());
        assert!(!guard.is_still_held().await.unwrap());
        assert!(!is_busy(&ground.elsewhere.lock("job")).await);
        assert_eq!(guard.release().await.unwrap(), Released::Expired);
    }

    async fn a_late_release_leaves_the_next_holder_alone(ground: Ground) {
        let late = take(&ground.locks.lock("job").ttl(SHORT)).await;
        ground.outlive(SHORT).await;
        let next = take(&ground.elsewhere.lock("job")).await;

        assert_eq!(late.release().await.unwrap(), Released::HeldByAnother);

        assert!(next.is_still_held().await.unwrap());
        assert!(is_busy(&ground.locks.lock("job")).await);
    }

    async fn a_second_release_by_token_finds_nothing(ground: Ground) {
        let lock = ground.locks.lock("job");
        let guard = take(&lock).await;
        let token = guard.token().clone();

        assert_eq!(guard.release().await.unwrap(), Released::Released);

        assert_eq!(lock.release(&token).await.unwrap(), Released::Expired);
    }

    async fn another_process_releases_with_the_token(ground: Ground) {
        let guard = take(&ground.locks.lock("job")).await;
        let token = guard.token().clone();

        let there = ground.elsewhere.lock("job");
        assert_eq!(there.release(&Token::new("another")).await.unwrap(), Released::HeldByAnother);
        assert_eq!(there.release(&token).await.unwrap(), Released::Released);

        assert!(!guard.is_still_held().await.unwrap());
    }

    async fn another_process_adopts_a_lock_and_its_first_guard_still_works(ground: Ground) {
        let guard = take(&ground.locks.lock("job").metadata("importer").ttl(MINUTE)).await;

        let adopted = ground.elsewhere.lock("job").adopt(guard.token()).await.unwrap().unwrap();

        assert_eq!(adopted.metadata(), "importer");
        assert!(adopted.valid_for().unwrap() > Duration::from_secs(50));
        adopted.extend(Duration::from_secs(600)).await.unwrap();
        assert!(guard.remaining().await.unwrap().unwrap().duration().unwrap() > MINUTE);
        assert_eq!(adopted.release().await.unwrap(), Released::Released);
        assert!(ground.elsewhere.lock("job").adopt(guard.token()).await.unwrap().is_none());
    }

    async fn force_release_is_true_only_if_it_removed_something(ground: Ground) {
        let lock = ground.elsewhere.lock("job");
        assert!(!lock.force_release().await.unwrap(), "never locked");

        let guard = take(&ground.locks.lock("job")).await;
        assert!(lock.force_release().await.unwrap(), "held");
        assert!(!guard.is_still_held().await.unwrap());
        let extended = guard.extend(MINUTE).await;
        assert_eq!(extended.unwrap_err().kind(), ErrorKind::NotHeld);
        assert_eq!(guard.release().await.unwrap(), Released::Expired);
        assert!(!lock.force_release().await.unwrap(), "released");

        let _expired = take(&ground.locks.lock("job").ttl(SHORT)).await;
        ground.outlive(SHORT).await;
        assert!(!lock.force_release().await.unwrap(), "expired");
    }

    async fn who_holds_a_lock_can_be_asked(ground: Ground) {
        let lock = ground.elsewhere.lock("job");
        assert!(!lock.is_held().await.unwrap());
        let guard = take(&ground.locks.lock("job")).await;

        assert!(lock.is_held().await.unwrap());
        assert!(lock.exists(Who::Anyone).await.unwrap());
        assert!(lock.exists(Who::Token(guard.token().clone())).await.unwrap());
        assert!(!lock.exists(Who::Token(Token::new("another"))).await.unwrap());
        assert!(!ground.elsewhere.lock("other").exists(Who::Anyone).await.unwrap());
    }

    async fn a_kept_lock_stands_until_its_time_is_over(ground: Ground) {
        take(&ground.locks.lock("minute").ttl(ms(800))).await.keep();

        assert!(is_busy(&ground.elsewhere.lock("minute")).await);
        ground.outlive(ms(800)).await;
        assert!(!is_busy(&ground.elsewhere.lock("minute")).await);
    }

    async fn a_dropped_guard_releases_in_the_background(ground: Ground) {
        let guard = take(&ground.locks.lock("job")).await;

        drop(guard);

        eventually(async || !ground.elsewhere.lock("job").is_held().await.unwrap()).await;
    }

    async fn a_dropped_guard_may_leave_its_lock_to_the_time_to_live(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(ms(800)).on_drop(OnDrop::Expire)).await;

        drop(guard);

        assert!(is_busy(&ground.elsewhere.lock("job")).await);
        ground.outlive(ms(800)).await;
        assert!(!is_busy(&ground.elsewhere.lock("job")).await);
    }

    async fn a_release_that_is_dropped_goes_on_in_the_background_whatever_a_drop_would_do(ground: Ground) {
        let guard = take(&ground.locks.lock("job").on_drop(OnDrop::Expire)).await;
        ground.spy.fail_releases([Fault::Stall]);
        let mut release = Box::pin(guard.release());
        poll_once(release.as_mut()).await;

        drop(release);

        eventually(async || !ground.elsewhere.lock("job").is_held().await.unwrap()).await;
    }

    async fn run_returns_the_result_and_releases_on_success_and_on_error(ground: Ground) {
        let lock = ground.locks.lock("job");

        assert_eq!(lock.run(async { 7 }).await.unwrap(), Some(7));
        assert!(!lock.is_held().await.unwrap());
        assert_eq!(lock.run(async { Err::<(), _>("boom") }).await.unwrap(), Some(Err("boom")));
        assert!(!lock.is_held().await.unwrap());
    }

    async fn run_holds_the_lock_while_the_work_runs(ground: Ground) {
        let ran = ground
            .locks
            .lock("job")
            .run(async { ground.elsewhere.lock("job").is_held().await.unwrap() })
            .await;

        assert_eq!(ran.unwrap(), Some(true));
    }

    async fn run_does_not_start_the_work_while_another_holds_the_lock(ground: Ground) {
        let _held = take(&ground.elsewhere.lock("job")).await;
        let ran = AtomicUsize::new(0);

        let outcome = ground.locks.lock("job").run(async { ran.fetch_add(1, SeqCst) }).await;

        assert_eq!(outcome.unwrap(), None);
        assert_eq!(ran.load(SeqCst), 0);
    }

    async fn run_releases_before_a_panic_goes_on(ground: Ground) {
        let lock = ground.locks.lock("job");
        let work = lock.clone();

        let panicked = spawn(async move { work.run(async { panic!("boom") }).await.map(|_: Option<()>| ()) }).await;

        assert!(panicked.unwrap_err().is_panic());
        assert!(!lock.is_held().await.unwrap());
    }

    async fn run_releases_when_it_is_cancelled(ground: Ground) {
        let lock = ground.locks.lock("job");
        let work = lock.clone();
        let task = spawn(async move { work.run(std::future::pending::<()>()).await });
        eventually(async || lock.is_held().await.unwrap()).await;

        task.abort();

        eventually(async || !lock.is_held().await.unwrap()).await;
    }

    async fn a_failed_release_does_not_hide_the_result_of_the_work(ground: Ground) {
        ground.spy.fail_releases([Fault::Unavailable]);

        let done = ground.locks.lock("job").run(async { "done" }).await;

        assert_eq!(done.unwrap(), Some("done"));
    }

    async fn a_release_that_fails_says_so_and_the_time_to_live_ends_the_lock(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(ms(600))).await;
        ground.spy.fail_releases([Fault::LoseRequest]);

        let error = guard.release().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        assert!(error.to_string().starts_with("release of lock buffer:lock:"));
        ground.outlive(ms(600)).await;
        assert!(!ground.elsewhere.lock("job").is_held().await.unwrap());
    }

    async fn a_persistent_lock_has_no_end(ground: Ground) {
        let guard = take(&ground.locks.lock("job").persistent()).await;

        assert_eq!(guard.remaining().await.unwrap(), Some(Remaining::Persistent));
        assert_eq!(guard.valid_for(), None);
        let busy = ground.elsewhere.lock("job").acquire().await.unwrap_err();
        assert_eq!(busy.busy().unwrap().remaining(), Some(Remaining::Persistent));
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }

    async fn fencing_numbers_only_ever_grow(ground: Ground) {
        let mut last = 0;
        for turn in 0..5 {
            let locks = if turn % 2 == 0 { &ground.locks } else { &ground.elsewhere };
            let guard = take(&locks.lock("job").fencing()).await;
            let number = guard.fencing_number().unwrap();
            assert!(number > last);
            last = number;
            assert!(guard.release().await.unwrap().was_held());
        }

        let expired = take(&ground.locks.lock("job").ttl(SHORT).fencing()).await;
        ground.outlive(SHORT).await;
        let next = take(&ground.elsewhere.lock("job").fencing()).await;
        assert!(next.fencing_number() > expired.fencing_number());
        assert!(expired.fencing_number().unwrap() > last);
    }

    async fn a_fencing_number_comes_only_on_request(ground: Ground) {
        assert_eq!(take(&ground.locks.lock("job")).await.fencing_number(), None);
    }

    async fn validity_is_counted_from_the_moment_of_sending(ground: Ground) {
        ground.spy.fail_acquires([Fault::Late(ms(400))]);

        let guard = take(&ground.locks.lock("job").ttl(Duration::from_secs(5))).await;

        // 5 s less 1 % and 2 ms, less the 400 ms that the answer took.
        assert!(guard.valid_for().unwrap() <= ms(4548));
    }

    async fn a_grant_that_comes_after_its_time_is_none_and_is_taken_back(ground: Ground) {
        ground.spy.fail_acquires([Fault::Late(ms(150))]);

        let error = ground.locks.lock("job").ttl(ms(100)).try_acquire().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::TooLate);
        eventually(async || ground.spy.withdrawals() == 1).await;
        assert!(!ground.elsewhere.lock("job").is_held().await.unwrap());
    }

    async fn a_lock_shorter_than_a_millisecond_lives_one(ground: Ground) {
        let lock = ground.locks.lock("job").ttl(Duration::from_micros(100));
        // So short a lock may be over before its answer is there.
        drop(lock.try_acquire().await);

        ground.outlive(ms(1)).await;

        assert!(!ground.elsewhere.lock("job").is_held().await.unwrap());
    }

    async fn the_longest_time_to_live_is_accepted(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(tower_stampede::lock::MAX_DURATION)).await;

        assert!(guard.remaining().await.unwrap().is_some());
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }

    async fn a_closed_manager_takes_no_lock_and_its_guards_still_release(ground: Ground) {
        let guard = take(&ground.locks.lock("job")).await;

        ground.locks.close();

        let error = ground.locks.lock("other").acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(is_busy(&ground.elsewhere.lock("job")).await, "locks stay");
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn a_guard_can_be_dropped_outside_of_a_runtime_and_still_releases() {
    let locks = tower_stampede::lock::LockManager::in_memory();
    let guard = take(&locks.lock("job")).await;

    std::thread::spawn(move || drop(guard)).join().unwrap();

    eventually(async || !locks.lock("job").is_held().await.unwrap()).await;
}

#[test]
fn a_guard_that_outlives_its_runtime_is_dropped_without_a_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let locks = tower_stampede::lock::LockManager::in_memory();
    let guard = runtime.block_on(async { take(&locks.lock("job").auto_extend()).await });

    drop(runtime);
    drop(guard);
}

#[test]
fn memory_does_not_claim_to_reach_other_processes_and_can_be_declared_to() {
    let locks = tower_stampede::lock::LockManager::in_memory();

    assert!(!locks.is_shared());
    assert!(locks.declared_shared().is_shared());
}
