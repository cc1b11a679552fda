//! Holders that are processes of their own: killed, stopped and released from elsewhere.
#![cfg(feature = "redis")]

use std::{
    env,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::time::Instant;
use tower_stampede::lock::{LockManager, Released};

use crate::{
    lock_ground::{MINUTE, eventually, is_busy},
    support::redis::RedisServer,
};

const TTL: Duration = Duration::from_millis(1500);

fn locks(url: &str) -> LockManager {
    LockManager::redis(url).unwrap()
}

/// The holder of the tests below. What it learns it writes into the server.
#[tokio::test]
#[ignore = "a process that holds a lock, for the other tests"]
async fn a_process_that_holds_a_lock() {
    let url = env::var("REDIS_OF_HOLDER").expect("the test gives it");
    let client = redis::Client::open(url.as_str()).unwrap();
    let mut told = client.get_multiplexed_async_connection().await.unwrap();
    let guard = locks(&url)
        .lock("job")
        .ttl(TTL)
        .auto_extend()
        .metadata(std::process::id().to_string())
        .acquire()
        .await
        .unwrap();

    guard.lost().await;

    assert!(!guard.is_valid());
    let ended = format!("{:?}", guard.release().await.unwrap());
    let mut tell = redis::cmd("SET");
    tell.arg("told").arg(ended);
    tell.query_async::<()>(&mut told).await.unwrap();
}

struct Holder(Child);

impl Holder {
    /// Returns once the process holds the lock.
    async fn start(server: &RedisServer) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "lock_process::a_process_that_holds_a_lock"])
            .args(["--ignored", "--nocapture"])
            .env("REDIS_OF_HOLDER", server.url())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let holder = Self(child);
        let lock = locks(&server.url()).lock("job");
        eventually(async || lock.is_held().await.unwrap()).await;
        holder
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.0.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn a_killed_holder_keeps_its_lock_to_the_end_of_its_time_and_no_longer() {
    let server = RedisServer::start();
    let holder = Holder::start(&server).await;
    let lock = locks(&server.url()).lock("job").wait(MINUTE);

    drop(holder);
    let killed = Instant::now();
    assert!(is_busy(&lock).await);
    let guard = lock.acquire().await.unwrap();

    // It had extended at a third of its time at the latest.
    assert!(killed.elapsed() > TTL / 3, "{:?}", killed.elapsed());
    assert!(
        killed.elapsed() < TTL + Duration::from_secs(1),
        "{:?}",
        killed.elapsed()
    );
    assert!(guard.release().await.unwrap().was_held());
}

#[tokio::test]
async fn a_holder_that_was_stopped_past_its_time_knows_it_and_leaves_the_next_one_alone() {
    let server = RedisServer::start();
    let holder = Holder::start(&server).await;
    let lock = locks(&server.url()).lock("job").wait(MINUTE).ttl(MINUTE);

    holder.signal("STOP");
    let next = lock.acquire().await.unwrap();
    holder.signal("CONT");

    eventually(async || server.command::<Option<String>>(&["GET", "told"]).is_some()).await;
    let told: String = server.command(&["GET", "told"]);
    assert_eq!(told, format!("{:?}", Released::HeldByAnother));
    assert!(next.is_still_held().await.unwrap());
}

#[tokio::test]
async fn a_lock_of_another_process_is_released_and_extended_by_its_token() {
    let server = RedisServer::start();
    let holder = Holder::start(&server).await;
    let lock = locks(&server.url()).lock("job");

    let found = lock.holder().await.unwrap().unwrap();
    assert_eq!(found.metadata(), holder.0.id().to_string().as_bytes());
    lock.clone()
        .ttl(MINUTE)
        .extend(found.token())
        .await
        .unwrap();
    assert_eq!(
        lock.release(found.token()).await.unwrap(),
        Released::Released
    );

    // The holder finds out when it extends the next time.
    eventually(async || server.command::<Option<String>>(&["GET", "told"]).is_some()).await;
    let told: String = server.command(&["GET", "told"]);
    assert_eq!(told, format!("{:?}", Released::Expired));
    assert!(!lock.is_held().await.unwrap());
}
