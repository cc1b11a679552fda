//! Redis behind sentinels: the master is found, followed when it changes, and never a replica in its stead.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{sleep, timeout};
use tower_stampede::{
    Cache, RedisConfig,
    lock::{ErrorKind, Released},
};

use crate::{
    support::{
        log::Log,
        redis::{RedisServer, Sentinel},
        worker::{AMPLE, Handler, Worker, layer, settled, text, until},
    },
    topologies::{locks, serves},
};

/// A master, its replica, and three sentinels of which two decide.
struct Group {
    master: RedisServer,
    replica: RedisServer,
    sentinels: Vec<Sentinel>,
}

impl Group {
    /// Returns once everyone knows everyone.
    async fn start() -> Self {
        let master = RedisServer::start();
        let port = master.port().to_string();
        let replica = RedisServer::with_options(&["--replicaof", "127.0.0.1", &port]);
        // Known before the sentinels first look.
        until(|| {
            let role: String = replica.command(&["INFO", "replication"]);
            role.contains("master_link_status:up")
        })
        .await;
        let sentinels = (0..3).map(|_| Sentinel::start(master.port(), 2)).collect();
        let group = Self {
            master,
            replica,
            sentinels,
        };
        until(|| group.sentinels.iter().all(Self::is_ready)).await;
        group
    }

    fn is_ready(sentinel: &Sentinel) -> bool {
        let fields: redis::RedisResult<std::collections::HashMap<String, String>> =
            sentinel.command(&["MASTER", "shop"]);
        let fields = fields.unwrap();
        fields["num-other-sentinels"] == "2" && fields["num-slaves"] == "1"
    }

    fn config(&self) -> RedisConfig {
        RedisConfig::sentinel(self.sentinels.iter().map(Sentinel::url), "shop")
    }

    fn hasty(&self) -> Cache {
        Cache::builder().redis(self.config()).build().unwrap()
    }

    /// Returns once all sentinels name the replica.
    async fn switched(&self) {
        let port = self.replica.port();
        until(|| {
            self.sentinels
                .iter()
                .all(|sentinel| sentinel.master() == port)
        })
        .await;
    }
}

fn leads(server: &RedisServer) -> bool {
    // Whoever is demoted closes its connections.
    let role = server.try_command::<String>(&["INFO", "replication"]);
    role.is_ok_and(|role| role.contains("role:master"))
}

/// Asks on, each time for something else, until what was asked for is stored on `redis`; no answer ever fails.
async fn heals_on(redis: &RedisServer, worker: &Worker, cache: &Cache) {
    let stored = || redis.command::<usize>(&["DBSIZE"]);
    let asking = async {
        for at in 0_usize.. {
            let before = stored();
            let answer = worker.get(&format!("/healing/{at}")).await;
            assert_eq!(answer.status, StatusCode::OK);
            settled(cache).await;
            if leads(redis) && stored() > before {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(AMPLE, asking).await.expect("it heals");
}

#[tokio::test]
async fn the_master_is_found_and_everything_works_on_it() {
    let group = Group::start().await;

    serves(&group.config().database(3)).await;

    let clients: String = group.replica.command(&["CLIENT", "LIST"]);
    // The sentinels, the one that asks, and the master.
    let strange = |line: &&str| {
        let known = ["name=sentinel-", "cmd=client|list", "flags=M"];
        !known.iter().any(|known| line.contains(known))
    };
    assert_eq!(clients.lines().find(strange), None);
}

#[tokio::test]
async fn a_killed_master_is_followed_by_its_replica_and_no_request_fails() {
    let (log, _guard) = Log::start();
    let mut group = Group::start().await;
    let (cache, handler) = (group.hasty(), Handler::open());
    let worker = handler.worker(&layer(&cache), text);
    worker.get("/before").await;
    settled(&cache).await;

    group.master.kill();
    heals_on(&group.replica, &worker, &cache).await;

    group.switched().await;
    serves(&group.config()).await;
    assert_eq!(log.lines("WARN", "shared tier").len(), 1, "{}", log.text());
    assert_eq!(log.lines("INFO", "shared tier").len(), 1, "{}", log.text());
}

#[tokio::test]
async fn an_ordered_failover_is_followed_by_the_cache_and_by_the_locks() {
    let group = Group::start().await;
    let (cache, handler) = (group.hasty(), Handler::open());
    let worker = handler.worker(&layer(&cache), text);
    worker.get("/before").await;
    let locks = locks(&group.config());
    drop(locks.lock("before").acquire().await.unwrap());

    group.sentinels[0]
        .command::<()>(&["FAILOVER", "shop"])
        .unwrap();
    group.switched().await;

    heals_on(&group.replica, &worker, &cache).await;
    let guard = locks.lock("after").wait(AMPLE).acquire().await.unwrap();
    assert!(locks.lock("after").is_held().await.unwrap());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_master_that_was_demoted_behind_the_links_back_is_left_at_the_first_refusal() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let sentinel = Sentinel::start(old.port(), 1);
    let locks = locks(&RedisConfig::sentinel([sentinel.url()], "shop"));
    drop(locks.lock("before").acquire().await.unwrap());
    // This sentinel knows of no failover, and so closes nobody's connection.
    let port = new.port().to_string();
    let here = "127.0.0.1";
    sentinel.command::<()>(&["REMOVE", "shop"]).unwrap();
    sentinel
        .command::<()>(&["MONITOR", "shop", here, &port, "1"])
        .unwrap();
    old.command::<()>(&["REPLICAOF", here, &port]);

    let refused = locks.lock("after").acquire().await.unwrap_err();

    assert_eq!(refused.code(), Some("READONLY"));
    let guard = locks.lock("after").wait(AMPLE).acquire().await.unwrap();
    assert_eq!(
        new.command::<usize>(&["EXISTS", guard.keys().next().unwrap()]),
        1
    );
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_master_that_goes_on_after_it_was_replaced_is_left_within_seconds() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let sentinel = Sentinel::start(old.port(), 1);
    let locks = locks(&RedisConfig::sentinel([sentinel.url()], "shop"));
    drop(locks.lock("before").acquire().await.unwrap());
    let held = locks.lock("held").acquire().await.unwrap();
    let lock = locks.lock("held").wait(AMPLE);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until(|| old.clients("pubsub") > 1).await;
    let port = new.port().to_string();
    let here = "127.0.0.1";
    sentinel.command::<()>(&["REMOVE", "shop"]).unwrap();
    sentinel
        .command::<()>(&["MONITOR", "shop", here, &port, "1"])
        .unwrap();

    // Whoever waits learns of it too, and finds the lock free over there.
    let guard = waiter.await.unwrap().unwrap();

    let key = guard.keys().next().unwrap();
    assert_eq!(new.command::<usize>(&["EXISTS", key]), 1);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(held);
}

#[tokio::test]
async fn a_replica_that_the_sentinels_still_take_for_the_master_is_not_used() {
    let (log, _guard) = Log::start();
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let sentinel = Sentinel::start(old.port(), 1);
    let port = new.port().to_string();
    old.command::<()>(&["REPLICAOF", "127.0.0.1", &port]);
    let locks = locks(&RedisConfig::sentinel([sentinel.url()], "shop"));

    let refused = locks.lock("job").acquire().await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(
        !log.lines("WARN", "name is not a master").is_empty(),
        "{}",
        log.text()
    );
}

#[tokio::test]
async fn one_frozen_sentinel_delays_nobody_beyond_the_budget() {
    let group = Group::start().await;
    group.sentinels[0].pause();
    let cache = group.hasty();
    let worker = Handler::open().worker(&layer(&cache), text);

    heals_on(&group.master, &worker, &cache).await;
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_is_told_and_the_requests_go_on() {
    let (log, _guard) = Log::start();
    let redis = RedisServer::start();
    let sentinel = Sentinel::start(redis.port(), 1);
    let config = RedisConfig::sentinel([sentinel.url()], "shoe");
    let cache = Cache::builder().redis(config).build().unwrap();
    let worker = Handler::open().worker(&layer(&cache), text);

    assert_eq!(worker.get("/report").await.text(), "build 1");

    until(|| !log.lines("WARN", "no sentinel named a master").is_empty()).await;
    let line = log.lines("WARN", "no sentinel named a master").remove(0);
    assert!(line.contains("No such master"), "{line}");
}
