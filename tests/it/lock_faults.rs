//! What a real Redis and a bad network do to locks.
#![cfg(feature = "redis")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower_stampede::lock::{ErrorKind, LockManager, Released};

use crate::{
    lock_ground::{MINUTE, eventually, is_busy, ms, spawn, take},
    support::{proxy::FaultProxy, redis::RedisServer},
};

fn locks(url: &str) -> LockManager {
    LockManager::redis(url).unwrap()
}

#[tokio::test]
async fn nothing_listens_there_and_every_call_says_so_at_once() {
    let locks = locks("redis://127.0.0.1:1/");
    let before = Instant::now();

    let error = locks.lock("job").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(std::error::Error::source(&error).is_some());
    for _ in 0..100 {
        let error = locks.lock("job").acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert_eq!(
        locks.lock("job").is_held().await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    assert_eq!(
        locks.connect().await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    assert!(before.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_lost_reply_is_an_unknown_outcome_and_the_acquisition_is_taken_back() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let (far, near) = (locks(&proxy.url()), locks(&server.url()));
    assert!(!is_busy(&far.lock("warm")).await);

    proxy.lose_next_reply();
    let error = far.lock("job").try_acquire().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    eventually(async || !near.lock("job").is_held().await.unwrap()).await;
    // The tombstone is what a late attempt would meet.
    eventually(async || {
        let stones: Vec<String> = server.command(&["KEYS", "*:~x:*"]);
        stones.len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_has_released_once() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let (far, near) = (locks(&proxy.url()), locks(&server.url()));
    assert!(
        !is_busy(&far.lock("warm")).await,
        "the server knows the script"
    );
    let guard = take(&far.lock("job")).await;

    proxy.lose_next_reply();
    let error = guard.release().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert!(!near.lock("job").is_held().await.unwrap());
}

#[tokio::test]
async fn attempts_that_time_out_on_a_frozen_server_leave_no_lock_when_it_wakes() {
    let server = RedisServer::start();
    let (here, there) = (locks(&server.url()), locks(&server.url()));
    assert!(!is_busy(&here.lock("warm")).await);
    let mut attempts = tokio::task::JoinSet::new();

    server.pause();
    for number in 0..20 {
        let request = here.lock(format!("job {number}"));
        attempts.spawn(async move { request.try_acquire().await.map(drop).unwrap_err() });
    }
    for error in attempts.join_all().await {
        assert!(matches!(
            error.kind(),
            ErrorKind::OutcomeUnknown | ErrorKind::Unavailable
        ));
    }
    server.resume();

    eventually(async || {
        let stones: Vec<String> = server.command(&["KEYS", "*:~x:*"]);
        stones.len() == 20
    })
    .await;
    for number in 0..20 {
        assert!(!there.lock(format!("job {number}")).is_held().await.unwrap());
    }
}

#[tokio::test]
async fn a_frozen_server_costs_a_call_no_more_than_its_timeout() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    assert!(!is_busy(&locks.lock("warm")).await);

    server.pause();
    for _ in 0..4 {
        let before = Instant::now();
        assert!(locks.lock("job").is_held().await.is_err());
        assert!(before.elapsed() < ms(600));
    }
    server.resume();

    eventually(async || locks.lock("job").is_held().await.is_ok()).await;
}

#[tokio::test]
async fn a_killed_server_fails_fast_and_is_found_again_after_its_restart() {
    let mut server = RedisServer::start();
    let locks = locks(&server.url());
    let guard = take(&locks.lock("job")).await;

    server.kill();
    assert!(guard.is_still_held().await.is_err());
    let before = Instant::now();
    for _ in 0..100 {
        assert!(locks.lock("job").is_held().await.is_err());
    }
    assert!(before.elapsed() < Duration::from_secs(1));

    server.restart();
    eventually(async || locks.lock("job").is_held().await.is_ok()).await;
    assert_eq!(guard.release().await.unwrap(), Released::Expired);
}

#[tokio::test]
async fn waiters_survive_a_restart_and_come_in() {
    let mut server = RedisServer::start();
    let locks = locks(&server.url());
    let _guard = take(&locks.lock("job")).await;
    let waiting = spawn({
        let request = locks.lock("job").wait(MINUTE);
        async move { request.acquire().await.map(drop) }
    });
    eventually(async || server.clients("pubsub") == 1).await;

    server.kill();
    server.restart();

    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test]
async fn fencing_numbers_grow_although_the_server_lost_its_memory() {
    let mut server = RedisServer::start();
    let before = {
        let guard = take(&locks(&server.url()).lock("job").fencing()).await;
        guard.fencing_number().unwrap()
    };

    server.restart();

    let guard = take(&locks(&server.url()).lock("job").fencing()).await;
    assert!(guard.fencing_number().unwrap() > before);
}

#[tokio::test]
async fn calls_that_do_not_wait_for_the_lock_end_with_the_wait_and_change_nothing() {
    let server = RedisServer::start();
    let locks = LockManager::builder()
        .redis(server.url())
        .command_timeout(Duration::from_secs(5))
        .build()
        .unwrap();
    let guard = take(&locks.lock("job")).await;
    let brief = locks.lock("job").wait(ms(50));

    server.pause();
    for error in [
        brief.release(guard.token()).await.map(drop).unwrap_err(),
        brief.is_held().await.map(drop).unwrap_err(),
        brief.acquire().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    }
    server.resume();

    assert!(
        locks
            .lock("job")
            .wait(Duration::from_secs(1))
            .exists(tower_stampede::lock::Who::Anyone)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_wait_ends_on_time_although_the_server_does_not_answer() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    take(&locks.lock("job")).await.keep();
    let waiting = spawn({
        let request = locks.lock("job").wait(ms(300));
        async move {
            let before = Instant::now();
            (
                request.acquire().await.map(drop).unwrap_err().kind(),
                before.elapsed(),
            )
        }
    });
    eventually(async || server.clients("pubsub") == 1).await;

    server.pause();
    let (kind, took) = waiting.await.unwrap();
    server.resume();

    assert!(matches!(
        kind,
        ErrorKind::OutcomeUnknown | ErrorKind::Busy | ErrorKind::Unavailable
    ));
    assert!(took < ms(600), "{took:?}");
}

#[tokio::test]
async fn an_auto_extended_lock_is_lost_before_another_can_take_it_when_its_holder_is_cut_off() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let (far, near) = (locks(&proxy.url()), locks(&server.url()));
    let guard = take(&far.lock("job").ttl(ms(1500)).auto_extend()).await;
    let next = spawn({
        let request = near.lock("job").wait(MINUTE);
        async move { (request.acquire().await.unwrap(), Instant::now()) }
    });

    proxy.freeze();
    guard.lost().await;
    let lost = Instant::now();
    let (next, taken) = next.await.unwrap();
    proxy.heal();

    assert!(lost <= taken);
    assert!(next.is_still_held().await.unwrap());
    assert!(!guard.is_valid());
}

#[tokio::test]
async fn an_auto_extended_lock_survives_a_cut_connection() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let far = locks(&proxy.url());
    let guard = take(&far.lock("job").ttl(Duration::from_secs(3)).auto_extend()).await;

    proxy.cut();
    tokio::time::sleep(ms(4000)).await;

    assert!(guard.is_valid());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_cancelled_acquisition_is_taken_back_although_it_was_sent() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let (far, near) = (locks(&proxy.url()), locks(&server.url()));
    assert!(!is_busy(&far.lock("warm")).await);
    proxy.freeze_replies();
    let request = far.lock("job");
    let task = spawn(async move { request.acquire().await.map(drop) });
    eventually(async || near.lock("job").is_held().await.unwrap()).await;

    task.abort();
    proxy.heal();

    eventually(async || !near.lock("job").is_held().await.unwrap()).await;
}

#[tokio::test]
async fn two_processes_contend_and_every_waiter_comes_in() {
    let server = RedisServer::start();
    let mut waiting = tokio::task::JoinSet::new();
    let inside = Arc::new(AtomicUsize::new(0));
    let processes = [
        locks(&server.url()),
        locks(&server.url()),
        locks(&server.url()),
    ];
    for number in 0..60 {
        let request = processes[number % 3].lock("job").wait(MINUTE);
        let inside = Arc::clone(&inside);
        waiting.spawn(async move {
            let guard = request.acquire().await.unwrap();
            assert_eq!(inside.fetch_add(1, SeqCst), 0);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, SeqCst);
            guard.release().await.unwrap()
        });
    }

    assert_eq!(waiting.join_all().await, [Released::Released; 60]);
}

/// Every kind of call, first by the script's digest and then by its text, since the server forgot it.
#[tokio::test]
async fn a_call_whose_reply_is_lost_has_happened_once_and_is_an_error() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let (far, near) = (locks(&proxy.url()), locks(&server.url()));
    for replies_before in [0, 1] {
        let prepare = || {
            if replies_before == 1 {
                server.command::<()>(&["SCRIPT", "FLUSH"]);
            }
            proxy.lose_reply_after(replies_before);
        };
        for (request, here) in [
            (far.lock("job"), near.lock("job")),
            (far.lock("job").token("me").fencing(), near.lock("job")),
            (far.lock_all(["job", "b"]), near.lock("job")),
            (far.read("job"), near.read("job")),
            (far.write("job"), near.write("job")),
        ] {
            assert!(!is_busy(&request).await, "the server knows the scripts");

            prepare();
            let error = request.try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            eventually(async || far.connect().await.is_ok()).await;
            eventually(async || !here.is_held().await.unwrap()).await;

            let guard = take(&request.clone().ttl(MINUTE)).await;
            guard.extend(MINUTE).await.unwrap();
            prepare();
            let error = guard.extend_by(MINUTE).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            eventually(async || far.connect().await.is_ok()).await;
            let left = guard.remaining().await.unwrap().unwrap();
            assert!(left.duration().unwrap() > MINUTE && left.duration().unwrap() <= 2 * MINUTE);

            prepare();
            let error = guard.release().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            assert!(!here.is_held().await.unwrap());
            eventually(async || far.connect().await.is_ok()).await;
        }
    }
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_is_waited_out() {
    let server = RedisServer::with_options(&["--lua-time-limit", "1"]);
    let locks = locks(&server.url());
    assert!(!is_busy(&locks.lock("job")).await);
    let url = server.url();
    let script = std::thread::spawn(move || {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let forever = redis::cmd("EVAL").arg("while true do end").arg(0).clone();
        forever.query::<()>(&mut connection).unwrap_err()
    });
    // Until the script has run for so long that the server says so.
    eventually(async || {
        let error = locks.lock("job").try_acquire().await.map(drop);
        error.is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    let waiting = spawn({
        let request = locks.lock("job").wait(MINUTE);
        async move { request.acquire().await.map(drop) }
    });

    server.command::<()>(&["SCRIPT", "KILL"]);

    assert!(waiting.await.unwrap().is_ok());
    script.join().unwrap();
}
