//! What may happen to a server, each in the middle of a herd over real HTTP on two worker processes.

use std::{future::Future, time::Duration};

use http::StatusCode;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::support::{
    proxy::FaultProxy,
    redis::RedisServer,
    site::{self, Reply, Site},
    worker::{AMPLE, until},
};

const HERD: usize = 50;

/// A budget of a quarter of a second, on a machine under load.
const SHORTLY: Duration = Duration::from_secs(3);

/// Who waits for another process that cannot tell how its build ended waits for its lease at most.
const LEASE: Duration = Duration::from_secs(3);

/// The other half of all these tests, in processes of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a worker that serves"]
async fn a_worker_that_serves() {
    site::work().await;
}

/// A Redis, and two workers on it.
pub(crate) struct Ground {
    pub(crate) redis: RedisServer,
    pub(crate) proxy: FaultProxy,
    sites: [Site; 2],
}

impl Ground {
    pub(crate) async fn start() -> Self {
        let redis = RedisServer::start();
        let url = redis.url();
        Self::at(redis, &url).await
    }

    /// With the proxy between.
    pub(crate) async fn behind_proxy() -> Self {
        let redis = RedisServer::start();
        let proxy = FaultProxy::start(redis.port());
        let url = proxy.url();
        let ground = Self::at(redis, &url).await;
        Self { proxy, ..ground }
    }

    async fn at(redis: RedisServer, url: &str) -> Self {
        let name = "fault_events::a_worker_that_serves";
        let ground = Self {
            proxy: FaultProxy::start(redis.port()),
            sites: [Site::start(url, name).await, Site::start(url, name).await],
            redis,
        };
        ground.shares("warm").await;
        ground
    }

    /// Both workers get what the other one has built, and hear of it.
    async fn shares(&self, name: &str) {
        let [one, other] = &self.sites;
        for at in 0.. {
            let path = |whose: &str| format!("/{name}/{at}/{whose}");
            let here = [one.get(&path("one")).await, other.get(&path("other")).await];
            let there = [other.get(&path("one")).await, one.get(&path("other")).await];
            if here
                .iter()
                .zip(&there)
                .all(|(here, there)| here.text == there.text)
            {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        until(|| self.redis.clients("pubsub") == 2).await;
    }

    /// How many builds of each worker a herd on both of them takes, with `meanwhile` while it waits.
    async fn herd(&mut self, path: &str, meanwhile: impl FnOnce(&mut Self)) -> [usize; 2] {
        for site in &self.sites {
            site.hold().await;
        }
        let herds = self.sites.each_ref().map(|site| site.herd(path, HERD));
        for site in &self.sites {
            site.waiting(HERD).await;
        }
        let begun = async { while self.builds(path).await == [0, 0] {} };
        timeout(AMPLE, begun).await.expect("a build has begun");
        meanwhile(self);
        for site in &self.sites {
            site.let_go().await;
        }
        for herd in herds {
            answers(path, herd).await;
        }
        self.builds(path).await
    }

    async fn builds(&self, path: &str) -> [usize; 2] {
        let [one, other] = &self.sites;
        [one.builds(path).await, other.builds(path).await]
    }

    /// Different pages, one after the other.
    async fn read(&self, name: &str, count: usize) {
        for at in 0..count {
            let path = format!("/{name}/{at}");
            let [one, other] = self.sites.each_ref().map(|site| site.get(&path));
            let (one, other) = tokio::join!(one, other);
            check(&path, &one);
            check(&path, &other);
        }
    }
}

async fn answers(path: &str, herd: Vec<JoinHandle<Reply>>) {
    for asked in herd {
        let reply = timeout(AMPLE, asked).await.expect("everybody is answered");
        check(path, &reply.unwrap());
    }
}

fn check(path: &str, reply: &Reply) {
    assert_eq!(reply.status, StatusCode::OK, "{path}: {reply:?}");
    let own = reply.text.starts_with(&format!("{path} by "));
    assert!(own, "{path}: {reply:?}");
}

async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let done = work.await;
    assert!(start.elapsed() < limit, "{what}: {:?}", start.elapsed());
    done
}

/// No request fails or waits for long, no worker builds anything twice, and once all is well they share
/// again.
pub(crate) async fn nothing_fails(
    mut ground: Ground,
    strike: impl FnOnce(&mut Ground),
    heal: impl FnOnce(&mut Ground),
) {
    let each_at_most = |most, what: &str, builds: [usize; 2]| {
        assert!(builds.iter().all(|n| *n <= most), "{what}: {builds:?}");
    };

    let struck = ground.herd("/struck", strike);
    let struck = within(LEASE + SHORTLY, "the herd that it struck", struck).await;
    each_at_most(1, "the herd that it struck", struck);
    let during = ground.herd("/during", |_| {});
    let during = within(SHORTLY, "a herd meanwhile", during).await;
    // A gap in the events that begins or ends while the herd comes lets its last ones build anew.
    each_at_most(2, "a herd meanwhile", during);
    within(
        SHORTLY,
        "each alone meanwhile",
        ground.read("meanwhile", 20),
    )
    .await;

    heal(&mut ground);
    let heals = ground.shares("healed");
    timeout(AMPLE, heals).await.expect("it heals by itself");
    let [one, other] = ground.herd("/after", |_| {}).await;
    assert_eq!(one + other, 1, "the two workers share one build again");
}

#[tokio::test]
async fn nothing_fails_when_the_server_stands_still() {
    let ground = Ground::start().await;
    nothing_fails(ground, |g| g.redis.pause(), |g| g.redis.resume()).await;
}

#[tokio::test]
async fn nothing_fails_when_the_server_is_killed_and_started_again() {
    let ground = Ground::start().await;
    nothing_fails(ground, |g| g.redis.kill(), |g| g.redis.restart()).await;
}

/// Something that needs no healing.
async fn nothing_fails_after(command: &'static [&'static str]) {
    let strike = move |ground: &mut Ground| {
        drop(ground.redis.command::<redis::Value>(command));
    };
    nothing_fails(Ground::start().await, strike, |_| {}).await;
}

#[tokio::test]
async fn nothing_fails_when_the_server_cuts_all_connections() {
    nothing_fails_after(&["CLIENT", "KILL", "TYPE", "normal"]).await;
}

#[tokio::test]
async fn nothing_fails_when_the_server_cuts_the_events() {
    nothing_fails_after(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
}

#[tokio::test]
async fn nothing_fails_when_the_server_forgets_its_scripts() {
    nothing_fails_after(&["SCRIPT", "FLUSH"]).await;
}

#[tokio::test]
async fn nothing_fails_when_the_server_is_emptied() {
    nothing_fails_after(&["FLUSHALL"]).await;
}

/// One command strikes, and another one heals.
async fn nothing_fails_between(strike: &'static [&'static str], heal: &'static [&'static str]) {
    let ground = Ground::start().await;
    nothing_fails(
        ground,
        move |ground| ground.redis.command(strike),
        move |ground| ground.redis.command(heal),
    )
    .await;
}

#[tokio::test]
async fn nothing_fails_when_the_server_has_no_memory_left() {
    nothing_fails_between(
        &["CONFIG", "SET", "maxmemory", "1"],
        &["CONFIG", "SET", "maxmemory", "0"],
    )
    .await;
}

#[tokio::test]
async fn nothing_fails_when_the_server_forbids_the_scripts() {
    nothing_fails_between(
        &["ACL", "SETUSER", "default", "-evalsha", "-eval"],
        &["ACL", "SETUSER", "default", "+evalsha", "+eval"],
    )
    .await;
}

#[tokio::test]
async fn nothing_fails_when_the_server_forbids_the_channels() {
    nothing_fails_between(
        &["ACL", "SETUSER", "default", "resetchannels"],
        &["ACL", "SETUSER", "default", "allchannels"],
    )
    .await;
}

#[tokio::test]
async fn nothing_fails_when_the_server_pauses_its_writers() {
    nothing_fails_between(
        &["CLIENT", "PAUSE", "600000", "WRITE"],
        &["CLIENT", "UNPAUSE"],
    )
    .await;
}

#[tokio::test]
async fn nothing_fails_when_the_server_only_reads() {
    nothing_fails_between(
        // Nobody listens there: it waits for its primary, and serves what it has.
        &["REPLICAOF", "127.0.0.1", "1"],
        &["REPLICAOF", "NO", "ONE"],
    )
    .await;
}
