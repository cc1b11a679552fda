//! Futures that are dropped in the middle, and attempts that arrive when nobody waits for them any more.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tower_stampede::lock::{Acquire, ErrorKind, OnDrop, backend::Grant};

use crate::lock_ground::{
    Fault, Ground, MINUTE, eventually, is_busy, ms, on_both, poll_once, spawn, take,
};

/// More polls than any of these futures needs.
const POLLS: usize = 12;

/// One request of each kind, all for the same names.
fn requests(ground: &Ground) -> [Acquire; 8] {
    let locks = &ground.locks;
    [
        locks.lock("a"),
        locks.lock("a").wait(MINUTE),
        locks.lock("a").persistent().on_drop(OnDrop::Expire),
        locks
            .lock("a")
            .token("me")
            .metadata("host 7")
            .fencing()
            .wait(MINUTE),
        locks.lock_all(["a", "b"]).wait(MINUTE),
        locks.read("a").persistent(),
        locks.write("a").wait(MINUTE),
        locks.write("a").prefer_writer().wait(MINUTE),
    ]
}

/// Polls `future` so many times, with a little time for the backend in between, and drops it.
async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(done) = Pin::as_mut(&mut future).poll(&mut context) {
            return Some(done);
        }
        tokio::time::sleep(ms(1)).await;
    }
    None
}

async fn becomes_free(request: &Acquire) {
    eventually(async || !request.is_held().await.unwrap()).await;
}

on_both! {
    async fn an_acquisition_dropped_at_any_point_leaves_nothing_held(ground: Ground) {
        for request in requests(&ground) {
            for polls in 0..POLLS {
                if let Some(guard) = drop_after(polls, request.acquire()).await {
                    assert!(guard.unwrap().release().await.unwrap().was_held());
                }
                becomes_free(&request).await;
            }
        }
    }

    async fn a_wait_dropped_at_any_point_leaves_no_place_in_the_line(ground: Ground) {
        for request in requests(&ground) {
            let held = [
                take(&ground.elsewhere.lock("a")).await,
                take(&ground.elsewhere.write("a")).await,
            ];
            for polls in 0..POLLS {
                let waited = drop_after(polls, request.acquire()).await;
                assert!(waited.is_none_or(|waited| waited.is_err()));
            }
            for guard in held {
                assert!(guard.release().await.unwrap().was_held());
            }
            becomes_free(&request).await;
            // Whoever comes next stands behind nobody.
            let next = tokio::time::timeout(Duration::from_secs(1), request.acquire()).await;
            assert!(next.expect("it is free").unwrap().release().await.unwrap().was_held());
        }
    }

    async fn a_release_or_a_run_dropped_at_any_point_frees_the_lock(ground: Ground) {
        for request in requests(&ground) {
            for polls in 0..POLLS {
                let guard = take(&request).await;
                drop_after(polls, guard.release()).await;
                becomes_free(&request).await;

                drop_after(polls, request.run(tokio::time::sleep(ms(3)))).await;
                becomes_free(&request).await;
            }
        }
    }

    async fn an_extension_dropped_at_any_point_leaves_the_lock_to_its_guard(ground: Ground) {
        for request in requests(&ground) {
            for polls in 0..4 {
                let guard = take(&request).await;

                drop_after(polls, guard.extend(MINUTE)).await;
                drop_after(polls, guard.extend_by(MINUTE)).await;

                guard.extend(MINUTE).await.unwrap();
                assert!(guard.is_still_held().await.unwrap());
                assert!(guard.release().await.unwrap().was_held());
            }
        }
    }

    async fn an_attempt_that_arrives_after_it_was_taken_back_is_refused(ground: Ground) {
        let more = [
            ground.locks.lock("a").persistent(),
            ground.locks.lock("a").fencing(),
            ground.locks.read("a").fencing(),
        ];
        for request in requests(&ground).into_iter().chain(more) {
            let before = ground.spy.withdrawals();
            ground.spy.fail_acquires([Fault::Overtake]);
            let error = request.try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            eventually(async || ground.spy.withdrawals() > before).await;

            let grant = ground.spy.arrive().await.unwrap().unwrap();

            assert!(matches!(grant, Grant::Withdrawn), "{grant:?}");
            assert!(!request.is_held().await.unwrap());
            assert!(!is_busy(&request.clone().wait(Duration::ZERO)).await);
        }
    }

    async fn a_lock_taken_again_in_vain_is_given_up_altogether(ground: Ground) {
        let lock = ground.locks.lock("a").token("me");
        let first = take(&lock).await;
        ground.spy.fail_acquires([Fault::LoseRequest]);
        assert!(lock.try_acquire().await.is_err());
        eventually(async || ground.spy.withdrawals() == 1).await;
        assert!(first.is_still_held().await.unwrap(), "nothing had happened");

        ground.spy.fail_acquires([Fault::LoseReply]);
        assert!(lock.try_acquire().await.is_err());
        eventually(async || ground.spy.withdrawals() == 2).await;

        assert!(!first.is_still_held().await.unwrap());
        assert!(!is_busy(&ground.elsewhere.lock("a")).await);
    }

    async fn waiters_that_come_and_go_at_random_leave_the_lock_free_and_let_everyone_in(ground: Ground) {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..100_u64 {
            let locks = if number % 3 == 0 { &ground.elsewhere } else { &ground.locks };
            let request = locks.lock("a").wait(MINUTE);
            tasks.spawn(async move {
                tokio::time::sleep(ms(fastrand::u64(0..30))).await;
                let patience = ms(if number % 2 == 0 { fastrand::u64(0..40) } else { 60_000 });
                match tokio::time::timeout(patience, request.acquire()).await {
                    Ok(guard) => {
                        tokio::time::sleep(ms(fastrand::u64(0..3))).await;
                        drop(guard.unwrap().release().await);
                        true
                    }
                    Err(_) => number % 2 == 0,
                }
            });
        }

        assert!(tasks.join_all().await.into_iter().all(|came_in_or_left| came_in_or_left));

        becomes_free(&ground.locks.lock("a")).await;
        #[cfg(feature = "redis")]
        if let Some(server) = &ground.server {
            eventually(async || {
                let channels: Vec<String> = server.command(&["PUBSUB", "CHANNELS", "*"]);
                channels.is_empty()
            })
            .await;
        }
    }

    async fn a_reader_that_gives_up_has_nothing_to_take_back(ground: Ground) {
        let _writer = take(&ground.elsewhere.write("a")).await;

        let error = ground.locks.read("a").prefer_writer().wait(ms(30)).acquire().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Busy);
        tokio::time::sleep(ms(20)).await;
        assert_eq!(ground.spy.withdrawals(), 0);
    }

    async fn a_head_of_the_line_that_is_dropped_hands_its_place_on(ground: Ground) {
        let guard = take(&ground.elsewhere.lock("a")).await;
        let request = ground.locks.lock("a").wait(MINUTE);
        let mut head = Box::pin(request.acquire());
        poll_once(head.as_mut()).await;
        let behind = spawn({
            let request = request.clone();
            async move { request.acquire().await.map(drop) }
        });
        tokio::time::sleep(ms(20)).await;

        drop(head);
        assert!(guard.release().await.unwrap().was_held());

        let came_in = tokio::time::timeout(Duration::from_millis(900), behind).await;
        assert!(came_in.expect("woken, not polled").unwrap().is_ok());
    }
}
