//! Extending by hand and by itself, and losing a lock.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use tower_stampede::lock::{ErrorKind, Guard, Operation, Released, Remaining, Retry, Token};

use crate::lock_ground::{Fault, MINUTE, SHORT, eventually, ms, on_both, spawn, take};

const HOUR: Duration = Duration::from_secs(3600);

async fn left(guard: &Guard) -> Duration {
    guard
        .remaining()
        .await
        .unwrap()
        .unwrap()
        .duration()
        .unwrap()
}

on_both! {
    async fn an_extension_counts_from_now_be_it_longer_or_shorter(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(HOUR)).await;

        guard.extend(MINUTE).await.unwrap();
        assert!(left(&guard).await > Duration::from_secs(50) && left(&guard).await <= MINUTE);
        assert!(guard.valid_for().unwrap() <= MINUTE);

        guard.extend(HOUR).await.unwrap();
        assert!(left(&guard).await > Duration::from_secs(3500));
        assert!(guard.valid_for().unwrap() > Duration::from_secs(3500));
    }

    async fn time_can_be_added_to_what_remains(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(MINUTE)).await;

        guard.extend_by(Duration::from_secs(15)).await.unwrap();

        assert!(left(&guard).await > Duration::from_secs(70) && left(&guard).await <= Duration::from_secs(75));
        assert!(guard.valid_for().unwrap() > Duration::from_secs(65));
    }

    async fn an_addition_that_is_sent_twice_adds_once(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(MINUTE)).await;
        let read = take(&ground.locks.read("job").ttl(MINUTE)).await;

        ground.spy.fail_extends([Fault::Twice, Fault::Twice]);
        guard.extend_by(MINUTE).await.unwrap();
        read.extend_by(MINUTE).await.unwrap();

        assert!(left(&guard).await <= 2 * MINUTE);
        assert!(left(&read).await <= 2 * MINUTE);
    }

    async fn a_lock_becomes_persistent_and_ends_again(ground: Ground) {
        let guard = take(&ground.locks.lock("job").persistent()).await;

        guard.extend(Duration::from_secs(10)).await.unwrap();
        assert!(left(&guard).await <= Duration::from_secs(10));
        guard.persist().await.unwrap();
        assert_eq!(guard.remaining().await.unwrap(), Some(Remaining::Persistent));
        assert_eq!(guard.valid_for(), None);
        guard.extend(Duration::from_secs(30)).await.unwrap();
        guard.extend(Duration::from_secs(10)).await.unwrap();
        guard.extend(Duration::from_secs(30)).await.unwrap();
        assert!(left(&guard).await > Duration::from_secs(20));
    }

    async fn what_cannot_be_added_is_refused(ground: Ground) {
        let guard = take(&ground.locks.lock("job")).await;
        for error in [
            guard.extend(Duration::ZERO).await.unwrap_err(),
            guard.extend_by(Duration::ZERO).await.unwrap_err(),
            guard.extend(Duration::MAX).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(ground.spy.extends(), 0);

        guard.persist().await.unwrap();
        let error = guard.extend_by(MINUTE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(guard.remaining().await.unwrap(), Some(Remaining::Persistent));
    }

    async fn an_expired_lock_is_not_revived(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(SHORT)).await;
        ground.outlive(SHORT).await;

        assert_eq!(guard.extend(MINUTE).await.unwrap_err().kind(), ErrorKind::NotHeld);
        assert_eq!(guard.extend_by(MINUTE).await.unwrap_err().kind(), ErrorKind::NotHeld);

        assert!(!ground.elsewhere.lock("job").is_held().await.unwrap());
    }

    async fn a_lost_lock_is_reported_at_once_whatever_the_strategy_says(ground: Ground) {
        let guard = take(&ground.locks.lock("job")).await;
        assert!(ground.elsewhere.lock("job").force_release().await.unwrap());
        let _next = take(&ground.elsewhere.lock("job")).await;
        let before = ground.spy.extends();

        let error = guard.extend_with(MINUTE, &Retry::linear(HOUR).limit(2)).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::NotHeld);
        assert_eq!(ground.spy.extends() - before, 1);
        // Once it is known, it needs no network.
        assert!(guard.extend(MINUTE).await.is_err());
        assert_eq!(ground.spy.extends() - before, 1);
    }

    async fn an_extension_tries_again_as_often_as_its_strategy_says(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(MINUTE)).await;

        ground.spy.fail_extends([Fault::Unavailable, Fault::LoseReply]);
        guard.extend_with(HOUR, &Retry::linear(ms(5)).limit(5)).await.unwrap();
        assert_eq!(ground.spy.faults_left(), 0);

        ground.spy.fail_extends([Fault::Unavailable; 10]);
        let error = guard.extend_with(HOUR, &Retry::linear(ms(5)).limit(2)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(ground.spy.faults_left(), 7);
    }

    async fn an_auto_extended_lock_outlives_its_time_and_is_free_after_the_run(ground: Ground) {
        let lock = ground.locks.lock("job").ttl(ms(999)).auto_extend();

        let held = lock
            .run(async {
                let mut held = true;
                for _ in 0..5 {
                    tokio::time::sleep(ms(500)).await;
                    held &= ground.elsewhere.lock("job").is_held().await.unwrap();
                }
                held
            })
            .await
            .unwrap();

        assert_eq!(held, Some(true));
        assert!(!ground.elsewhere.lock("job").is_held().await.unwrap());
    }

    async fn nothing_is_extended_after_a_release_a_drop_or_a_keep(ground: Ground) {
        let lock = |name| ground.locks.lock(name).ttl(ms(600)).auto_extend();
        let released = take(&lock("a")).await;
        let dropped = take(&lock("b")).await;
        let kept = take(&lock("c")).await;

        assert_eq!(released.release().await.unwrap(), Released::Released);
        drop(dropped);
        kept.keep();
        ground.outlive(ms(600)).await;
        let extends = ground.spy.extends();
        ground.outlive(ms(600)).await;

        assert_eq!(ground.spy.extends(), extends);
        for name in ["a", "b", "c"] {
            assert!(!ground.elsewhere.lock(name).is_held().await.unwrap(), "{name}");
        }
    }

    async fn an_auto_extended_lock_that_is_taken_away_is_lost(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(ms(600)).auto_extend()).await;
        assert!(ground.elsewhere.lock("job").force_release().await.unwrap());
        let _next = take(&ground.elsewhere.lock("job")).await;

        tokio::time::timeout(MINUTE, guard.lost()).await.unwrap();

        assert!(!guard.is_valid());
        assert_eq!(guard.release().await.unwrap(), Released::HeldByAnother);
    }

    async fn failures_of_an_extension_are_survived_while_the_validity_lasts(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(Duration::from_secs(2)).auto_extend()).await;
        ground.spy.fail_extends([Fault::Unavailable, Fault::LoseRequest]);

        tokio::time::sleep(ms(3000)).await;

        assert!(guard.is_valid());
        assert_eq!(ground.spy.faults_left(), 0);
    }

    async fn extensions_that_fail_to_the_end_of_the_validity_lose_the_lock(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(ms(600)).auto_extend()).await;
        ground.spy.fail_extends(std::iter::repeat_n(Fault::Unavailable, 1000));
        let before = tokio::time::Instant::now();

        guard.lost().await;

        // It must know before others can take the lock; a busy machine may tell it late.
        assert!(before.elapsed() <= ms(600) || ground.locks.is_shared());
        assert!(!guard.is_valid());
    }

    async fn an_extension_that_hangs_does_not_hide_the_loss(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(ms(600)).auto_extend()).await;
        ground.spy.fail_extends([Fault::Hang]);

        tokio::time::timeout(MINUTE, guard.lost()).await.unwrap();

        assert!(!guard.is_valid());
    }

    async fn without_auto_extend_a_lock_is_lost_when_its_validity_is_over(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(ms(400))).await;
        let lost = guard.lost();

        tokio::time::timeout(MINUTE, lost).await.unwrap();

        assert!(!guard.is_valid());
    }

    async fn an_extension_postpones_the_loss_and_a_release_ends_the_watch(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(ms(600))).await;
        let lost = spawn(guard.lost());
        guard.extend(HOUR).await.unwrap();

        ground.outlive(ms(600)).await;

        assert!(!lost.is_finished());
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        lost.await.unwrap();
    }

    async fn a_run_is_cancelled_when_its_lock_is_lost(ground: Ground) {
        struct Flag<'a>(&'a AtomicBool);
        impl Drop for Flag<'_> {
            fn drop(&mut self) {
                self.0.store(true, SeqCst);
            }
        }
        let dropped = AtomicBool::new(false);
        let work = async {
            let _flag = Flag(&dropped);
            assert!(ground.elsewhere.lock("job").force_release().await.unwrap());
            std::future::pending::<()>().await;
        };

        let outcome = ground.locks.lock("job").ttl(ms(600)).auto_extend().run(work).await;

        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NotHeld);
        assert!(dropped.load(SeqCst));
    }

    async fn many_readers_are_kept_alive_together(ground: Ground) {
        let mut guards = Vec::new();
        for _ in 0..50 {
            guards.push(take(&ground.locks.read("r").ttl(Duration::from_secs(2)).auto_extend()).await);
        }

        tokio::time::sleep(ms(5000)).await;

        assert_eq!(ground.elsewhere.read("r").holders().await.unwrap().len(), 50);
        assert!(guards.iter().all(Guard::is_valid));
    }

    async fn a_renewal_leaves_a_longer_time_alone(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(ms(600)).auto_extend()).await;
        guard.extend(HOUR).await.unwrap();

        ground.outlive(ms(600)).await;

        assert!(left(&guard).await > Duration::from_secs(3500));
        guard.persist().await.unwrap();
        ground.outlive(ms(600)).await;
        assert_eq!(guard.remaining().await.unwrap(), Some(Remaining::Persistent));
    }

    async fn a_lock_whose_time_is_shortened_is_kept_alive_all_the_same(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(MINUTE).auto_extend()).await;
        tokio::task::yield_now().await;

        guard.extend(ms(600)).await.unwrap();
        ground.outlive(ms(600)).await;

        assert!(guard.is_valid());
        assert!(left(&guard).await > ms(600));
    }

    async fn whoever_has_the_token_extends_from_anywhere(ground: Ground) {
        let guard = take(&ground.locks.lock("job").ttl(MINUTE)).await;
        let read = take(&ground.locks.read("job").ttl(MINUTE)).await;
        let both = take(&ground.locks.lock_all(["a", "b"]).ttl(MINUTE)).await;

        ground.elsewhere.lock("job").ttl(HOUR).extend(guard.token()).await.unwrap();
        ground.elsewhere.read("job").persistent().extend(read.token()).await.unwrap();
        ground.elsewhere.lock_all(["b", "a"]).ttl(HOUR).extend(both.token()).await.unwrap();

        assert!(left(&guard).await > MINUTE && left(&both).await > MINUTE);
        assert_eq!(read.remaining().await.unwrap(), Some(Remaining::Persistent));
        assert!(guard.release().await.unwrap().was_held());
        let error = ground.elsewhere.lock("job").extend(both.token()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotHeld);
        assert_eq!(error.operation(), Some(Operation::Extend));
        assert!(!ground.elsewhere.lock("job").is_held().await.unwrap(), "nothing comes back to life");
        for request in [
            ground.elsewhere.lock("job").ttl(Duration::ZERO),
            ground.elsewhere.lock("job").ttl(Duration::MAX),
            ground.elsewhere.lock("job").wait(Duration::MAX),
        ] {
            let error = request.extend(both.token()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        let error = ground.elsewhere.lock("a").extend(&Token::new("")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    async fn a_lock_that_cannot_be_renewed_in_time_or_never_ends_is_refused(ground: Ground) {
        let lock = ground.locks.lock("job").auto_extend();
        for request in [lock.clone().ttl(ms(3)), lock.persistent()] {
            let error = request.try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(ground.spy.acquires(), 0);
    }

    async fn an_interrupted_acquisition_is_never_renewed(ground: Ground) {
        ground.spy.fail_acquires([Fault::Hang]);
        let request = ground.locks.lock("job").ttl(ms(600)).auto_extend();
        let task = spawn(async move { request.acquire().await.map(drop) });
        eventually(async || ground.spy.acquires() == 1).await;

        task.abort();

        eventually(async || ground.spy.withdrawals() == 1).await;
        ground.outlive(ms(600)).await;
        assert_eq!(ground.spy.extends(), 0);
        assert!(!ground.elsewhere.lock("job").is_held().await.unwrap());
    }
}
