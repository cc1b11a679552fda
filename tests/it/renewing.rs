//! Early refresh, soft timeouts, minimal uses, and requests that renew.

use std::{convert::Infallible, time::Duration};

use http::{HeaderValue, StatusCode};
use tokio::time::{advance, sleep};
use tower_stampede::{BufferLayer, Cache};

use crate::support::{
    redis::RedisServer,
    worker::{
        AMPLE, Handler, Incoming, Outgoing, Worker, cache, caching, failing, get, layer, settled,
        text, until,
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// Fresh for 100 seconds, to the second.
fn plain(cache: &Cache) -> BufferLayer {
    layer(cache).ttl(100 * SECOND).jitter(0.0)
}

#[tokio::test(start_paused = true)]
async fn the_first_hit_after_a_part_of_its_life_refreshes_an_entry_and_nobody_waits() {
    let cache = Cache::in_memory();
    let handler = Handler::held();
    handler.let_go_one();
    let worker = handler.worker(&plain(&cache).refresh_after(0.8), text);
    worker.get("/a").await;

    advance(79 * SECOND).await;
    worker.get("/a").await;
    assert_eq!(handler.builds(), 1);
    advance(2 * SECOND).await;
    for answer in worker.herd("/a", 20).answers().await {
        assert_eq!(answer.text(), "build 1");
        assert!(answer.outcome.contains("hit; ttl=19"), "{answer:?}");
    }
    until(|| handler.builds() == 2).await;
    handler.let_go();
    settled(&cache).await;

    assert_eq!(worker.get("/a").await.text(), "build 2");
    assert_eq!(handler.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn with_early_refresh_an_entry_that_is_asked_for_often_is_never_missing() {
    let cache = Cache::in_memory();
    let slow = tower::service_fn(async |request: Incoming| {
        sleep(SECOND).await;
        Ok::<_, Infallible>(text(1, &request))
    });
    let brief = plain(&cache).ttl(20 * SECOND).early_refresh(1.0);
    let service = tower::Layer::layer(&brief, slow);
    let ask = async || {
        let answered = tower::ServiceExt::oneshot(service.clone(), get("/a")).await;
        answered.unwrap().headers()["cache-status"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    ask().await;

    // A hundred hits a second, over ten lives: none ends before a refresh has had its second.
    for _ in 0..20_000 {
        advance(SECOND / 100).await;
        let outcome = ask().await;
        assert!(outcome.contains("hit"), "{outcome}");
    }

    let builds = cache.stats().builds;
    assert!((10..=14).contains(&builds), "{builds} builds for ten lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_all_workers_one_refreshes_ahead_of_time() {
    let redis = RedisServer::start();
    let caches: Vec<_> = (0..4).map(|_| cache(redis.url())).collect();
    let eager = |cache: &Cache| plain(cache).refresh_after(0.0);
    let first = Handler::open();
    for cache in &caches {
        // Not eager itself: it only brings the entry into each process.
        first.worker(&plain(cache), text).get("/a").await;
        settled(cache).await;
    }
    assert_eq!(first.builds(), 1);

    let held = Handler::held();
    let workers: Vec<_> = caches
        .iter()
        .map(|cache| held.worker(&eager(cache), |_, _| Outgoing::new("renewed".into())))
        .collect();
    for worker in &workers {
        for answer in worker.herd("/a", 10).answers().await {
            assert_eq!(answer.text(), "build 1");
        }
    }
    held.has_begun(1).await;
    let asked = || redis.count("evalsha") + redis.count("eval");
    let before = asked();
    for worker in &workers {
        worker.herd("/a", 100).answers().await;
    }
    assert!(
        asked() - before <= 20,
        "{} trips for 400 hits",
        asked() - before
    );
    assert_eq!(held.builds(), 1);
    held.let_go();

    for worker in &workers {
        let renewed = async { while worker.get("/a").await.text() != "renewed" {} };
        tokio::time::timeout(AMPLE, renewed).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_early_refresh_that_fails_changes_nothing_and_is_tried_ever_more_rarely() {
    let cache = Cache::in_memory();
    let handler = Handler::open();
    handler.worker(&plain(&cache), text).get("/a").await;
    let broken = handler.worker(&plain(&cache).refresh_after(0.0), failing);

    for _ in 0..60 {
        let answer = broken.get("/a").await;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, "build 1"));
        settled(&cache).await;
        advance(SECOND).await;
    }

    // After 0, 1, 3, 7, 15 and 31 seconds.
    let builds = handler.builds() - 1;
    assert!((4..=7).contains(&builds), "{builds} builds in a minute");
}

#[tokio::test(start_paused = true)]
async fn while_a_stale_entry_stands_in_a_broken_handler_is_tried_ever_more_rarely() {
    let cache = Cache::in_memory();
    let handler = Handler::open();
    let respond =
        |build: usize, request: &Incoming| caching(build, request, "max-age=1, stale-if-error=600");
    handler.worker(&plain(&cache), respond).get("/a").await;
    let broken = handler.worker(&plain(&cache), failing);
    advance(2 * SECOND).await;

    for _ in 0..120 {
        for answer in broken.herd("/a", 5).answers().await {
            assert_eq!((answer.status, answer.text()), (StatusCode::OK, "build 1"));
        }
        settled(&cache).await;
        advance(SECOND / 2).await;
    }

    let builds = handler.builds() - 1;
    assert!((4..=7).contains(&builds), "{builds} builds in a minute");
    advance(600 * SECOND).await;
    assert_eq!(broken.get("/a").await.status, StatusCode::BAD_GATEWAY);
}

#[tokio::test(start_paused = true)]
async fn after_the_soft_timeout_a_stale_entry_answers_and_the_build_goes_on() {
    let cache = Cache::in_memory();
    let handler = Handler::held();
    handler.let_go_one();
    let respond =
        |build: usize, request: &Incoming| caching(build, request, "max-age=1, stale-if-error=600");
    let worker = handler.worker(&plain(&cache).stale_after(SECOND / 10), respond);
    worker.get("/a").await;
    advance(2 * SECOND).await;

    let start = tokio::time::Instant::now();
    for answer in worker.herd("/a", 10).answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    handler.let_go();
    settled(&cache).await;

    assert_eq!(worker.get("/a").await.text(), "build 2");
    assert_eq!(handler.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_stale_entry_the_soft_timeout_means_nothing() {
    let cache = Cache::in_memory();
    let handler = Handler::held();
    let worker = handler.worker(&plain(&cache).stale_after(SECOND / 10), text);
    let herd = worker.herd("/a", 10);
    until(|| cache.stats().waiters == 10).await;
    sleep(SECOND).await;
    handler.let_go();

    for answer in herd.answers().await {
        assert_eq!(answer.text(), "build 1");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_too_rarely_is_not_stored_and_shared_all_the_same() {
    let cache = Cache::in_memory();
    let handler = Handler::open();
    let worker = handler.worker(&plain(&cache).min_uses(3), text);

    for number in 1..=2 {
        let answer = worker.get("/a").await;
        assert_eq!(answer.text(), format!("build {number}"));
        assert!(answer.outcome.contains("detail=min-uses"), "{answer:?}");
        settled(&cache).await;
    }
    assert!(worker.get("/a").await.outcome.contains("stored"));
    assert!(worker.get("/a").await.outcome.contains("hit"));
    assert!(worker.get("/b").await.outcome.contains("min-uses"));
    assert_eq!(handler.builds(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_renew_build_anew_together_and_what_they_build_is_stored_for_all() {
    let redis = RedisServer::start();
    for fleet in [
        vec![Cache::in_memory()],
        vec![cache(redis.url()), cache(redis.url())],
    ] {
        let handler = Handler::open();
        let renewing = |cache: &Cache| {
            plain(cache).refresh_if(|request| request.headers.contains_key("x-renew"))
        };
        for cache in &fleet {
            handler.worker(&renewing(cache), text).get("/a").await;
            settled(cache).await;
        }
        let held = Handler::held();
        let workers: Vec<_> = fleet
            .iter()
            .map(|cache| held.worker(&renewing(cache), |_, _| Outgoing::new("renewed".into())))
            .collect();

        let renew = |worker: &Worker| {
            let worker = worker.clone();
            tokio::spawn(async move {
                let mut request = get("/a");
                request
                    .headers_mut()
                    .insert("x-renew", HeaderValue::from_static("1"));
                worker.send(request).await
            })
        };
        let asked: Vec<_> = (0..10).map(|_| renew(&workers[0])).collect();
        held.has_begun(1).await;
        assert_eq!(
            workers[0].get("/a").await.text(),
            "build 1",
            "others do not wait"
        );
        until(|| fleet[0].stats().waiters == 10).await;
        held.let_go();

        for answer in asked {
            assert_eq!(answer.await.unwrap().text(), "renewed");
        }
        settled(&fleet[0]).await;
        assert_eq!(workers[0].get("/a").await.text(), "renewed");
        assert_eq!(held.builds(), 1);
        if fleet.len() > 1 {
            let cold = held.worker(&plain(&cache(redis.url())), text);
            assert_eq!(
                cold.get("/a").await.text(),
                "renewed",
                "the shared tier has it"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_so_many_entries_are_refreshed_at_the_same_time() {
    let cache = Cache::builder().max_refreshes(2).build().unwrap();
    let handler = Handler::open();
    let respond = |build: usize, request: &Incoming| {
        caching(build, request, "max-age=1, stale-while-revalidate=600")
    };
    let paths: Vec<_> = (0..10).map(|number| format!("/{number}")).collect();
    for path in &paths {
        handler.worker(&plain(&cache), respond).get(path).await;
    }
    advance(2 * SECOND).await;
    let held = Handler::held();
    let worker = held.worker(&plain(&cache), respond);

    for path in &paths {
        assert!(worker.get(path).await.outcome.contains("hit"));
    }
    until(|| held.builds() == 2).await;
    assert_eq!(cache.stats().flights, 2);
    held.let_go();
    settled(&cache).await;
    for path in &paths {
        worker.get(path).await;
        settled(&cache).await;
    }
    assert_eq!(held.builds(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_that_are_remembered_take_a_bounded_amount_of_memory() {
    let cache = Cache::builder().failure_memo(AMPLE).build().unwrap();
    let respond = |_: usize, _: &Incoming| {
        let mut response = Outgoing::new("x".repeat(60_000).into());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    };
    let handler = Handler::open();
    let worker = handler.worker(&plain(&cache), respond);

    for number in 0..1000 {
        worker.get(&format!("/{number}")).await;
    }
    let before = handler.builds();
    // The latest first: to remember one more is to forget another.
    for number in (0..1000).rev() {
        worker.get(&format!("/{number}")).await;
    }

    // Some 60 KiB each, in 10 MiB.
    let remembered = 1000 - (handler.builds() - before);
    assert!(
        (1..=200).contains(&remembered),
        "{remembered} are remembered"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_together_does_not_expire_together_unless_its_response_says_when() {
    let lives = async |layer: BufferLayer, respond: fn(usize, &Incoming) -> Outgoing| {
        let worker = Handler::open().worker(&layer.ttl(1000 * SECOND), respond);
        let mut lives = Vec::new();
        for number in 0..200 {
            let outcome = worker.get(&format!("/{number}")).await.outcome;
            let (_, ttl) = outcome.split_once("ttl=").unwrap();
            lives.push(ttl.parse::<u64>().unwrap());
        }
        lives
    };
    let layer = || plain(&Cache::in_memory());
    let spread = |lives: &[u64]| (*lives.iter().min().unwrap(), *lives.iter().max().unwrap());

    let (least, most) = spread(&lives(layer().jitter(0.2), text).await);
    assert!((800..840).contains(&least), "{least}");
    assert!((960..=1000).contains(&most), "{most}");
    assert_eq!(
        spread(&lives(layer().jitter(0.0), text).await),
        (1000, 1000)
    );
    let stated = |build: usize, request: &Incoming| caching(build, request, "max-age=900");
    let stated = lives(layer().jitter(1.0), stated).await;
    assert_eq!(spread(&stated), (900, 900));
}
