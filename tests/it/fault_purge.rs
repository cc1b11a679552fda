//! How long a purge waits for those who do not answer.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use tower_stampede::{Cache, Purged, Target};

use crate::support::{
    redis::RedisServer,
    worker::{Handler, builder, layer, settled, text, until},
};

/// A cache that waits for so long, and a process that hears of purges and answers none.
async fn beside_a_mute_one(redis: &RedisServer, limit: Duration) -> (Cache, redis::aio::PubSub) {
    let cache = builder(redis.url())
        .acknowledge_within(limit)
        .build()
        .unwrap();
    let worker = Handler::open().worker(&layer(&cache), text);
    worker.get("/report").await;
    settled(&cache).await;
    until(|| redis.clients("pubsub") == 1).await;
    let mut mute = redis.client().get_async_pubsub().await.unwrap();
    mute.subscribe("stampede:events").await.unwrap();
    (cache, mute)
}

async fn purges(cache: &Cache) -> (Purged, Duration) {
    let start = Instant::now();
    let purged = cache.purge(Target::all()).await.unwrap();
    (purged, start.elapsed())
}

#[tokio::test]
async fn a_purge_waits_for_a_process_that_does_not_answer_as_long_as_it_may() {
    let redis = RedisServer::start();
    let limit = Duration::from_millis(300);
    let (cache, mut mute) = beside_a_mute_one(&redis, limit).await;

    let (purged, took) = purges(&cache).await;

    assert_eq!((purged.acknowledged, purged.processes), (1, Some(2)));
    assert!(!purged.is_complete());
    assert!(
        took >= limit && took < limit + Duration::from_secs(3),
        "{took:?}"
    );
    assert!(
        mute.on_message().next().await.is_some(),
        "it has heard of it"
    );
}

#[tokio::test]
async fn a_purge_that_may_not_wait_does_not() {
    let redis = RedisServer::start();
    let (cache, _mute) = beside_a_mute_one(&redis, Duration::ZERO).await;

    let (purged, took) = purges(&cache).await;

    assert_eq!(purged.processes, Some(2));
    assert!(
        took < Duration::from_millis(900),
        "less than the default: {took:?}"
    );
}

#[tokio::test]
async fn a_purge_does_not_wait_once_all_have_answered() {
    let redis = RedisServer::start();
    let (cache, mute) = beside_a_mute_one(&redis, Duration::from_secs(600)).await;
    drop(mute);
    until(|| redis.clients("pubsub") == 1).await;

    let (purged, _) = purges(&cache).await;

    assert!(purged.is_complete(), "{purged:?}");
}
