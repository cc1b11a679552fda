//! What a real Redis and a bad network do to locks.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tower_stampede::lock::{ErrorKind, LockManager, Released};

use crate::{
    lock_ground::{Ground, MINUTE, eventually, is_busy, ms, take},
    support::{proxy::FaultProxy, redis::RedisServer},
};

fn locks(url: &str) -> LockManager {
    LockManager::redis(url).unwrap()
}

#[tokio::test]
async fn a_server_that_forgets_its_scripts_is_taught_again() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    let guard = take(&ground.locks.lock("job")).await;

    server.command::<()>(&["SCRIPT", "FLUSH"]);

    assert!(is_busy(&ground.elsewhere.lock("job")).await);
    guard.extend(MINUTE).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
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
async fn an_eager_service_learns_at_its_start_whether_redis_lets_it_in() {
    let server = RedisServer::start();
    server.config("requirepass", "secret");
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}/", server.port());

    assert!(locks(&url("secret")).connect().await.is_ok());
    assert_eq!(
        locks(&url("wrong")).connect().await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    let error = locks(&server.url()).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
    assert!(causes.last().unwrap().to_string().contains("NOAUTH"));
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
    let waiting = tokio::spawn({
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
async fn without_memory_no_lock_is_taken_and_held_ones_are_still_released() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    let guard = take(&ground.locks.lock("held")).await;
    server.config("maxmemory", "1");

    let error = ground
        .locks
        .lock("job")
        .fencing()
        .try_acquire()
        .await
        .unwrap_err();

    assert_eq!(error.code(), Some("OOM"));
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    server.config("maxmemory", "0");
    assert!(!is_busy(&ground.locks.lock("job")).await);
}

#[tokio::test]
async fn a_key_of_another_type_is_reported_with_operation_and_key() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    let lock = ground.locks.lock("job");
    let key = lock.keys().next().unwrap().to_owned();
    server.command::<()>(&["LPUSH", &key, "x"]);

    let error = lock.acquire().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(error.code(), Some("WRONGTYPE"));
    assert_eq!(error.key(), Some(key.as_str()));
    assert_eq!(lock.holder().await.unwrap_err().code(), Some("WRONGTYPE"));
    assert!(
        lock.force_release().await.unwrap(),
        "an operator can remove it"
    );
}

#[tokio::test]
async fn a_server_that_only_reads_is_waited_out() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    // A replica of nobody refuses to write.
    server.config("replica-serve-stale-data", "yes");
    server.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = locks.lock("job").try_acquire().await.unwrap_err();
    assert_eq!(error.code(), Some("READONLY"));
    let waiting = tokio::spawn({
        let request = locks.lock("job").wait(MINUTE);
        async move { request.acquire().await.map(drop) }
    });

    server.command::<()>(&["REPLICAOF", "NO", "ONE"]);

    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_short_pause_of_the_server_does_not_fail_a_single_attempt() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    assert!(!is_busy(&locks.lock("warm")).await);
    server.command::<()>(&["CLIENT", "PAUSE", "30"]);

    assert!(!is_busy(&locks.lock("job").wait(Duration::ZERO)).await);
}

#[tokio::test]
async fn calls_that_do_not_wait_for_the_lock_end_with_the_wait_and_change_nothing() {
    let server = RedisServer::start();
    let locks = LockManager::builder()
        .redis(&server.url())
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
async fn all_waiters_of_a_process_share_one_subscription_that_ends_with_the_last() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    let held = take(&ground.elsewhere.lock_all(["0", "1", "2"])).await;
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..15 {
        let request = ground.locks.lock((number % 3).to_string()).wait(MINUTE);
        waiting.spawn(async move { request.acquire().await.unwrap().release().await.unwrap() });
    }
    let channels = || {
        let list: Vec<String> = server.command(&["PUBSUB", "CHANNELS", "*"]);
        list.len()
    };

    eventually(async || channels() == 3).await;
    assert_eq!(server.clients("pubsub"), 1);
    assert!(held.release().await.unwrap().was_held());
    assert_eq!(waiting.join_all().await, [Released::Released; 15]);

    eventually(async || channels() == 0).await;
}

#[tokio::test]
async fn a_release_that_is_missed_while_the_subscription_is_down_is_noticed() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    let lock = ground.locks.lock("job");
    let key = lock.keys().next().unwrap().to_owned();
    take(&ground.elsewhere.lock("job")).await.keep();
    let waiting = tokio::spawn({
        let request = lock.wait(MINUTE);
        async move { request.acquire().await.map(drop) }
    });
    eventually(async || server.clients("pubsub") == 1).await;

    server.command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    server.command::<()>(&["DEL", &key]);
    let deleted = Instant::now();

    assert!(waiting.await.unwrap().is_ok());
    assert!(deleted.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn waiters_learn_that_they_may_not_listen_and_later_ones_may() {
    let server = RedisServer::start();
    server.command::<()>(&[
        "ACL",
        "SETUSER",
        "worker",
        "on",
        ">pw",
        "~*",
        "+@all",
        "resetchannels",
    ]);
    let locks = LockManager::builder()
        .redis_client(server.client_as("worker", "pw"))
        .build()
        .unwrap();
    let guard = take(&locks.lock("job")).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let request = locks.lock("job").wait(MINUTE);
        waiting.spawn(async move { request.acquire().await.map(drop).unwrap_err() });
    }
    let before = Instant::now();
    for error in waiting.join_all().await {
        assert_eq!(error.code(), Some("NOPERM"));
    }
    assert!(before.elapsed() < Duration::from_secs(1));
    // Nobody could be told, but the lock is released all the same.
    guard.extend(MINUTE).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);

    server.command::<()>(&["ACL", "SETUSER", "worker", "allchannels"]);
    let guard = take(&locks.lock("job")).await;
    let later = tokio::spawn({
        let request = locks.lock("job").wait(MINUTE);
        async move { request.acquire().await.map(drop) }
    });
    eventually(async || server.clients("pubsub") == 1).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);

    assert!(later.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_user_without_permission_is_refused_with_the_code() {
    let server = RedisServer::start();
    server.command::<()>(&["ACL", "SETUSER", "worker", "on", ">pw", "~other:*", "+@all"]);
    let locks = LockManager::builder()
        .redis_client(server.client_as("worker", "pw"))
        .build()
        .unwrap();

    let error = locks.lock("job").wait(MINUTE).acquire().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(error.code(), Some("NOPERM"));
}

#[tokio::test]
async fn databases_do_not_contend_and_old_servers_will_do() {
    let server = RedisServer::with_options(&["--rename-command", "HELLO", ""]);
    let (zero, one) = (locks(&server.url()), locks(&format!("{}1", server.url())));
    let _guard = take(&zero.lock("job")).await;

    assert!(!is_busy(&one.lock("job")).await);
}

#[tokio::test]
async fn a_wait_ends_on_time_although_the_server_does_not_answer() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    take(&locks.lock("job")).await.keep();
    let waiting = tokio::spawn({
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
    let guard = take(&far.lock("job").ttl(ms(600)).auto_extend()).await;
    let next = tokio::spawn({
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
    let guard = take(&far.lock("job").ttl(Duration::from_secs(2)).auto_extend()).await;

    proxy.cut();
    tokio::time::sleep(ms(2500)).await;

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
    let task = tokio::spawn(async move { request.acquire().await.map(drop) });
    eventually(async || near.lock("job").is_held().await.unwrap()).await;

    task.abort();
    proxy.heal();

    eventually(async || !near.lock("job").is_held().await.unwrap()).await;
}

#[tokio::test]
async fn two_processes_contend_and_every_waiter_comes_in() {
    let server = RedisServer::start();
    let mut waiting = tokio::task::JoinSet::new();
    let inside = Arc::new(std::sync::atomic::AtomicUsize::new(0));
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
            assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            guard.release().await.unwrap()
        });
    }

    assert_eq!(waiting.join_all().await, [Released::Released; 60]);
}

/// A refusal by the server is one line in the log, naming operation, key and holder; a wait that ends
/// within a command is none.
#[test]
fn a_refusal_is_logged_once_and_the_end_of_a_wait_not_at_all() {
    use std::{io, sync::Mutex};

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let text = || String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();

    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async {
            let server = RedisServer::start();
            let locks = locks(&server.url());
            let lock = locks.lock("job");
            let key = lock.keys().next().unwrap().to_owned();
            assert!(!is_busy(&lock).await);

            server.command::<()>(&["CLIENT", "PAUSE", "200"]);
            assert!(lock.clone().wait(ms(20)).acquire().await.is_err());
            assert_eq!(text(), "");

            eventually(async || locks.lock("other").is_held().await.is_ok()).await;
            server.command::<()>(&["DEL", &key]);
            server.command::<()>(&["LPUSH", &key, "x"]);
            assert!(lock.acquire().await.is_err());
            assert_eq!(text().lines().count(), 1, "{}", text());
            assert!(
                text().contains("acquire") && text().contains(&key) && text().contains("holder=")
            );
        });
    });
}
