//! Several locks taken together: all of them or none.

use std::time::Duration;

use tower_stampede::lock::{Attempt, ErrorKind, MAX_KEYS, Released};

use crate::lock_ground::{Fault, MINUTE, eventually, is_busy, ms, on_both, spawn, take};

on_both! {
    async fn all_are_taken_or_none(ground: Ground) {
        let one = take(&ground.locks.lock_all(["1", "2"])).await;
        let two = take(&ground.locks.lock_all(["3", "4"])).await;
        let across = ground.elsewhere.lock_all(["2", "3"]);

        assert!(is_busy(&across).await);
        assert!(one.release().await.unwrap().was_held());
        assert!(!is_busy(&ground.elsewhere.lock("1")).await);
        assert!(!is_busy(&ground.elsewhere.lock("2")).await, "nothing was set by the refusal");
        assert!(is_busy(&across).await);
        assert!(two.release().await.unwrap().was_held());
        assert!(!is_busy(&across).await);
    }

    async fn a_token_that_holds_only_some_of_them_is_refused(ground: Ground) {
        let _one = take(&ground.locks.lock("a").token("me")).await;

        assert!(is_busy(&ground.locks.lock_all(["a", "b"]).token("me")).await);

        assert!(!ground.locks.lock("b").is_held().await.unwrap());
    }

    async fn a_token_that_holds_all_of_them_takes_them_again(ground: Ground) {
        let first = take(&ground.locks.lock_all(["a", "b"]).token("me")).await;

        let second = take(&ground.elsewhere.lock_all(["b", "a"]).token("me")).await;

        assert!(!first.is_still_held().await.unwrap());
        assert!(second.is_still_held().await.unwrap());
    }

    async fn the_remaining_time_is_the_least_and_only_if_all_are_held(ground: Ground) {
        let both = take(&ground.locks.lock_all(["a", "b"]).token("me").ttl(MINUTE)).await;
        let alone = ground.elsewhere.lock("a").adopt(both.token()).await.unwrap().unwrap();
        alone.extend(Duration::from_secs(5)).await.unwrap();

        let left = both.remaining().await.unwrap().unwrap().duration().unwrap();
        assert!(left <= Duration::from_secs(5));

        assert!(ground.elsewhere.lock("a").force_release().await.unwrap());
        assert_eq!(both.remaining().await.unwrap(), None);
    }

    async fn if_one_is_lost_neither_release_nor_extension_touches_the_others(ground: Ground) {
        let both = take(&ground.locks.lock_all(["a", "b"]).ttl(MINUTE)).await;
        assert!(ground.elsewhere.lock("b").force_release().await.unwrap());
        let _other = take(&ground.elsewhere.lock("b")).await;

        let extended = both.extend(Duration::from_secs(600)).await;
        let holder = ground.locks.lock("a").holder().await.unwrap().unwrap();
        assert_eq!(extended.unwrap_err().kind(), ErrorKind::NotHeld);
        assert!(holder.remaining().duration().unwrap() <= MINUTE);
        assert_eq!(both.release().await.unwrap(), Released::HeldByAnother);

        assert!(ground.locks.lock("a").is_held().await.unwrap());
        assert!(ground.locks.lock("b").is_held().await.unwrap());
    }

    async fn names_given_twice_count_once(ground: Ground) {
        let request = ground.locks.lock_all(["a", "b", "a", "a"]);
        assert_eq!(request.keys().count(), 2);

        let guard = take(&request).await;

        assert_eq!(guard.keys().count(), 2);
        assert!(guard.release().await.unwrap().was_held());
        assert!(!request.is_held().await.unwrap());
    }

    async fn a_thousand_can_be_taken_together(ground: Ground) {
        let names: Vec<_> = (0..MAX_KEYS).map(|number| number.to_string()).collect();

        let guard = take(&ground.locks.lock_all(&names).fencing()).await;

        guard.extend(MINUTE).await.unwrap();
        assert!(is_busy(&ground.elsewhere.lock("999")).await);
        assert!(guard.release().await.unwrap().was_held());
        assert!(!ground.elsewhere.lock("0").is_held().await.unwrap());
    }

    async fn none_or_too_many_are_refused_before_anything_is_sent(ground: Ground) {
        let none: [&str; 0] = [];
        let many = (0..=MAX_KEYS).map(|number| number.to_string());

        for request in [ground.locks.lock_all(none), ground.locks.lock_all(many)] {
            let error = request.try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(ground.spy.acquires(), 0);
    }

    async fn a_waiter_for_several_is_woken_by_the_release_of_any(ground: Ground) {
        let a = take(&ground.elsewhere.lock("a")).await;
        let b = take(&ground.elsewhere.lock("b")).await;
        let waiting = spawn({
            let request = ground.locks.lock_all(["a", "b"]).wait(MINUTE);
            async move { request.acquire().await }
        });
        tokio::time::sleep(ms(20)).await;

        assert!(a.release().await.unwrap().was_held());
        assert!(b.release().await.unwrap().was_held());

        assert!(waiting.await.unwrap().is_ok());
    }

    async fn single_waiters_are_woken_by_a_release_of_several(ground: Ground) {
        let both = take(&ground.elsewhere.lock_all(["a", "b"])).await;
        let mut waiting = tokio::task::JoinSet::new();
        for name in ["a", "b"] {
            let request = ground.locks.lock(name).wait(MINUTE);
            waiting.spawn(async move { request.acquire().await.unwrap() });
        }
        tokio::time::sleep(ms(20)).await;

        assert!(both.release().await.unwrap().was_held());

        assert_eq!(waiting.join_all().await.len(), 2);
    }

    async fn a_refusal_tells_the_time_of_the_longest_in_the_way(ground: Ground) {
        let _short = take(&ground.locks.lock("a").ttl(Duration::from_secs(5))).await;
        let _long = take(&ground.locks.lock("b").ttl(MINUTE)).await;

        let Attempt::Busy(busy) = ground.elsewhere.lock_all(["a", "b", "c"]).try_acquire().await.unwrap() else {
            panic!("not busy");
        };

        assert!(busy.remaining().unwrap().duration().unwrap() > Duration::from_secs(50));
    }

    async fn numbers_of_overlapping_sets_grow(ground: Ground) {
        let mut last = 0;
        for names in [["a", "b"], ["b", "c"], ["a", "c"]] {
            let guard = take(&ground.locks.lock_all(names).fencing()).await;
            assert!(guard.fencing_number().unwrap() > last);
            last = guard.fencing_number().unwrap();
            assert!(guard.release().await.unwrap().was_held());
        }
    }

    async fn an_attempt_of_unknown_outcome_leaves_none_of_them_locked(ground: Ground) {
        ground.spy.fail_acquires([Fault::LoseReply]);

        assert!(ground.locks.lock_all(["a", "b"]).try_acquire().await.is_err());

        eventually(async || ground.spy.withdrawals() == 1).await;
        assert!(!ground.locks.lock_all(["a", "b"]).is_held().await.unwrap());
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_none_is_set() {
    let ground = crate::lock_ground::Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    let request = ground.locks.lock_all(["a", "b"]);
    let keys: Vec<_> = request.keys().map(str::to_owned).collect();
    server.command::<()>(&["LPUSH", &keys[1], "x"]);

    let error = request.try_acquire().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(error.code(), Some("WRONGTYPE"));
    assert_eq!(error.key(), Some(keys[0].as_str()));
    assert!(
        error
            .to_string()
            .starts_with("acquire of lock buffer:lock:")
    );
    assert_eq!(server.command::<u64>(&["EXISTS", &keys[0]]), 0);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn keys_of_several_cluster_slots_are_refused_before_anything_is_sent() {
    use tower_stampede::{
        RedisConfig,
        lock::{LockManager, Naming},
    };

    // Nobody listens there: what is sent would fail in another way.
    let builder = || LockManager::builder().redis(RedisConfig::cluster(["redis://127.0.0.1:1/"]));
    let kind = async |locks: LockManager| {
        let error = locks.lock_all(["a", "b"]).try_acquire().await.unwrap_err();
        error.kind()
    };

    let apart = builder().build().unwrap();
    let together = builder().naming(Naming::OneSlot).build().unwrap();

    assert_eq!(kind(apart).await, ErrorKind::CrossSlot);
    assert_eq!(kind(together).await, ErrorKind::Unavailable);
}
