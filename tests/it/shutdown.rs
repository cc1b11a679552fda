//! Shutting down, with builds under way.

use std::{slice, time::Duration};

use http::StatusCode;
use tokio::time::Instant;

use crate::support::{
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{AMPLE, Handler, builder, cache, layer, settled, text, until, waiting},
};

const SHORT: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread")]
async fn builds_that_end_within_the_grace_are_stored_and_answered() {
    let redis = RedisServer::start();
    let closing = cache(redis.url());
    let handler = Handler::held();
    let herd = handler.worker(&layer(&closing), text).herd("/report", 10);
    waiting(slice::from_ref(&closing), 10).await;
    handler.has_begun(1).await;

    let shutdown = tokio::spawn({
        let closing = closing.clone();
        async move { closing.shutdown().await }
    });
    handler.let_go();

    assert_eq!(shutdown.await.unwrap(), 0);
    for answer in herd.answers().await {
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, "build 1"));
    }
    let next = cache(redis.url());
    let worker = handler.worker(&layer(&next), text);
    assert_eq!(worker.get("/report").await.text(), "build 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_that_do_not_end_are_abandoned_and_the_next_worker_need_not_wait_for_their_leases() {
    let redis = RedisServer::start();
    let closing = builder(redis.url())
        .lease_ttl(AMPLE)
        .shutdown_grace(SHORT)
        .build()
        .unwrap();
    let stuck = Handler::held();
    let (_, herd) = stuck.under_way(&closing, text, 10).await;
    let next = cache(redis.url());
    let other = Handler::open().worker(&layer(&next), text);
    let waits = other.herd("/report", 5);
    waiting(slice::from_ref(&next), 5).await;

    let start = Instant::now();
    assert_eq!(closing.shutdown().await, 1);

    for answer in herd.answers().await {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.outcome.contains("detail=shutdown"), "{answer:?}");
    }
    for answer in waits.answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    assert!(start.elapsed() < AMPLE / 2, "no lease was waited out");
    let leases: Vec<String> = redis.command(&["KEYS", "*:l"]);
    assert_eq!(leases, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_granted_while_the_cache_shut_down_is_given_back_too() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let closing = builder(proxy.url())
        .lease_ttl(AMPLE)
        .shutdown_grace(Duration::ZERO)
        .build()
        .unwrap();
    let worker = Handler::open().worker(&layer(&closing), text);
    worker.get("/warm").await;
    settled(&closing).await;
    proxy.delay(SHORT);
    let leases = || redis.command::<Vec<String>>(&["KEYS", "*:l"]);
    let herd = worker.herd("/report", 5);
    until(|| !leases().is_empty()).await;

    // The answer to the claim is still on its way.
    assert_eq!(closing.shutdown().await, 1);

    assert_eq!(leases(), [""; 0]);
    for answer in herd.answers().await {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_answers_after_the_shutdown_and_nothing_is_built() {
    let redis = RedisServer::start();
    let closing = cache(redis.url());
    let handler = Handler::open();
    let worker = handler.worker(&layer(&closing), text);
    worker.get("/report").await;
    settled(&closing).await;

    assert_eq!(closing.shutdown().await, 0);
    assert_eq!(closing.shutdown().await, 0, "again");

    assert_eq!(worker.get("/report").await.text(), "build 1");
    let other = worker.get("/other").await;
    assert_eq!(other.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(handler.builds(), 1);
}
