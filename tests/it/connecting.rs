//! [`Cache::connect`](tower_stampede::Cache::connect): connecting before the first request does.

use std::time::Duration;

use tower_stampede::{Cache, LinkState};

use crate::support::{
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{AMPLE, Handler, Herd, builder, cache, layer, settled, text, until},
};

fn is_connected(cache: &Cache) -> bool {
    let links = cache.health().links;
    let connected = |link: &tower_stampede::LinkHealth| link.state == LinkState::Connected;
    !links.is_empty() && links.iter().all(connected)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_it_a_cold_build_is_two_trips_and_opens_no_connection() {
    let redis = RedisServer::start();
    let cache = cache(redis.url());

    cache.connect().await;

    until(|| is_connected(&cache)).await;
    redis.reset_counts();
    let handler = Handler::open();
    let worker = handler.worker(&layer(&cache), text);
    assert_eq!(worker.get("/report").await.text(), "build 1");
    settled(&cache).await;
    assert_eq!((redis.count("evalsha"), redis.count("eval")), (2, 0));
    assert_eq!(
        (redis.count("subscribe"), redis.count("script|load")),
        (0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_redis_that_does_not_answer_it_waits_for_no_more_than_the_budget_and_it_heals() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    proxy.freeze();
    let cache = builder(proxy.url())
        .redis_budget(Duration::from_millis(100))
        .build()
        .unwrap();

    tokio::time::timeout(AMPLE, cache.connect()).await.unwrap();

    let worker = Handler::open().worker(&layer(&cache), text);
    assert_eq!(worker.get("/report").await.text(), "build 1");
    proxy.heal();
    until(|| is_connected(&cache)).await;
}

#[tokio::test]
async fn where_nothing_is_shared_it_does_nothing() {
    let cache = Cache::in_memory();

    cache.connect().await;

    assert!(cache.health().links.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_keys_are_asked_for_first_the_scripts_are_loaded_once() {
    let redis = RedisServer::start();
    let cache = cache(redis.url());
    let handler = Handler::open();
    let worker = handler.worker(&layer(&cache), text);

    let herds = (0..100).map(|number| worker.herd(&format!("/report/{number}"), 2));
    let all = herds.reduce(Herd::and).unwrap();

    assert_eq!(all.answers().await.len(), 200);
    settled(&cache).await;
    assert_eq!(handler.builds(), 100);
    let loads = redis.count("script|load");
    assert!(loads <= 3, "{loads}");
}

#[test]
fn where_the_runtime_that_listened_ends_local_entries_are_not_trusted_until_another_one_listens() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let redis = RedisServer::start();
    let (cache, other) = (cache(redis.url()), cache(redis.url()));
    let handler = Handler::open();
    let worker = handler.worker(&layer(&cache), text);
    let first = runtime();
    first.block_on(async {
        cache.connect().await;
        assert_eq!(worker.get("/report").await.text(), "build 1");
        settled(&cache).await;
    });

    drop(first);
    runtime().block_on(async {
        let uri = "http://shop.example/report".parse::<http::Uri>().unwrap();
        other.purge(&uri).await.unwrap();
    });

    runtime().block_on(async {
        assert_eq!(worker.get("/report").await.text(), "build 2");
    });
}
