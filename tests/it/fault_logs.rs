//! What people are told of a Redis that fails: each change of state once, with its cause.

use tokio::time::Instant;
use tower_stampede::Cache;

use crate::support::{
    log::Log,
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{AMPLE, Worker, builder, cache, settled, until, warm},
};

async fn read(worker: &Worker, name: &str, pages: usize) {
    for page in 0..pages {
        worker.get(&format!("/{name}/{page}")).await;
    }
}

#[tokio::test]
async fn the_breaker_says_once_why_it_opened_and_once_that_it_closed() {
    let (log, _guard) = Log::start();
    let mut redis = RedisServer::start();
    let cache = Cache::builder().redis(redis.url()).build().unwrap();
    let worker = warm(&cache).await;

    redis.kill();
    read(&worker, "down", 50).await;
    redis.restart();
    let closed = || !log.lines("INFO", "closed").is_empty();
    let asks = async {
        while !closed() {
            read(&worker, "back", 5).await;
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AMPLE, asks).await.expect("it closes");

    let opened = log.lines("WARN", "opened");
    assert_eq!(opened.len(), 1, "{}", log.text());
    assert!(
        opened[0].contains("cause=the connection to Redis is down: "),
        "{opened:?}"
    );
    assert_eq!(log.lines("INFO", "closed").len(), 1, "{}", log.text());
}

#[tokio::test]
async fn what_the_server_refuses_is_told_once_with_its_code_and_once_more_when_it_takes_it_again() {
    let (log, _guard) = Log::start();
    let redis = RedisServer::start();
    let cache = cache(redis.url());
    let worker = warm(&cache).await;

    redis.command::<()>(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
    read(&worker, "forbidden", 50).await;
    redis.command::<()>(&["ACL", "SETUSER", "default", "+evalsha", "+eval"]);
    read(&worker, "allowed", 50).await;

    let refused = log.lines("WARN", "takes none");
    assert_eq!(refused.len(), 1, "{}", log.text());
    assert!(refused[0].contains("NOPERM"), "{refused:?}");
    assert_eq!(
        log.lines("INFO", "takes them again").len(),
        1,
        "{}",
        log.text()
    );
    assert!(log.lines("WARN", "opened").is_empty(), "{}", log.text());
}

#[tokio::test]
async fn a_redis_that_comes_and_goes_does_not_fill_the_log() {
    let (log, _guard) = Log::start();
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let cache = Cache::builder().redis(proxy.url()).build().unwrap();
    let worker = warm(&cache).await;
    let start = Instant::now();

    for round in 0..15 {
        proxy.refuse();
        proxy.cut();
        read(&worker, &format!("away/{round}"), 10).await;
        proxy.heal();
        let before = cache.stats().shared_skipped;
        let asks = async {
            let stored = || redis.command::<Vec<String>>(&["KEYS", "*:e1"]).len();
            let had = stored();
            while stored() == had {
                worker
                    .get(&format!("/back/{round}/{}", fastrand::u64(..)))
                    .await;
                settled(&cache).await;
            }
        };
        tokio::time::timeout(AMPLE, asks).await.expect("it heals");
        assert!(cache.stats().shared_skipped >= before);
    }

    // Each of the four connections, and the breaker, at most once in five seconds.
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap();
    let most = 5 * (seconds / 5 + 1);
    let told = log.lines("WARN", "").len();
    assert!(told <= most, "{told} lines in {seconds} s\n{}", log.text());
    assert!(log.lines("WARN", "opened").len() <= seconds / 5 + 1);
}

#[tokio::test]
async fn entries_that_are_of_no_use_are_all_counted_and_one_is_told() {
    let (log, _guard) = Log::start();
    let redis = RedisServer::start();
    let first = cache(redis.url());
    let pages = 10;
    read(&warm(&first).await, "page", pages).await;
    settled(&first).await;
    let entries: Vec<String> = redis.command(&["KEYS", "*:e1"]);
    for entry in &entries {
        // The kind of the value is none that is known.
        redis.command::<()>(&["SETRANGE", entry, "4", "?"]);
    }

    let second = builder(redis.url()).build().unwrap();
    read(&warm(&second).await, "page", pages).await;
    until(|| second.stats().flights == 0).await;

    assert_eq!(entries.len(), pages + 1);
    assert_eq!(second.stats().shared_failures.unusable, pages as u64 + 1);
    assert_eq!(log.lines("WARN", "no use").len(), 1, "{}", log.text());
}
