//! What a health endpoint is told of the connections, and how many there are.

use std::time::Duration;

use tower_stampede::{Cache, LinkHealth, LinkState};

use crate::support::{
    redis::RedisServer,
    worker::{Handler, cache, layer, settled, text, until},
};

fn links(cache: &Cache) -> Vec<LinkHealth> {
    cache.health().links
}

fn all(cache: &Cache, wanted: impl Fn(&LinkHealth) -> bool) -> bool {
    links(cache).iter().all(wanted)
}

#[test]
fn a_cache_of_one_process_has_no_connections() {
    assert!(links(&Cache::in_memory()).is_empty());
}

#[tokio::test]
async fn each_connection_tells_what_it_does_since_when_how_fast_and_why_it_broke() {
    let mut redis = RedisServer::start();
    let cache = cache(redis.url());
    let names: Vec<_> = links(&cache).iter().map(|link| link.name).collect();
    assert_eq!(names, ["claims", "fills", "leases", "events"]);
    assert!(all(&cache, |link| link.state == LinkState::Idle
        && link.last_error.is_none()));

    let worker = Handler::open().worker(&layer(&cache), text);
    worker.get("/report").await;
    settled(&cache).await;
    until(|| all(&cache, |link| link.state == LinkState::Connected)).await;
    until(|| all(&cache, |link| link.latency.is_some())).await;
    let connected = links(&cache).remove(0);
    assert!(connected.latency.unwrap() < Duration::from_secs(10));
    assert_eq!(connected.failures, 0);

    redis.kill();
    let down = |link: &LinkHealth| {
        matches!(link.state, LinkState::Broken | LinkState::Probing) && link.last_error.is_some()
    };
    until(|| all(&cache, down)).await;
    worker.get("/other").await;
    let before = links(&cache).remove(0);
    assert!(before.failures > 0, "{before:?}");
    // However often an attempt fails meanwhile.
    until(|| links(&cache)[0].since > before.since + Duration::from_millis(300)).await;

    redis.restart();
    until(|| all(&cache, |link| link.state == LinkState::Connected)).await;
    assert!(
        all(&cache, |link| link.last_error.is_some()),
        "why it last broke"
    );
}

#[tokio::test]
async fn a_hundred_routes_share_four_connections() {
    let redis = RedisServer::start();
    let cache = cache(redis.url());
    let handler = Handler::open();

    for route in 0..100 {
        let worker = handler.worker(&layer(&cache), text);
        worker.get(&format!("/{route}")).await;
    }
    settled(&cache).await;

    until(|| redis.clients("pubsub") == 1).await;
    assert_eq!(redis.clients("normal"), 3);
}
