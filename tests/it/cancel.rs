//! Clients that go away at any moment leave nothing behind.

use std::{
    future::{Future, pending},
    panic::resume_unwind,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fastrand::Rng;
use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tower::ServiceExt as _;
use tower_stampede::{BufferLayer, Cache, Fallback, Mode, OnDisconnect};

use crate::support::{
    client::{Layered, ask, assert_nothing_is_left, behind, get, settle, until, with},
    origin::{
        Call, Frames, Origin, OriginError, Reply, failure, frames, fresh, head, no_store, reply,
    },
};

const ROUNDS: u64 = 2000;

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_requests_that_are_dropped_anywhere() {
    for seed in 0..ROUNDS {
        round(seed).await;
    }
}

/// Some requests against an origin in some mood, each dropped at some point or not at all.
async fn round(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let cache = Cache::in_memory();
    let origin = Origin::fallible(move |call| moody(seed, call));
    let service = behind(&any_layer(&cache, &mut rng), &origin);
    let mut clients = JoinSet::new();
    for _ in 0..rng.usize(1..12) {
        let client = client(service.clone(), Rng::with_seed(rng.u64(..)));
        drop(clients.spawn(client));
        if rng.bool() {
            sleep(Duration::from_millis(rng.u64(0..40))).await;
        }
    }
    while let Some(ended) = clients.join_next().await {
        if let Err(error) = ended {
            assert!(error.is_panic(), "seed {seed}: {error}");
        }
    }

    // Clients are gone; builds have their own time.
    let quiet = timeout(Duration::from_secs(60), async {
        loop {
            let stats = cache.stats();
            if stats.flights == 0 && stats.waiters == 0 && stats.building_bytes == 0 {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(quiet.await.is_ok(), "seed {seed}: {:?}", cache.stats());
    origin.idle().await;

    let healthy = behind(
        &BufferLayer::new(cache.clone()),
        &Origin::new(|_| async { fresh("healthy") }),
    );
    sleep(Duration::from_secs(40)).await;
    let last = ask(&healthy, get("/a")).await;
    assert_eq!(last.status, StatusCode::OK, "seed {seed}");
    assert_nothing_is_left(&cache).await;
}

fn any_layer(cache: &Cache, rng: &mut Rng) -> BufferLayer {
    let layer = BufferLayer::new(cache.clone())
        .on_disconnect(if rng.bool() {
            OnDisconnect::Finish
        } else {
            OnDisconnect::Cancel
        })
        .mode(if rng.u8(..) < 50 {
            Mode::Coalesce
        } else {
            Mode::Cache
        })
        .wait_timeout(Duration::from_millis(rng.u64(1..200)))
        .build_timeout(Duration::from_millis(rng.u64(50..500)))
        .max_body(rng.usize(10..60));
    let layer = if rng.bool() {
        layer.max_waiters(rng.usize(1..5))
    } else {
        layer
    };
    match rng.u8(0..3) {
        0 => layer.fallback(Fallback::Reject),
        1 => layer.fallback(Fallback::Build),
        _ => layer,
    }
}

/// Answers in one of all the ways there are; the same for the same seed.
async fn moody(seed: u64, call: Call) -> Reply {
    let mut rng = Rng::with_seed(seed.wrapping_mul(31) + call.number as u64);
    sleep(Duration::from_millis(rng.u64(0..60))).await;
    match rng.u8(0..11) {
        0 => Err(OriginError::new("broken")),
        1 => resume_unwind(Box::new("the handler panicked")),
        2 => pending().await,
        3 => Ok(no_store("mine")),
        4 => Ok(failure(500, "broken")),
        5 => Ok(reply(
            &[("cache-control", "max-age=60"), ("vary", "accept-language")],
            "variant",
        )),
        6 => Ok(reply(&[], "shared")),
        7 => Ok(fresh("stored")),
        _ => Ok(streamed(rng)),
    }
}

fn streamed(mut rng: Rng) -> http::Response<crate::support::origin::OriginBody> {
    let length = rng.usize(0..80).to_string();
    let mut fields = vec![("cache-control", "max-age=60")];
    if rng.bool() {
        fields.push(("content-length", &length));
    }
    let (frames, body) = frames();
    let response = head(StatusCode::OK, &fields).map(|()| body);
    drop(tokio::spawn(feed(frames, rng)));
    response
}

async fn feed(frames: Frames, mut rng: Rng) {
    for _ in 0..rng.usize(0..8) {
        frames.data(vec![b'x'; rng.usize(0..20)]);
        sleep(Duration::from_millis(rng.u64(0..30))).await;
    }
    match rng.u8(0..6) {
        0 => frames.fail(),
        1 => frames.dropped().await,
        _ => frames.end(),
    }
}

/// Asks for something, and goes away after some time, after some polls, in mid-body or not at all.
async fn client(service: Layered, mut rng: Rng) {
    let target = if rng.u8(..) < 200 { "/a" } else { "/b" };
    let language = if rng.bool() { "de" } else { "fr" };
    let mut request = with(target, &[("accept-language", language)]);
    if rng.u8(..) < 40 {
        *request.method_mut() = http::Method::HEAD;
    }
    let frames = if rng.bool() {
        rng.usize(0..5)
    } else {
        usize::MAX
    };
    let asking = async move {
        let Ok(response) = service.oneshot(request).await else {
            return;
        };
        let mut body = response.into_body();
        for _ in 0..frames {
            let Some(Ok(_)) = body.frame().await else {
                return;
            };
        }
    };
    let polls = if rng.bool() {
        rng.usize(0..6)
    } else {
        usize::MAX
    };
    let asking = Impatient {
        asking: Box::pin(asking),
        polls,
    };
    // A request that nobody shares may hang as long as its handler does.
    let patience = if rng.bool() { rng.u64(0..150) } else { 5000 };
    drop(timeout(Duration::from_millis(patience), asking).await);
}

/// Polls a future some times, and then no more.
struct Impatient<F> {
    asking: Pin<Box<F>>,
    polls: usize,
}

impl<F: Future<Output = ()>> Future for Impatient<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.polls == 0 {
            return Poll::Ready(());
        }
        self.polls -= 1;
        self.asking.as_mut().poll(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_never_polled_starts_nothing() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async { fresh("unasked for") });
    let service = behind(&BufferLayer::new(cache.clone()), &origin);

    drop(service.oneshot(get("/report")));
    settle().await;

    assert_eq!((origin.builds(), cache.stats().builds), (0, 0));
    assert_nothing_is_left(&cache).await;
}

#[test]
fn a_runtime_that_ends_takes_its_flights_with_it() {
    let cache = Cache::in_memory();
    let dropped = Arc::new(());
    let held = Arc::clone(&dropped);
    let origin = Origin::new(move |_| {
        let held = Arc::clone(&held);
        async move {
            let () = pending().await;
            drop(held);
            fresh("never")
        }
    });
    let service = behind(&BufferLayer::new(cache.clone()), &origin);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("there is room for a runtime");

    runtime.block_on(async {
        drop(tokio::spawn(service.clone().oneshot(get("/report"))));
        origin.called(1).await;
    });
    drop(runtime);

    assert_eq!((cache.stats().flights, cache.stats().waiters), (0, 0));
    drop(service);
    drop(origin);
    assert_eq!(Arc::strong_count(&dropped), 1);
}

#[test]
fn one_cache_serves_several_runtimes() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move { fresh(format!("build {}", call.number)) });
    let layer = BufferLayer::new(cache.clone());

    let answers: Vec<_> = (0..3)
        .map(|_| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = runtime.expect("there is room for a runtime");
            runtime.block_on(async {
                let answer = ask(&behind(&layer, &origin), get("/report")).await;
                until(&cache, |stats| stats.flights == 0).await;
                answer
            })
        })
        .collect();

    assert!(answers.iter().all(|answer| answer.text() == "build 1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_race_to_one_build_for_each_key() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        tokio::task::yield_now().await;
        fresh("body")
    });
    let service = behind(&BufferLayer::new(cache.clone()), &origin);

    for key in 0..200 {
        let mut clients = JoinSet::new();
        for _ in 0..16 {
            let service = service.clone();
            drop(
                clients.spawn(
                    async move { service.oneshot(get(&format!("/{key}"))).await.map(|_| ()) },
                ),
            );
        }
        while let Some(answered) = clients.join_next().await {
            answered.expect("no client panics").expect("it is answered");
        }
    }

    assert_eq!(origin.builds(), 200);
}
