//! Renewals beside those who take what there is: neither gets into the other's way.

use std::time::Duration;

use http::{HeaderValue, StatusCode, request::Parts};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_test::task;
use tower::Service as _;
use tower_stampede::{BufferLayer, Cache, RequestDirectives};

use crate::support::{
    client,
    pairs::Pair,
    redis::RedisServer,
    tiers::Tier,
    worker::{
        AMPLE, Answer, Handler, Incoming, Outgoing, Worker, builder, failing, get, layer, leases,
        settled, text, uncacheable,
    },
};

type Respond = fn(usize, &Incoming) -> Outgoing;

fn on_request(cache: &Cache) -> BufferLayer {
    layer(cache).refresh_if(|request| request.headers.contains_key("x-renew"))
}

fn eager(cache: &Cache) -> BufferLayer {
    layer(cache).refresh_after(0.0)
}

fn with(fields: &[(&'static str, &'static str)]) -> Incoming {
    let mut request = get("/a");
    for (name, value) in fields {
        let value = HeaderValue::from_static(value);
        request.headers_mut().insert(*name, value);
    }
    request
}

fn renew(worker: &Worker) -> JoinHandle<Answer> {
    let worker = worker.clone();
    tokio::spawn(async move { worker.send(with(&[("x-renew", "1")])).await })
}

fn renewed(build: usize, _: &Incoming) -> Outgoing {
    Outgoing::new(format!("renewed by {build}").into())
}

fn large(_: usize, _: &Incoming) -> Outgoing {
    Outgoing::new(vec![b'x'; 100 * 1024].into())
}

fn unstored(build: usize, request: &Incoming) -> Outgoing {
    let mut response = text(build, request);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// `cache` once there is an entry, of which the local tier keeps nothing that is larger than its
/// capacity.
async fn warm(cache: Cache, respond: Respond) -> Cache {
    let handler = Handler::open();
    handler.worker(&layer(&cache), respond).get("/a").await;
    settled(&cache).await;
    cache
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_of_a_refresh_says_nothing_to_those_who_take_what_there_is() {
    let ways: [(&str, Respond); 3] = [
        ("fails", failing),
        ("uncacheable", uncacheable),
        ("not stored", unstored),
    ];
    let entries: [(Respond, u64); 3] = [(text, 64), (large, 64), (large, 64 << 20)];
    for (way, respond) in ways {
        for (entry, capacity) in entries {
            for tier in Tier::all() {
                let cache = tier.builder().capacity(capacity).build().unwrap();
                let cache = warm(cache, entry).await;
                let handler = Handler::open();
                let worker = handler.worker(&eager(&cache), respond);

                for _ in 0..10 {
                    for answer in worker.herd("/a", 20).answers().await {
                        assert_eq!(answer.status, StatusCode::OK, "{way}: {answer:?}");
                        assert!(answer.outcome.contains("hit"), "{way}: {answer:?}");
                    }
                    settled(&cache).await;
                }
                let builds = handler.builds();
                assert!((1..=2).contains(&builds), "{way}: {builds} builds");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_of_a_renewal_says_nothing_to_those_who_take_what_there_is() {
    let ways: [Respond; 2] = [failing, uncacheable];
    for respond in ways {
        for tier in Tier::all() {
            let cache = tier.builder().capacity(64).build().unwrap();
            let cache = warm(cache, text).await;
            let handler = Handler::open();
            let worker = handler.worker(&on_request(&cache), respond);

            renew(&worker).await.unwrap();
            settled(&cache).await;
            for answer in worker.herd("/a", 50).answers().await {
                assert_eq!(answer.text(), "build 1", "{answer:?}");
            }
            assert_eq!(handler.builds(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_do_not_wait_for_those_who_renew() {
    for tier in Tier::all() {
        let cache = warm(tier.builder().build().unwrap(), text).await;
        let handler = Handler::held();
        let worker = handler.worker(&on_request(&cache), renewed);
        let renewing = renew(&worker);
        handler.has_begun(1).await;

        let hit = timeout(AMPLE, worker.get("/a")).await.unwrap();

        assert_eq!(hit.text(), "build 1");
        handler.let_go();
        assert_eq!(renewing.await.unwrap().text(), "renewed by 1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_do_not_wait_for_a_refresh_that_began_while_the_local_tier_was_trusted() {
    let trust = Duration::from_millis(100);
    let cache = Pair::memory().builder().trust_local(trust);
    let cache = warm(cache.build().unwrap(), text).await;
    let handler = Handler::held();
    let worker = handler.worker(&eager(&cache), renewed);
    worker.get("/a").await;
    handler.has_begun(1).await;
    sleep(trust).await;

    let hit = timeout(AMPLE, worker.get("/a")).await.unwrap();

    assert_eq!(hit.text(), "build 1");
    handler.let_go();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_renews_what_is_asked_for_all_the_time_builds_what_others_share() {
    for tier in Tier::all() {
        // Each hit asks the shared tier.
        let cache = tier.builder().capacity(64).build().unwrap();
        let cache = warm(cache, text).await;
        let handler = Handler::open();
        let worker = handler.worker(&on_request(&cache), renewed);
        let crowd = (0..32).map(|_| {
            let worker = worker.clone();
            tokio::spawn(async move {
                loop {
                    worker.get("/a").await;
                    tokio::task::yield_now().await;
                }
            })
        });
        let crowd: Vec<_> = crowd.collect();

        for _ in 0..50 {
            let answer = timeout(AMPLE, renew(&worker)).await.unwrap().unwrap();
            assert!(answer.text().starts_with("renewed"), "{answer:?}");
            assert!(!answer.outcome.contains("abandoned"), "{answer:?}");
        }

        crowd.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_that_follows_another_workers_takes_no_place_among_refreshes() {
    for tier in Tier::all() {
        let [one, other] = [(); 2].map(|()| tier.builder().max_refreshes(1).build().unwrap());
        let (one, other) = (warm(one, text).await, warm(other, text).await);
        let plain = Handler::open().worker(&layer(&other), text);
        plain.get("/b").await;
        settled(&other).await;
        let (slow, quick) = (Handler::held(), Handler::open());
        slow.worker(&eager(&one), renewed).get("/a").await;
        slow.has_begun(1).await;
        let worker = quick.worker(&eager(&other), renewed);
        worker.get("/a").await;
        tier.is_polled().await;

        worker.get("/b").await;
        quick.has_begun(1).await;

        slow.let_go();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_looks_takes_no_lease_for_what_it_refuses() {
    let redis = RedisServer::start();
    warm(builder(redis.url()).build().unwrap(), text).await;
    for fields in [
        &[("x-renew", "1"), ("range", "bytes=0-1")][..],
        &[("cache-control", "only-if-cached, max-age=0")],
    ] {
        let cache = builder(redis.url()).build().unwrap();
        let layer = on_request(&cache).request_directives(RequestDirectives::Honour);
        let worker = Handler::open().worker(&layer, text);

        worker.send(with(fields)).await;
        settled(&cache).await;

        assert_eq!(leases(&redis), [""; 0], "{fields:?}");
    }
}

#[tokio::test]
async fn who_renews_does_not_take_what_a_flight_it_joins_finds_in_the_local_tier() {
    let renews = |request: &Parts| request.headers.contains_key("x-renew");
    let (mut service, origin) = client::numbered(|layer| layer.refresh_if(renews));
    // It has looked in vain; its flight begins when it is polled.
    let mut late = task::spawn(service.call(client::get("/")));
    client::ask(&service, client::get("/")).await;
    client::settle().await;
    assert!(late.poll().is_pending());

    let renewed = client::ask(&service, client::with("/", &[("x-renew", "1")])).await;

    assert_eq!((renewed.text(), origin.builds()), ("build 2", 2));
}
