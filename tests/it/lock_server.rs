//! What a real Redis says to locks: refusals, permissions, subscriptions.
#![cfg(feature = "redis")]

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tower_stampede::lock::{ErrorKind, LockManager, Released};

use crate::{
    lock_ground::{Ground, MINUTE, eventually, is_busy, ms, spawn, take},
    support::redis::RedisServer,
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
    let waiting = spawn({
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
    let waiting = spawn({
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
    let later = spawn({
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

/// A refusal by the server is one line in the log, naming operation, key and holder; a wait that ends
/// within a command is none.
#[test]
fn a_refusal_is_logged_once_and_the_end_of_a_wait_not_at_all() {
    use std::{
        io,
        sync::{Mutex, PoisonError},
    };

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            log.extend_from_slice(bytes);
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
