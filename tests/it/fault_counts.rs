//! Failures are told apart by what was the matter, and a crowd is none.

use std::time::Duration;

use http::StatusCode;
use tower_stampede::{Cache, SharedFailures};

use crate::support::{
    log::Log,
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{Handler, Worker, builder, layer, settled, text, uncacheable, warm},
};

struct Ground {
    redis: RedisServer,
    proxy: FaultProxy,
    cache: Cache,
    worker: Worker,
}

/// A worker that has stored something.
async fn ground() -> Ground {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let cache = Cache::builder().redis(proxy.url()).build().unwrap();
    Ground {
        redis,
        proxy,
        worker: warm(&cache).await,
        cache,
    }
}

type Fault = fn(&mut Ground);
type Count = fn(&SharedFailures) -> u64;

#[tokio::test]
async fn each_kind_of_failure_has_its_counter() {
    let kinds: [(&str, Fault, Count); 5] = [
        ("frozen", |on| on.redis.pause(), |of| of.timed_out),
        ("cut", |on| on.proxy.lose_next_reply(), |of| of.lost),
        (
            "gone",
            |on| {
                on.proxy.refuse();
                on.proxy.cut();
            },
            |of| of.unreachable,
        ),
        (
            "forbidden",
            |on| on.redis.command(&["ACL", "SETUSER", "default", "-evalsha"]),
            |of| of.refused,
        ),
        (
            "full",
            |on| on.redis.config("maxmemory", "1"),
            |of| of.out_of_memory,
        ),
    ];
    for (name, fault, count) in kinds {
        let mut ground = ground().await;
        assert_eq!(ground.cache.stats().shared_failures.total(), 0, "{name}");

        fault(&mut ground);
        for page in 0..3 {
            let answer = ground.worker.get(&format!("/{page}")).await;
            assert_eq!(answer.status, StatusCode::OK, "{name}");
        }

        let failures = ground.cache.stats().shared_failures;
        assert!(count(&failures) > 0, "{name}: {failures:?}");
        ground.redis.resume();
    }
}

#[tokio::test]
async fn a_crowd_for_more_pages_than_fit_the_queue_is_answered_and_no_outage() {
    let (log, _guard) = Log::start();
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let cache = builder(proxy.url()).build().unwrap();
    let handler = Handler::open();
    let worker = handler.worker(&layer(&cache), text);
    worker.get("/warm").await;
    settled(&cache).await;
    proxy.delay(Duration::from_millis(5));

    let crowd = 3000;
    let herds: Vec<_> = (0..crowd)
        .map(|page| worker.herd(&format!("/{page}"), 1))
        .collect();
    for herd in herds {
        assert_eq!(herd.answers().await[0].status, StatusCode::OK);
    }

    assert_eq!(handler.builds(), crowd + 1);
    let failures = cache.stats().shared_failures;
    assert!(failures.overloaded > 0, "{failures:?}");
    assert_eq!(failures.total(), failures.overloaded, "{failures:?}");
    assert!(log.lines("WARN", "opened").is_empty(), "{}", log.text());
    settled(&cache).await;
}

#[tokio::test]
async fn what_was_not_learnt_is_not_remembered() {
    let ground = ground().await;
    ground.proxy.delay_replies(Duration::from_millis(400));
    let answer = ground.worker.get("/report").await;
    assert_eq!(answer.status, StatusCode::OK);
    ground.proxy.heal();
    settled(&ground.cache).await;

    let marked: Vec<String> = ground.redis.command(&["KEYS", "*:[mf]*"]);
    assert_eq!(marked, [""; 0]);
    // Only what a response says of itself is.
    let worker = Handler::open().worker(&layer(&ground.cache), uncacheable);
    let marks = async {
        for page in 0.. {
            worker.get(&format!("/mine/{page}")).await;
            settled(&ground.cache).await;
            let marked: Vec<String> = ground.redis.command(&["KEYS", "*:m"]);
            if !marked.is_empty() {
                return;
            }
        }
    };
    tokio::time::timeout(crate::support::worker::AMPLE, marks)
        .await
        .expect("it is marked once Redis answers");
}
