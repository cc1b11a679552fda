//! A Redis that is not there when the service starts, each in its way: it starts, serves, says so once, and
//! shares as soon as there is somebody to share with.

use std::time::Duration;

use tokio::time::Instant;
use tower_stampede::{Cache, LinkState, RedisConfig};

use crate::support::{
    log::Log,
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{AMPLE, Handler, layer, settled, text, until},
};

/// What is said of a start without this Redis.
async fn serves_all_the_same(redis: impl Into<RedisConfig>) -> Log {
    let (log, _guard) = Log::start();
    let cache = Cache::builder().redis(redis).build().unwrap();
    let states = cache.health().links.into_iter().map(|link| link.state);
    assert!(states.eq([LinkState::Idle; 4]), "nothing connects yet");
    let handler = Handler::open();
    let worker = handler.worker(&layer(&cache), text);

    for round in 0..3 {
        for page in 0..20 {
            let answer = worker.get(&format!("/{page}")).await;
            assert_eq!(
                answer.text(),
                format!("build {}", page + 1),
                "round {round}"
            );
        }
    }

    let claims = || cache.health().links.swap_remove(0);
    until(|| claims().last_error.is_some()).await;
    assert!(cache.stats().shared_failures.unreachable > 0);
    let links = cache.health().links.len();
    let told = log.lines("WARN", "not connected to Redis").len();
    assert!((1..=links).contains(&told), "{}", log.text());
    assert!(log.lines("WARN", "opened").len() <= 1, "{}", log.text());
    log
}

#[tokio::test]
async fn where_nobody_listens() {
    let log = serves_all_the_same("redis://127.0.0.1:1/").await;

    assert!(log.text().contains("refused"), "{}", log.text());
}

#[tokio::test]
async fn at_a_host_that_nobody_knows() {
    serves_all_the_same("redis://no-such-host.invalid/").await;
}

#[tokio::test]
async fn behind_a_password_that_is_wrong() {
    let redis = RedisServer::start();
    redis.config("requirepass", "right");

    let log = serves_all_the_same(RedisConfig::url(redis.url()).password("mistaken")).await;

    assert!(log.text().contains("authentication failed"));
    assert!(!log.text().contains("mistaken"), "{}", log.text());
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn through_tls_that_the_server_does_not_speak() {
    use tower_stampede::lock::{ErrorKind, LockManager};

    let redis = RedisServer::start();
    let url = redis.url().replace("redis:", "rediss:");

    serves_all_the_same(&url).await;

    let locks = LockManager::redis(&url).unwrap();
    let refused = locks.lock("job").acquire().await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn in_a_black_hole() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    proxy.freeze();

    serves_all_the_same(proxy.url()).await;
}

#[tokio::test]
async fn a_redis_that_refuses_connections_costs_a_request_milliseconds() {
    let mut quickest = AMPLE;
    for _ in 0..5 {
        let cache = Cache::builder()
            .redis("redis://127.0.0.1:1/")
            .build()
            .unwrap();
        let worker = Handler::open().worker(&layer(&cache), text);
        let start = Instant::now();
        worker.get("/report").await;
        quickest = quickest.min(start.elapsed());
    }

    assert!(quickest < Duration::from_millis(50), "{quickest:?}");
}

#[tokio::test]
async fn once_it_is_there_it_is_used() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    proxy.refuse();
    let caches = [0; 2].map(|_| Cache::builder().redis(proxy.url()).build().unwrap());
    let handler = Handler::open();
    let workers = handler.workers(&caches, text);
    for worker in &workers {
        worker.get("/before").await;
    }
    assert_eq!(handler.builds(), 2);

    proxy.heal();

    let shares = async {
        for page in 0.. {
            let path = format!("/{page}");
            let own = workers[0].get(&path).await;
            settled(&caches[0]).await;
            if workers[1].get(&path).await.text() == own.text() {
                return;
            }
        }
    };
    tokio::time::timeout(AMPLE, shares)
        .await
        .expect("they share");
}
