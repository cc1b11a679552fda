//! What a cache refuses to be built with, what it says of odd settings, and what tells caches on one
//! Redis apart.

use std::{error::Error as _, time::Duration};

use tower::Layer as _;
use tower_stampede::{BufferLayer, BuildErrorKind, Cache, CacheBuilder};

use crate::support::{
    log::Log,
    redis::RedisServer,
    worker::{Handler, cache, layer, settled, text, until},
};

const NOWHERE: &str = "redis://127.0.0.1:1/";

fn refusal(change: impl FnOnce(CacheBuilder) -> CacheBuilder) -> Option<BuildErrorKind> {
    let error = change(Cache::builder().redis(NOWHERE)).build().err()?;
    Some(error.kind())
}

#[test]
fn what_is_impossible_is_refused_by_name() {
    let (ms, secs) = (Duration::from_millis, Duration::from_secs);

    for namespace in ["", "a{b}", "two words", &"n".repeat(65)] {
        assert_eq!(
            refusal(|b| b.namespace(namespace)),
            Some(BuildErrorKind::Namespace)
        );
    }
    for ttl in [Duration::ZERO, ms(99), secs(3601), Duration::MAX] {
        assert_eq!(
            refusal(|b| b.lease_ttl(ttl)),
            Some(BuildErrorKind::LeaseTtl)
        );
    }
    for budget in [Duration::ZERO, secs(61), Duration::MAX] {
        assert_eq!(
            refusal(|b| b.redis_budget(budget)),
            Some(BuildErrorKind::RedisBudget)
        );
    }
    assert_eq!(
        refusal(|b| b.event_secret("fifteen letters")),
        Some(BuildErrorKind::EventSecret)
    );
    for url in ["", "127.0.0.1", "http://127.0.0.1/"] {
        assert_eq!(
            refusal(|b| b.redis(url)),
            Some(BuildErrorKind::RedisUrl),
            "{url}"
        );
    }
}

#[test]
fn the_error_names_the_option_and_its_limit_and_keeps_its_cause() {
    let short = Cache::builder()
        .lease_ttl(Duration::ZERO)
        .build()
        .unwrap_err();
    let garbled = Cache::builder().redis("?").build().unwrap_err();

    assert_eq!(
        short.to_string(),
        "lease_ttl: must be between 100 ms and an hour"
    );
    assert_eq!(garbled.to_string(), "redis: the URL cannot be read");
    assert!(short.source().is_none() && garbled.source().is_some());
}

#[test]
fn what_is_at_a_limit_is_taken_and_no_server_is_needed_for_that() {
    let longest = "n".repeat(64);

    assert_eq!(refusal(|b| b.namespace(longest)), None);
    assert_eq!(refusal(|b| b.namespace("shop:v2.1_b-c")), None);
    assert_eq!(refusal(|b| b.lease_ttl(Duration::from_millis(100))), None);
    assert_eq!(refusal(|b| b.redis_budget(Duration::from_secs(60))), None);
    assert_eq!(refusal(|b| b.event_secret("sixteen letters!")), None);
}

/// What is warned of a layer that waits for so many seconds.
fn warnings(cache: &Cache, wait: u64) -> Vec<String> {
    let (log, _guard) = Log::start();
    let layer = BufferLayer::new(cache.clone()).wait_timeout(Duration::from_secs(wait));
    drop(layer.name("reports").layer(()));
    log.lines("WARN", "wait_timeout")
}

#[test]
fn a_wait_that_is_not_longer_than_a_lease_is_warned_of_with_both_names() {
    let shared = Cache::builder().redis(NOWHERE).build().unwrap();

    assert!(warnings(&shared, 5).is_empty());
    let said = warnings(&shared, 3);
    assert_eq!(said.len(), 1);
    assert!(
        said[0].contains("lease_ttl") && said[0].contains("reports"),
        "{said:?}"
    );
}

#[test]
fn a_wait_that_is_not_longer_than_the_redis_budget_is_warned_of_with_both_names() {
    let patient = Cache::builder()
        .redis(NOWHERE)
        .redis_budget(Duration::from_secs(6))
        .build()
        .unwrap();

    assert!(warnings(&patient, 7).is_empty());
    let said = warnings(&patient, 5);
    assert_eq!(said.len(), 1);
    assert!(
        said[0].contains("redis_budget") && said[0].contains("reports"),
        "{said:?}"
    );
}

#[test]
fn a_layer_that_is_applied_again_and_again_is_warned_of_once() {
    let shared = Cache::builder().redis(NOWHERE).build().unwrap();
    let (log, _guard) = Log::start();
    let layer = BufferLayer::new(shared).wait_timeout(Duration::from_secs(1));

    // As a router does for each connection.
    for _ in 0..10 {
        drop(layer.clone().layer(()));
    }
    assert_eq!(log.lines("WARN", "wait_timeout").len(), 1);
    drop(layer.name("reports").layer(()));
    assert_eq!(log.lines("WARN", "reports").len(), 1);
}

#[tokio::test]
async fn namespaces_on_one_redis_share_nothing() {
    let (redis, handler) = (RedisServer::start(), Handler::open());
    let caches = ["shop", "shop:two"].map(|name| {
        let builder = Cache::builder().redis(redis.url()).namespace(name);
        builder
            .redis_budget(Duration::from_secs(10))
            .build()
            .unwrap()
    });
    let [one, other] = handler.workers(&caches, text);

    assert_eq!(one.get("/report").await.text(), "build 1");
    assert_eq!(other.get("/report").await.text(), "build 2");
    let report = "http://shop.example/report".parse().unwrap();
    caches[0].purge(&report).await.unwrap();

    assert_eq!(one.get("/report").await.text(), "build 3");
    assert_eq!(other.get("/report").await.text(), "build 2");
}

#[tokio::test]
async fn entries_of_another_version_are_neither_read_nor_touched() {
    let (redis, handler) = (RedisServer::start(), Handler::open());
    let caches = [0; 2].map(|_| cache(redis.url()));
    let [old, new] = handler.workers(&caches, text);
    assert_eq!(old.get("/report").await.text(), "build 1");
    settled(&caches[0]).await;
    let stored = crate::shared::entry_of(&redis);
    let other = format!("{stored}99");
    redis.command::<()>(&["RENAME", &stored, &other]);

    assert_eq!(new.get("/report").await.text(), "build 2");

    until(|| redis.command::<usize>(&["EXISTS", &stored, &other]) == 2).await;
    assert_eq!(old.get("/report").await.text(), "build 1");
}

#[tokio::test]
async fn a_cache_that_is_dropped_leaves_neither_a_task_nor_a_connection() {
    let redis = RedisServer::start();
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let connections = || redis.clients("normal") + redis.clients("pubsub");
    let cache = cache(redis.url());
    let worker = Handler::open().worker(&layer(&cache), text);
    worker.herd("/report", 10).answers().await;
    settled(&cache).await;
    assert!(tasks() > before && connections() > 1);

    drop((cache, worker));

    until(|| tasks() == before).await;
    // The one that asks is there itself.
    until(|| connections() == 0).await;
}
