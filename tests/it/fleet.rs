//! Stale entries, failures and purges between workers.

use std::{pin::pin, slice, time::Duration};

use futures_util::FutureExt as _;
use http::{StatusCode, Uri};
use tokio::time::{sleep, timeout};
use tower_stampede::Cache;

use crate::support::{
    redis::RedisServer,
    worker::{
        AMPLE, Handler, Incoming, Outgoing, Worker, builder, cache, caching, failing, layer,
        settled, text, uncacheable, until, waiting,
    },
};

const REPORT: &str = "http://shop.example/report";

fn refreshed(build: usize, request: &Incoming) -> Outgoing {
    caching(build, request, "max-age=10, stale-while-revalidate=60")
}

fn standing_in(build: usize, request: &Incoming) -> Outgoing {
    caching(build, request, "max-age=10, stale-if-error=60")
}

/// A Redis with an entry for `/report` that another process has built, stale by now.
async fn with_stale(respond: fn(usize, &Incoming) -> Outgoing) -> RedisServer {
    let redis = RedisServer::start();
    let before = cache(redis.url());
    let worker = Handler::open().worker(&layer(&before), respond);
    assert_eq!(worker.get("/report").await.text(), "build 1");
    settled(&before).await;
    // Less than the window is left, so that it is stale, as if ten seconds had passed.
    let entry: Vec<String> = redis.command(&["KEYS", "*:e1"]);
    redis.command::<()>(&["PEXPIRE", &entry[0], "55000"]);
    redis
}

/// Connects a cache, stores the scripts, and forgets what that took.
async fn warm(redis: &RedisServer, cache: &Cache) {
    let worker = Handler::open().worker(&layer(cache), failing);
    worker.get("/warm").await;
    settled(cache).await;
    redis.reset_counts();
}

fn trips(redis: &RedisServer) -> u64 {
    redis.count("evalsha") + redis.count("eval")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_process_answers_at_once_with_what_is_stale_within_its_window_and_refreshes_it() {
    let redis = with_stale(refreshed).await;
    let cold = cache(redis.url());
    let handler = Handler::held();
    let worker = handler.worker(&layer(&cold), |build, request| {
        refreshed(build + 1, request)
    });

    for answer in worker.herd("/report", 20).answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    handler.has_begun(1).await;
    handler.let_go();
    settled(&cold).await;

    assert_eq!(worker.get("/report").await.text(), "build 2");
    assert_eq!(handler.builds(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_another_process_refreshes_stale_hits_cost_a_process_next_to_nothing() {
    let redis = with_stale(refreshed).await;
    let (busy, cold) = (cache(redis.url()), cache(redis.url()));
    let handler = Handler::held();
    let next = |build: usize, request: &Incoming| refreshed(build + 1, request);
    let refreshing = handler.worker(&layer(&busy), next);
    refreshing.get("/report").await;
    handler.has_begun(1).await;
    warm(&redis, &cold).await;
    let worker = handler.worker(&layer(&cold), next);

    for _ in 0..200 {
        assert_eq!(worker.get("/report").await.text(), "build 1");
    }

    assert!(trips(&redis) <= 5, "{} trips for 200 hits", trips(&redis));
    handler.let_go();
    let fresh = async { while worker.get("/report").await.text() != "build 2" {} };
    timeout(AMPLE, fresh)
        .await
        .expect("it hears of the fresh entry");
    assert_eq!(handler.builds(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_entry_of_the_shared_tier_stands_in_for_a_failure_in_every_process() {
    let redis = with_stale(standing_in).await;
    let caches = [cache(redis.url()), cache(redis.url())];
    for cache in &caches {
        warm(&redis, cache).await;
    }
    let handler = Handler::held();
    let workers = handler.workers(&caches, failing);
    let first = workers[0].herd("/report", 10);
    handler.has_begun(1).await;
    let second = workers[1].herd("/report", 10);
    until(|| trips(&redis) == 2).await;
    waiting(&caches, 20).await;
    handler.let_go();

    for answer in first.and(second).answers().await {
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, "build 1"));
    }
    assert_eq!(handler.builds(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_a_build_whose_lease_was_lost_is_not_remembered() {
    let redis = RedisServer::start();
    let cache = builder(redis.url()).failure_memo(AMPLE).build().unwrap();
    let handler = Handler::held();
    let (_, herd) = handler.under_way(&cache, failing, 5).await;
    let leases: Vec<String> = redis.command(&["KEYS", "*:l"]);
    redis.command::<()>(&["DEL", &leases[0]]);
    handler.let_go();
    for answer in herd.answers().await {
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    }
    settled(&cache).await;

    let healed = Handler::open().worker(&layer(&cache), text);
    assert_eq!(healed.get("/report").await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_the_tier_did_not_hear_of_is_remembered_all_the_same() {
    let redis = RedisServer::start();
    let cache = builder(redis.url()).failure_memo(AMPLE).build().unwrap();
    let handler = Handler::held();
    let (worker, herd) = handler.under_way(&cache, failing, 5).await;
    redis.pause();
    handler.let_go();
    herd.answers().await;
    settled(&cache).await;

    let next = worker.get("/report").await;
    redis.resume();

    assert_eq!(next.status, StatusCode::BAD_GATEWAY);
    assert_eq!(handler.builds(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_between_a_failure_and_its_memo_shares_it() {
    let redis = RedisServer::start();
    let cache = cache(redis.url());
    warm(&redis, &cache).await;
    let handler = Handler::held();
    let worker = handler.worker(&layer(&cache), failing);
    let first = worker.herd("/report", 1);
    handler.has_begun(1).await;
    redis.pause();
    handler.let_go();
    first.answers().await;

    let late = worker.herd("/report", 10).answers().await;
    redis.resume();

    assert!(
        late.iter()
            .all(|answer| answer.status == StatusCode::BAD_GATEWAY)
    );
    assert_eq!(handler.builds(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_probe_leaves_everybody_free_under_a_hit_for_miss_marker() {
    let redis = RedisServer::start();
    let caches = [cache(redis.url()), cache(redis.url())];
    let teach = Handler::open().worker(&layer(&caches[0]), uncacheable);
    teach.get("/report").await;
    settled(&caches[0]).await;
    for cache in &caches {
        let probe = Handler::open().worker(&layer(cache), failing);
        assert_eq!(probe.get("/report").await.status, StatusCode::BAD_GATEWAY);
        settled(cache).await;
    }

    let handler = Handler::held();
    let wave = caches.each_ref().map(|cache| {
        handler
            .worker(&layer(cache), uncacheable)
            .herd("/report", 10)
    });
    handler.has_begun(20).await;
    handler.let_go();
    for herd in wave {
        herd.answers().await;
    }
}

/// Stores `/report` through one worker and has the other one read it.
async fn shared_by(workers: &[Worker; 2], caches: &[Cache; 2]) {
    for (worker, cache) in workers.iter().zip(caches) {
        worker.get("/report").await;
        settled(cache).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_whose_caller_goes_away_reaches_the_other_processes() {
    let redis = RedisServer::start();
    let caches = [cache(redis.url()), cache(redis.url())];
    let handler = Handler::open();
    let workers = handler.workers(&caches, text);
    shared_by(&workers, &caches).await;

    {
        let uri = Uri::from_static(REPORT);
        let purge = pin!(caches[0].purge(&uri));
        assert!(purge.now_or_never().is_none(), "it is under way");
    };

    let told = async { while workers[1].get("/report").await.text() != "build 2" {} };
    timeout(AMPLE, told)
        .await
        .expect("the other process hears of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_frees_those_who_come_after_it_from_the_build_of_another_process() {
    let redis = RedisServer::start();
    let caches = [cache(redis.url()), cache(redis.url())];
    let slow = Handler::held();
    let early = slow.worker(&layer(&caches[0]), text).herd("/report", 5);
    slow.has_begun(1).await;

    caches[1].purge(&Uri::from_static(REPORT)).await.unwrap();
    let after = Handler::open().worker(&layer(&caches[1]), |_, _| Outgoing::new("new".into()));

    assert_eq!(after.get("/report").await.text(), "new");
    slow.let_go();
    for answer in early.answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    settled(&caches[0]).await;
    let reader = Handler::open().worker(&layer(&caches[0]), text);
    assert_eq!(reader.get("/report").await.text(), "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_after_a_gap_in_the_events_asks_anew_instead_of_joining_what_is_under_way() {
    let redis = RedisServer::start();
    // No renewal: what is counted is claims.
    let cache = builder(redis.url()).lease_ttl(AMPLE).build().unwrap();
    let handler = Handler::held();
    let worker = handler.worker(&layer(&cache), text);
    let early = worker.herd("/report", 5);
    waiting(slice::from_ref(&cache), 5).await;
    handler.has_begun(1).await;
    redis.reset_counts();
    drop(worker.herd("/report", 5).answers().now_or_never());
    assert_eq!(trips(&redis), 0, "before the gap they join");

    redis.command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let asks = async {
        while trips(&redis) == 0 {
            drop(worker.herd("/report", 1));
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(AMPLE, asks).await.expect("a second flight claims");
    handler.let_go();

    for answer in early.answers().await {
        assert_eq!(answer.text(), "build 1");
    }
}
