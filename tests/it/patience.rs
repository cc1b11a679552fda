//! Waits that end while Redis is being asked, before a build has begun.

use std::time::Duration;

use http::StatusCode;
use tower_stampede::Fallback;

use crate::support::{
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{Handler, builder, layer, text, until},
};

/// With a frozen Redis, and waits that end before its budget does.
async fn answers(
    fallback: impl IntoIterator<Item = Fallback>,
    count: usize,
) -> (Vec<StatusCode>, usize) {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let cache = builder(proxy.url())
        .redis_budget(Duration::from_secs(1))
        .build()
        .unwrap();
    cache.connect().await;
    proxy.freeze();
    let handler = Handler::held();
    let layer = layer(&cache)
        .wait_timeout(Duration::from_millis(100))
        .fallback(fallback);
    let worker = handler.worker(&layer, text);

    let herd = worker.herd("/report", count);
    until(|| cache.stats().timed_out == count as u64).await;
    // The claim of the flight that they have joined first has failed too, and it builds or is gone.
    until(|| cache.stats().shared_failures.total() > 0 && cache.stats().flights == 1).await;
    handler.has_begun(1).await;
    handler.let_go();

    let answers = herd.answers().await;
    (
        answers.iter().map(|answer| answer.status).collect(),
        handler.builds(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_starter_builds_with_its_request_when_its_wait_is_over() {
    let (statuses, builds) = answers([Fallback::Stale, Fallback::Build], 1).await;

    assert_eq!(statuses, [StatusCode::OK]);
    assert_eq!(builds, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_wait_share_one_build_when_their_wait_is_over() {
    let (statuses, builds) = answers([Fallback::Stale, Fallback::Build], 20).await;

    assert_eq!(statuses, [StatusCode::OK; 20]);
    assert_eq!(builds, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_rejected_leaves_its_request_to_the_build() {
    let (statuses, builds) = answers([Fallback::Reject], 3).await;

    assert_eq!(statuses, [StatusCode::SERVICE_UNAVAILABLE; 3]);
    assert_eq!(builds, 1);
}
