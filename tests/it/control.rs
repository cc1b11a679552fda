//! Switches, outcomes as extensions, derived timeouts, warming up and shutting down.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use tokio::time::{Instant, sleep, timeout};
use tower::{ServiceExt as _, service_fn};
use tower_stampede::{BufferLayer, Cache, CacheOutcome, Fallback, Progress, Switch, Warm};

use crate::support::{
    client::{ask, behind, get, same, with},
    log::Log,
    origin::{Origin, failure, fresh},
};

const SECOND: Duration = Duration::from_secs(1);

fn counting() -> Origin {
    Origin::new(|call| async move { fresh(call.number.to_string()) })
}

#[tokio::test(start_paused = true)]
async fn a_switch_turns_layers_off_and_on_while_they_run() {
    let switch = Switch::default();
    let layer = BufferLayer::new(Cache::in_memory()).switch(&switch);
    let service = behind(&layer, &counting());
    assert_eq!(ask(&service, get("/")).await.text(), "1");

    switch.clone().off();
    for number in ["2", "3"] {
        let answer = ask(&service, get("/")).await;
        assert_eq!(answer.text(), number);
        assert_eq!(answer.status_line(), "stampede; fwd=bypass; detail=off");
    }

    switch.on();
    assert_eq!(
        ask(&service, get("/")).await.text(),
        "1",
        "what is stored has stayed"
    );
}

/// The outcome that each of three answers carries: a build, a hit, and one that bypasses.
async fn exposed(layer: BufferLayer) -> [Option<CacheOutcome>; 3] {
    let service = behind(&layer, &counting());
    let mut outcomes = Vec::new();
    for request in [get("/"), get("/"), with("/", &[("cookie", "a=b")])] {
        let response = service.clone().oneshot(request).await.unwrap();
        let written = CacheOutcome::of(response.headers());
        let extension = response.extensions().get::<CacheOutcome>().cloned();
        assert!(extension.is_none() || extension == written);
        outcomes.push(extension);
    }
    outcomes.try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_outcome_is_an_extension_of_every_response_on_request() {
    let layer = BufferLayer::new(Cache::in_memory());
    assert_eq!(exposed(layer.clone()).await, [const { None }; 3]);

    let layer = BufferLayer::new(Cache::in_memory()).expose_outcome();
    let [built, hit, bypassed] = exposed(layer).await.map(Option::unwrap);
    assert!(built.is_stored() && built.forward() == Some("uri-miss"));
    assert!(hit.is_hit() && hit.ttl().is_some_and(|ttl| ttl > 0));
    assert_eq!(
        (bypassed.forward(), bypassed.detail()),
        (Some("bypass"), Some("cookie"))
    );
}

/// Takes a tenth of a second, and for `/slow` a minute.
fn paced() -> Origin {
    Origin::new(|call| async move {
        let slow = call.parts.uri.path() == "/slow";
        sleep(if slow { 60 * SECOND } else { SECOND / 10 }).await;
        fresh(call.number.to_string())
    })
}

#[tokio::test(start_paused = true)]
async fn the_wait_timeout_follows_the_build_times_within_its_limits() {
    let limits = SECOND / 5..=2 * SECOND;
    let layer = BufferLayer::new(Cache::in_memory())
        .adaptive_timeouts(limits)
        .fallback(Fallback::Reject);
    let service = behind(&layer, &paced());
    for number in 1..=8 {
        ask(&service, get(&format!("/{number}"))).await;
    }

    let start = Instant::now();
    let answer = ask(&service, get("/slow")).await;

    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let waited = start.elapsed();
    assert!(
        (SECOND / 4..SECOND / 2).contains(&waited),
        "three times a tenth of a second: {waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn it_is_said_once_that_builds_come_near_their_limit() {
    let (log, _guard) = Log::start();
    let layer = BufferLayer::new(Cache::in_memory()).build_timeout(SECOND / 9);
    let service = behind(&layer, &paced());

    for number in 1..=5 {
        ask(&service, get(&format!("/{number}"))).await;
    }

    assert_eq!(
        log.lines("WARN", "build_timeout").len(),
        1,
        "{}",
        log.text()
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_of_requests_is_built_ahead_of_the_traffic_a_few_at_a_time() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(SECOND / 10).await;
        match call.number {
            7 => failure(503, "broken"),
            _ => fresh("built"),
        }
    });
    let service = behind(&BufferLayer::new(cache), &origin);
    let seen = Arc::new(AtomicUsize::new(0));
    let listener = Arc::clone(&seen);
    let requests = |count: usize| (0..count).map(|number| get(&format!("/{number}")));

    let done = Warm::new(service.clone())
        .concurrency(4)
        .on_progress(move |_| {
            listener.fetch_add(1, Ordering::SeqCst);
        })
        .run(requests(20))
        .await;

    assert_eq!((done.answered, done.failed), (19, 1));
    assert_eq!(seen.load(Ordering::SeqCst), 20);
    assert_eq!((origin.builds(), origin.peak()), (20, 4));
    let again = Warm::new(service).run(requests(5)).await;
    assert_eq!(
        (again.answered, origin.builds()),
        (5, 20),
        "they are there already"
    );
}

#[tokio::test(start_paused = true)]
async fn warming_up_survives_errors_and_ends_with_what_it_was_given() {
    let broken =
        service_fn(async |_: Request<Empty<Bytes>>| Err::<Response<Full<Bytes>>, _>("refused"));
    let requests = (0..3).map(|_| Request::new(Empty::new()));

    let done = Warm::new(broken).concurrency(0).run(requests).await;

    assert_eq!((done.answered, done.failed), (0, 3));
    assert_eq!(done.to_string(), "0 answered, 3 failed");
    let none = Warm::new(broken)
        .run(Vec::<Request<Empty<Bytes>>>::new())
        .await;
    assert_eq!(none, Progress::default());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_a_failure_and_the_rest_is_built_all_the_same() {
    let origin = Origin::new(|call| async move {
        assert_ne!(call.number, 2, "this page is broken");
        fresh("built")
    });
    let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);
    let direct = service_fn(async |request: Request<Empty<Bytes>>| {
        assert_ne!(request.uri().path(), "/2", "this page is broken");
        Ok::<_, &str>(Response::new(Full::<Bytes>::default()))
    });
    let requests = || (0..5).map(|number| get(&format!("/{number}")));

    let through_a_layer = Warm::new(service).run(requests()).await;
    let without_one = Warm::new(direct).concurrency(1).run(requests()).await;

    for done in [through_a_layer, without_one] {
        assert_eq!((done.answered, done.failed), (4, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_requests_at_a_time_as_there_are_is_no_more_than_that() {
    let origin = Origin::new(|_| async {
        sleep(SECOND).await;
        fresh("built")
    });
    let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);
    let requests = (0..20).map(|number| get(&format!("/{number}")));

    let done = Warm::new(service)
        .concurrency(usize::MAX)
        .run(requests)
        .await;

    assert_eq!((done.answered, origin.peak()), (20, 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_blocks_its_thread_does_not_keep_the_cache_from_shutting_down() {
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let origin = Origin::new(move |_| {
        // In the call itself, where nothing can interrupt it.
        assert!(blocked.lock().unwrap().recv().is_err());
        async { fresh("late") }
    });
    let cache = Cache::builder()
        .shutdown_grace(Duration::ZERO)
        .build()
        .unwrap();
    let service = behind(&BufferLayer::new(cache.clone()), &origin);
    let asked = same(&service, 1, "/");
    origin.called(1).await;

    let abandoned = timeout(30 * SECOND, cache.shutdown()).await;

    assert_eq!(abandoned, Ok(1));
    drop(release);
    assert_eq!(asked.answers().await[0].text(), "late");
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn however_fast_builds_are_workers_on_one_redis_share_them() {
    use crate::support::{
        redis::RedisServer,
        worker::{self, Handler, settled, text},
    };

    let redis = RedisServer::start();
    let handler = Handler::open();
    let caches = [worker::cache(redis.url()), worker::cache(redis.url())];
    let workers = caches.each_ref().map(|cache| {
        let layer = worker::layer(cache).adaptive_timeouts(Duration::ZERO..=Duration::ZERO);
        (cache, handler.worker(&layer, text))
    });
    let [(_, one), (_, other)] = &workers;
    for (cache, worker) in &workers {
        // Enough for timeouts to be derived.
        for number in 0..8 {
            worker.get(&format!("/{number}")).await;
            settled(cache).await;
        }
    }
    let before = handler.builds();

    for number in 100..110 {
        let path = format!("/{number}");
        let built = one.get(&path).await;
        settled(&caches[0]).await;
        assert_eq!(other.get(&path).await.text(), built.text());
    }

    assert_eq!(handler.builds() - before, 10);
}
