//! Waiting: woken by releases, in line, within a deadline.

use std::time::Duration;

use tokio::{sync::mpsc, time::Instant};
use tower_stampede::lock::{ErrorKind, Remaining, Retry};

use crate::lock_ground::{Fault, Ground, MINUTE, eventually, is_busy, ms, on_both, spawn, take};

/// A task that waits for the lock `name` and has sent its first attempt.
async fn waiter(ground: &Ground, name: &str) -> tokio::task::JoinHandle<Instant> {
    let before = ground.spy.acquires();
    let request = ground.locks.lock(name).wait(MINUTE);
    let task = spawn(async move {
        let guard = request.acquire().await.unwrap();
        let woken = Instant::now();
        assert!(guard.release().await.unwrap().was_held());
        woken
    });
    eventually(async || ground.spy.acquires() > before).await;
    task
}

/// How a lock ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Release,
    Force,
    Shorten,
    Time,
}

on_both! {
    async fn a_waiter_is_woken_by_a_release(ground: Ground) {
        let guard = take(&ground.elsewhere.lock("job")).await;
        let waiting = waiter(&ground, "job").await;

        let released = Instant::now();
        assert!(guard.release().await.unwrap().was_held());

        assert!(waiting.await.unwrap() - released < Duration::from_secs(1));
    }

    async fn a_waiter_is_woken_by_a_forced_release(ground: Ground) {
        let _guard = take(&ground.elsewhere.lock("job")).await;
        let waiting = waiter(&ground, "job").await;

        let released = Instant::now();
        assert!(ground.elsewhere.lock("job").force_release().await.unwrap());

        assert!(waiting.await.unwrap() - released < Duration::from_secs(1));
    }

    async fn a_waiter_comes_in_when_the_time_is_over(ground: Ground) {
        take(&ground.elsewhere.lock("job").ttl(ms(500))).await.keep();

        let guard = ground.locks.lock("job").wait(MINUTE).acquire().await.unwrap();

        assert!(guard.is_valid());
    }

    async fn a_waiter_hears_that_the_time_was_shortened(ground: Ground) {
        let guard = take(&ground.elsewhere.lock("job").persistent()).await;
        let read = take(&ground.elsewhere.read("job").persistent()).await;
        let waiting = waiter(&ground, "job").await;
        let writer = spawn({
            let request = ground.locks.write("job").wait(MINUTE);
            async move { request.acquire().await }
        });

        let shortened = Instant::now();
        guard.extend(ms(50)).await.unwrap();
        read.extend(ms(50)).await.unwrap();

        assert!(waiting.await.unwrap() - shortened < Duration::from_secs(1));
        assert!(writer.await.unwrap().is_ok());
        assert!(shortened.elapsed() < Duration::from_secs(2));
    }

    async fn whoever_waits_is_woken_however_the_lock_ends(ground: Ground) {
        let (here, there) = (&ground.locks, &ground.elsewhere);
        for (held, wanted) in [
            (there.lock("job"), here.lock("job")),
            (there.lock_all(["job", "b"]), here.lock("b")),
            (there.read("job"), here.write("job")),
            (there.write("job"), here.write("job")),
            (there.write("job"), here.read("job")),
        ] {
            for end in [End::Release, End::Force, End::Shorten, End::Time] {
                let ttl = if end == End::Time { ms(100) } else { MINUTE };
                let guard = take(&held.clone().ttl(ttl)).await;
                let before = ground.spy.acquires();
                let waiting = spawn({
                    let request = wanted.clone().wait(MINUTE);
                    async move { request.acquire().await.unwrap().release().await.unwrap() }
                });
                eventually(async || ground.spy.acquires() > before).await;

                let ended = Instant::now();
                match end {
                    End::Release => assert!(guard.release().await.unwrap().was_held()),
                    End::Force => assert!(held.force_release().await.unwrap()),
                    End::Shorten => guard.extend(ms(50)).await.unwrap(),
                    End::Time => guard.keep(),
                }

                assert!(waiting.await.unwrap().was_held());
                assert!(ended.elapsed() < Duration::from_secs(1), "{end:?}: {:?}", ended.elapsed());
                eventually(async || !held.is_held().await.unwrap()).await;
            }
        }
    }

    async fn a_wait_that_is_over_says_so_and_not_before_its_time(ground: Ground) {
        let _guard = take(&ground.elsewhere.lock("job").ttl(MINUTE)).await;
        let before = Instant::now();

        let error = ground.locks.lock("job").wait(ms(50)).acquire().await.unwrap_err();

        assert!(before.elapsed() >= ms(50) && before.elapsed() < ms(1000));
        assert_eq!(error.kind(), ErrorKind::Busy);
        let busy = error.busy().unwrap();
        assert!(busy.deadline_passed());
        assert!(matches!(busy.remaining(), Some(Remaining::Millis(50_000..))));
        assert!(error.key().unwrap().starts_with("buffer:lock:"));
    }

    async fn without_a_wait_one_attempt_is_made(ground: Ground) {
        let _guard = take(&ground.elsewhere.lock("job")).await;

        for request in [ground.locks.lock("job"), ground.locks.lock("job").wait(Duration::ZERO)] {
            let before = ground.spy.acquires();
            let error = request.acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy);
            assert!(!error.busy().unwrap().deadline_passed());
            assert_eq!(ground.spy.acquires() - before, 1);
        }
    }

    async fn a_wait_of_nothing_is_one_attempt_whatever_else_is_asked_for(ground: Ground) {
        let _guard = take(&ground.elsewhere.lock("job")).await;
        let lock = ground.locks.lock("job").wait(Duration::ZERO);

        for request in [
            lock.clone().retry(Retry::linear(ms(5))),
            lock.clone().deadline(Instant::now() + MINUTE),
        ] {
            let before = ground.spy.acquires();
            assert_eq!(request.acquire().await.unwrap_err().kind(), ErrorKind::Busy);
            assert_eq!(ground.spy.acquires() - before, 1);
        }
    }

    async fn run_waits_too_and_gives_up_at_the_deadline(ground: Ground) {
        let guard = take(&ground.elsewhere.lock("job")).await;
        assert_eq!(ground.locks.lock("job").wait(ms(30)).run(async {}).await.unwrap(), None);

        let running = spawn({
            let request = ground.locks.lock("job").wait(MINUTE);
            async move { request.run(async { 7 }).await }
        });
        tokio::time::sleep(ms(20)).await;
        assert!(guard.release().await.unwrap().was_held());

        assert_eq!(running.await.unwrap().unwrap(), Some(7));
    }

    async fn a_deadline_that_has_passed_costs_no_command(ground: Ground) {
        let past = Instant::now();
        tokio::time::sleep(ms(2)).await;
        let lock = ground.locks.lock("job").deadline(past);

        let error = lock.acquire().await.unwrap_err();

        assert!(error.busy().unwrap().deadline_passed());
        assert!(lock.try_acquire().await.unwrap().guard().is_none());
        assert_eq!(lock.run(async {}).await.unwrap(), None);
        assert_eq!(ground.spy.acquires(), 0);
    }

    async fn a_lock_does_not_outlive_its_deadline(ground: Ground) {
        let lock = ground.locks.lock("job").ttl(MINUTE);

        let guard = lock.deadline(Instant::now() + Duration::from_secs(5)).acquire().await.unwrap();

        assert!(guard.valid_for().unwrap() <= Duration::from_secs(5));
        let left = guard.remaining().await.unwrap().unwrap().duration().unwrap();
        assert!(left <= Duration::from_secs(5));
    }

    async fn two_hundred_waiters_cost_about_two_hundred_attempts(ground: Ground) {
        let guard = take(&ground.elsewhere.lock("job")).await;
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let request = ground.locks.lock("job").wait(MINUTE);
            waiting.spawn(async move {
                let guard = request.acquire().await.unwrap();
                assert!(guard.release().await.unwrap().was_held());
            });
        }
        eventually(async || ground.spy.acquires() > 1).await;
        let before = ground.spy.acquires();

        assert!(guard.release().await.unwrap().was_held());
        assert_eq!(waiting.join_all().await.len(), 200);

        let attempts = ground.spy.acquires() - before;
        assert!((199..=260).contains(&attempts), "{attempts} attempts");
    }

    async fn waiters_come_in_in_the_order_in_which_they_came(ground: Ground) {
        let guard = take(&ground.elsewhere.lock("job")).await;
        let (sender, mut order) = mpsc::unbounded_channel();
        for number in 0..10 {
            let (request, sender) = (ground.locks.lock("job").wait(MINUTE), sender.clone());
            spawn(async move {
                let guard = request.acquire().await.unwrap();
                sender.send(number).unwrap();
                assert!(guard.release().await.unwrap().was_held());
            });
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(ms(10)).await;

        assert!(guard.release().await.unwrap().was_held());

        for number in 0..10 {
            assert_eq!(order.recv().await, Some(number));
        }
    }

    async fn a_hundred_cancelled_waiters_leave_the_line_to_those_who_stay(ground: Ground) {
        let guard = take(&ground.elsewhere.lock("job")).await;
        let mut cancelled = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let request = ground.locks.lock("job").wait(MINUTE);
            cancelled.spawn(async move { request.acquire().await.map(drop) });
        }
        let staying = waiter(&ground, "job").await;

        cancelled.shutdown().await;
        assert!(guard.release().await.unwrap().was_held());

        staying.await.unwrap();
        assert!(!ground.elsewhere.lock("job").is_held().await.unwrap());
    }

    async fn waiters_behind_a_future_that_nobody_polls_come_in_all_the_same(ground: Ground) {
        use std::future::poll_fn;

        let guard = take(&ground.elsewhere.lock("job").ttl(MINUTE)).await;
        let request = ground.locks.lock("job").wait(MINUTE);
        let mut stalled = Box::pin(async move { request.acquire().await });
        // Far enough to stand in line.
        while ground.spy.acquires() < 2 {
            poll_fn(|context| {
                assert!(stalled.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            tokio::time::sleep(ms(1)).await;
        }
        let behind = spawn({
            let request = ground.locks.lock("job").wait(MINUTE);
            async move { request.acquire().await.map(drop) }
        });
        tokio::time::sleep(ms(10)).await;
        assert!(guard.release().await.unwrap().was_held());

        assert!(behind.await.unwrap().is_ok());
    }

    async fn closing_ends_all_waits_and_leaves_the_locks(ground: Ground) {
        let _guard = take(&ground.elsewhere.lock("job")).await;
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..10 {
            let request = ground.locks.lock("job").wait(MINUTE);
            let request = if number % 2 == 0 { request } else { request.retry(Retry::linear(MINUTE / 2)) };
            waiting.spawn(async move { request.acquire().await.map(drop).unwrap_err().kind() });
        }
        eventually(async || ground.spy.acquires() >= 6).await;
        let closed = Instant::now();

        ground.locks.close();

        for kind in waiting.join_all().await {
            assert_eq!(kind, ErrorKind::Closed);
        }
        assert!(closed.elapsed() < Duration::from_secs(1));
        assert!(ground.elsewhere.lock("job").is_held().await.unwrap());
    }

    async fn a_retry_strategy_gives_up_after_its_attempts(ground: Ground) {
        let guard = take(&ground.elsewhere.lock("job")).await;
        let retrying = |retry| ground.locks.lock("job").retry(retry);

        let error = retrying(Retry::linear(ms(5)).limit(2)).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(!error.busy().unwrap().deadline_passed());
        assert_eq!(ground.spy.acquires(), 3);
        assert!(retrying(Retry::none()).acquire().await.is_err());
        assert_eq!(ground.spy.acquires(), 4);

        let waiting = spawn({
            let request = retrying(Retry::exponential(ms(5), ms(50)));
            async move { request.acquire().await.map(drop) }
        });
        tokio::time::sleep(ms(20)).await;
        assert!(guard.release().await.unwrap().was_held());
        assert!(waiting.await.unwrap().is_ok());
    }

    async fn a_retry_strategy_stops_at_the_deadline_and_else_after_the_time_to_live(ground: Ground) {
        let _guard = take(&ground.elsewhere.lock("job")).await;
        let retrying = ground.locks.lock("job").retry(Retry::linear(ms(7)));

        let before = Instant::now();
        let error = retrying.clone().wait(ms(40)).acquire().await.unwrap_err();
        assert!(error.busy().unwrap().deadline_passed());
        assert!(before.elapsed() >= ms(40) && before.elapsed() < ms(1000));

        let before = Instant::now();
        let error = retrying.ttl(ms(60)).acquire().await.unwrap_err();
        assert!(error.busy().unwrap().deadline_passed());
        assert!(before.elapsed() >= ms(60) && before.elapsed() < ms(1000));
    }

    async fn failures_that_may_pass_are_waited_out(ground: Ground) {
        ground.spy.fail_acquires([
            Fault::Unavailable,
            Fault::Refuse("LOADING"),
            Fault::Refuse("MASTERDOWN"),
            Fault::Refuse("CLUSTERDOWN"),
            Fault::Refuse("TRYAGAIN"),
            Fault::Refuse("BUSY"),
            Fault::LoseReply,
            Fault::LoseRequest,
        ]);

        let guard = ground.locks.lock("job").wait(MINUTE).acquire().await.unwrap();

        assert_eq!(ground.spy.faults_left(), 0);
        assert!(guard.is_still_held().await.unwrap());
        eventually(async || ground.spy.withdrawals() == 2).await;
        assert!(guard.is_still_held().await.unwrap(), "only the lost attempts were taken back");
    }

    async fn failures_that_last_end_the_wait_with_the_failure(ground: Ground) {
        ground.spy.fail_acquires([Fault::Unavailable; 100]);
        let error = ground.locks.lock("job").wait(ms(120)).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);

        let ground = Ground::in_memory();
        ground.spy.fail_acquires([Fault::Refuse("NOPERM")]);
        let error = ground.locks.lock("job").wait(MINUTE).acquire().await.unwrap_err();
        assert_eq!(error.code(), Some("NOPERM"));
        assert_eq!(ground.spy.acquires(), 1);
    }

    async fn a_deadline_within_a_command_is_no_refusal_and_leaves_no_lock(ground: Ground) {
        ground.spy.fail_acquires([Fault::Hang]);

        let error = ground.locks.lock("job").wait(ms(50)).acquire().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        eventually(async || ground.spy.withdrawals() == 1).await;
        assert!(!ground.elsewhere.lock("job").is_held().await.unwrap());
    }

    async fn an_attempt_of_unknown_outcome_leaves_no_lock(ground: Ground) {
        for fault in [Fault::LoseReply, Fault::LoseRequest] {
            let before = ground.spy.withdrawals();
            ground.spy.fail_acquires([fault]);

            let error = ground.locks.lock("job").try_acquire().await.unwrap_err();

            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            eventually(async || ground.spy.withdrawals() == before + 1).await;
            assert!(!ground.elsewhere.lock("job").is_held().await.unwrap());
        }
    }

    async fn an_acquisition_that_is_dropped_leaves_no_lock(ground: Ground) {
        ground.spy.fail_acquires([Fault::Hang]);
        let request = ground.locks.lock("job");
        let task = spawn(async move { request.acquire().await.map(drop) });
        eventually(async || ground.elsewhere.lock("job").is_held().await.unwrap()).await;

        task.abort();

        eventually(async || !ground.elsewhere.lock("job").is_held().await.unwrap()).await;
    }

    async fn an_acquisition_that_is_never_polled_sends_nothing(ground: Ground) {
        let lock = ground.locks.lock("job").wait(MINUTE);

        drop(lock.acquire());

        assert_eq!(ground.spy.acquires() + ground.spy.withdrawals(), 0);
    }

    async fn the_last_waiter_gone_a_newcomer_starts_a_new_line(ground: Ground) {
        let guard = take(&ground.elsewhere.lock("job")).await;
        for _ in 0..3 {
            assert!(ground.locks.lock("job").wait(ms(10)).acquire().await.is_err());
        }

        let waiting = waiter(&ground, "job").await;
        assert!(guard.release().await.unwrap().was_held());

        waiting.await.unwrap();
        assert!(!is_busy(&ground.elsewhere.lock("job")).await);
    }
}
