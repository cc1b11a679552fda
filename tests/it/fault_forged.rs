//! Messages that nobody of the fleet has sent, or that come again: at most something is read anew.

use http::Uri;
use tower_stampede::Cache;

use crate::support::{
    redis::RedisServer,
    worker::{Handler, Worker, cache, settled, text, until},
};

const CHANNEL: &str = "stampede:events";

/// Two workers that have the newer of two builds.
async fn workers(redis: &RedisServer, handler: &Handler) -> ([Cache; 2], [Worker; 2]) {
    let caches = [0; 2].map(|_| cache(redis.url()));
    let workers = handler.workers(&caches, text);
    workers[0].get("/report").await;
    settled(&caches[0]).await;
    until(|| redis.clients("pubsub") == 1).await;
    let report = Uri::from_static("http://shop.example/report");
    caches[0].purge(&report).await.unwrap();
    workers[0].get("/report").await;
    settled(&caches[0]).await;
    assert_eq!(workers[1].get("/report").await.text(), "build 2");
    until(|| redis.clients("pubsub") == 2).await;
    (caches, workers)
}

fn publish(redis: &RedisServer, message: &str) {
    let heard: usize = redis.command(&["PUBLISH", CHANNEL, message]);
    assert_eq!(heard, 2, "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_heard_nothing_older_comes_back_and_nothing_is_built_again() {
    let (redis, handler) = (RedisServer::start(), Handler::open());
    let (_caches, workers) = workers(&redis, &handler).await;
    let digest = "0123456789abcdef0123456789abcdef";

    for message in [
        "",
        "w",
        "w?",
        "p",
        "nonsense",
        &"x".repeat(100_000),
        &format!("w{digest}"),
        &format!("p{digest}"),
        &format!("p~{digest}"),
        &format!("p{digest}:{digest}:{digest}"),
        "p!",
        "p~!",
    ] {
        publish(&redis, message);
        for _ in 0..3 {
            for worker in &workers {
                assert_eq!(worker.get("/report").await.text(), "build 2", "{message}");
            }
        }
    }

    assert_eq!(handler.builds(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_messages_of_a_build_and_a_purge_change_nothing_when_they_come_again() {
    let (redis, handler) = (RedisServer::start(), Handler::open());
    let (_caches, workers) = workers(&redis, &handler).await;
    let entry: Vec<String> = redis.command(&["KEYS", "*:e1"]);
    let digest = entry[0].split(['{', '}']).nth(1).unwrap();

    for _ in 0..20 {
        publish(&redis, &format!("w{digest}"));
        publish(&redis, "p!");
        for worker in &workers {
            assert_eq!(worker.get("/report").await.text(), "build 2");
        }
    }

    assert_eq!(handler.builds(), 2);
}
