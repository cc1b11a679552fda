//! What Redis holds comes to an end by itself, and a Redis that can hold no more costs a build at most.

use std::time::Duration;

use http::{StatusCode, Uri};
use tower_stampede::{Cache, Target};

use crate::support::{
    redis::RedisServer,
    worker::{
        self, AMPLE, Handler, builder, cache, caching, failing, layer, leases, settled, text,
        uncacheable, until,
    },
};

/// Whatever leaves something in Redis.
async fn works(redis: &RedisServer, cache: &Cache) {
    let handler = Handler::open();
    let stored = handler.worker(&layer(cache), text);
    let language = handler.worker(&layer(cache), |build, request| {
        let mut response = caching(build, request, "max-age=60, stale-if-error=600");
        let vary = http::HeaderValue::from_static("accept-language");
        response.headers_mut().insert("vary", vary);
        response
    });
    for page in 0..5 {
        stored.get(&format!("/page/{page}")).await;
        language.get(&format!("/language/{page}")).await;
    }
    let large = "x".repeat(200_000);
    let large = handler.worker(&layer(cache), move |_, _| {
        http::Response::new(large.clone().into())
    });
    large.get("/large").await;
    handler.worker(&layer(cache), failing).get("/failing").await;
    let mine = handler.worker(&layer(cache), uncacheable);
    mine.get("/mine").await;
    // All but the one that is held.
    until(|| cache.stats().flights == 1).await;
    cache
        .purge(&Uri::from_static("http://shop.example/page/1"))
        .await
        .unwrap();
    cache.purge_tag("reports").await.unwrap();
    cache.soft_purge(Target::all()).await.unwrap();
    // A claim whose answer is lost is undone, and leaves a note of that.
    redis.pause();
    let hasty = Cache::builder().redis(redis.url()).build().unwrap();
    let lost = handler.worker(&layer(&hasty), text);
    lost.get("/lost").await;
    redis.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_ends_by_itself_but_the_one_set_of_purged_tags() {
    let redis = RedisServer::start();
    // Remembered for long enough to be seen.
    let builder = builder(redis.url()).lease_ttl(AMPLE).failure_memo(AMPLE);
    let cache = builder.build().unwrap();
    let held = Handler::held();
    let building = held.worker(&layer(&cache), text).herd("/held", 1);
    held.has_begun(1).await;

    works(&redis, &cache).await;

    let keys: Vec<String> = redis.command(&["KEYS", "*"]);
    for kind in [":e1", ":e1:", ":l", ":m", ":f"] {
        assert!(
            keys.iter().any(|key| key.contains(kind)),
            "{kind}: {keys:?}"
        );
    }
    for key in &keys {
        let left: i64 = redis.command(&["PTTL", key]);
        if key == "stampede:tags" {
            assert_eq!(left, -1);
        } else {
            assert!(left > 0 || left == -2, "{key}: {left}");
        }
    }
    held.let_go();
    building.answers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_for_a_lease_nobody_holds_one_and_each_process_builds_once() {
    let redis = RedisServer::start();
    let caches = [0; 2].map(|_| cache(redis.url()));
    let handler = Handler::held();
    let workers = handler.workers(&caches, text);
    handler.let_go_one();
    workers[0].get("/warm").await;
    settled(&caches[0]).await;
    redis.config("maxmemory", "1");

    let herds = workers.each_ref().map(|worker| worker.herd("/report", 20));
    handler.has_begun(3).await;
    assert_eq!(leases(&redis), [""; 0]);
    worker::waiting(&caches, 40).await;
    handler.let_go();

    for herd in herds {
        for answer in herd.answers().await {
            assert_eq!(answer.status, StatusCode::OK);
        }
    }
    assert_eq!(handler.builds(), 1 + 2);
    assert!(
        caches
            .iter()
            .all(|cache| cache.stats().shared_failures.out_of_memory > 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_for_an_entry_it_is_delivered_and_those_who_wait_elsewhere_are_told_at_once() {
    let redis = RedisServer::start();
    // Nobody waits a lease out while the test lasts.
    let caches = [0; 2].map(|_| builder(redis.url()).lease_ttl(100 * AMPLE).build().unwrap());
    let (slow, quick) = (Handler::held(), Handler::open());
    let first = slow.worker(&layer(&caches[0]), text).herd("/report", 10);
    slow.has_begun(1).await;
    let second = quick.worker(&layer(&caches[1]), text).herd("/report", 10);
    worker::waiting(&caches, 20).await;
    until(|| redis.clients("pubsub") == 2).await;

    redis.config("maxmemory", "1");
    slow.let_go();

    for answer in first.and(second).answers().await {
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, "build 1"));
    }
    until(|| leases(&redis).is_empty()).await;
    assert_eq!((slow.builds(), quick.builds()), (1, 1));
    settled(&caches[0]).await;
    let kept = slow.worker(&layer(&caches[0]), text).get("/report").await;
    assert!(kept.outcome.contains("hit"), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_short_by_default() {
    let redis = RedisServer::start();
    let cache = Cache::builder()
        .redis(redis.url())
        .redis_budget(Duration::from_secs(10))
        .build()
        .unwrap();
    let held = Handler::held();
    let building = held.worker(&layer(&cache), text).herd("/held", 1);
    held.has_begun(1).await;

    let lease = leases(&redis).remove(0);
    let left = || redis.command::<i64>(&["PTTL", &lease]);

    let before = left();
    assert!((1..=3000).contains(&before), "{before}");
    // It is renewed long before it ends.
    until(|| left() < 2500).await;
    until(|| left() > 2500).await;
    held.let_go();
    building.answers().await;
}
