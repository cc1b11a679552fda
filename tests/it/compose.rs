//! The layer under and over the usual ones, on axum, and on itself.

use std::time::Duration;

use axum::{Router, body::Body as AxumBody, routing};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::time::sleep;
use tower::{
    BoxError, Layer as _, Service, ServiceBuilder, ServiceExt as _,
    buffer::Buffer,
    limit::ConcurrencyLimitLayer,
    load_shed::LoadShed,
    util::{BoxCloneService, option_layer},
};
use tower_http::{
    ServiceBuilderExt as _, catch_panic::CatchPanicLayer, compression::CompressionLayer,
    cors::CorsLayer, request_id::MakeRequestUuid, set_header::SetResponseHeaderLayer,
    timeout::TimeoutLayer, trace::TraceLayer,
};
use tower_stampede::{BufferLayer, BufferService, Cache, OnDisconnect};

use crate::support::{
    client::{Answer, Empties, ask, get, herd, minute, settle, until, with},
    origin::{Origin, OriginBody, OriginError, fresh, reply},
};

const SECOND: Duration = Duration::from_secs(1);

/// A herd through `service` is answered alike, and then from the cache.
async fn assert_coalesces<S, B>(service: S, origin: &Origin)
where
    S: Service<Request<Empties>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: std::fmt::Debug + Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
{
    let answers = herd(&service, (0..20).map(|_| get("/report")))
        .answers()
        .await;
    let hit = ask(&service, get("/report")).await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 200 && answer.text() == "a report")
    );
    assert_eq!(hit.text(), "a report");
    assert!(hit.status_line().contains("hit"), "{}", hit.status_line());
    assert_eq!(origin.builds(), 1);
}

fn report() -> Origin {
    Origin::new(|_| async {
        sleep(Duration::from_millis(10)).await;
        fresh("a report")
    })
}

// ===== other layers =====

/// A herd through another layer around this one, and through this one around the other.
macro_rules! works_under_and_over {
    ($name:ident, $other:expr) => {
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let (outer, inner) = (report(), report());
            let ours = || minute(&Cache::in_memory());

            let under = ServiceBuilder::new().layer($other).layer(ours());
            assert_coalesces(under.service(inner.clone()), &inner).await;
            let over = ServiceBuilder::new().layer(ours()).layer($other);
            assert_coalesces(over.service(outer.clone()), &outer).await;
        }
    };
}

works_under_and_over!(it_works_under_and_over_tracing, TraceLayer::new_for_http());
works_under_and_over!(it_works_under_and_over_cors, CorsLayer::permissive());
works_under_and_over!(
    it_works_under_and_over_a_timeout,
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, SECOND)
);
works_under_and_over!(
    it_works_under_and_over_a_limit_of_concurrency,
    ConcurrencyLimitLayer::new(5)
);

/// `origin` with errors as a queue wants them.
fn failing_as_box(
    origin: &Origin,
) -> impl Service<Request<Empties>, Response = Response<OriginBody>, Error = BoxError, Future: Send>
+ Clone
+ Send
+ 'static {
    ServiceBuilder::new()
        .map_err(|error: OriginError| -> BoxError { error.0.into() })
        .service(origin.clone())
}

#[tokio::test(start_paused = true)]
async fn it_works_over_a_queue_and_a_shedder() {
    let origin = report();
    let queued = Buffer::new(BoxCloneService::new(failing_as_box(&origin)), 1);
    let service = minute(&Cache::in_memory()).layer(queued);
    assert_coalesces(service, &origin).await;

    let origin = report();
    let shedding = LoadShed::new(failing_as_box(&origin));
    let service = minute(&Cache::in_memory()).layer(shedding);
    assert_coalesces(service, &origin).await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_does_not_end_the_build() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        sleep(2 * SECOND).await;
        fresh("a report")
    });
    let timeout = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, SECOND);
    let service = ServiceBuilder::new()
        .layer(timeout)
        .layer(minute(&cache))
        .service(origin.clone());

    let answers = herd(&service, (0..5).map(|_| get("/report")))
        .answers()
        .await;
    sleep(2 * SECOND).await;
    let later = ask(&service, get("/report")).await;

    assert!(answers.iter().all(|answer| answer.status == 504));
    assert!(later.status_line().contains("hit"));
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn compression_outside_compresses_hits_and_compression_inside_is_stored_as_a_variant() {
    let text = "all work and no play ".repeat(100);
    let requests = [
        ("gzip", with("/", &[("accept-encoding", "gzip")])),
        ("", with("/", &[])),
        ("gzip", with("/", &[("accept-encoding", "gzip")])),
        ("", with("/", &[("accept-encoding", "identity")])),
    ];
    for order in ["outside", "inside"] {
        let body = text.clone();
        let origin = Origin::new(move |_| {
            let body = body.clone();
            async { reply(&[("content-type", "text/plain")], body) }
        });
        let layer = minute(&Cache::in_memory());
        let mut answers = Vec::new();
        for (coding, request) in requests.clone() {
            let answer = if order == "outside" {
                let service = ServiceBuilder::new()
                    .layer(CompressionLayer::new())
                    .layer(layer.clone());
                ask(&service.service(origin.clone()), request).await
            } else {
                let service = ServiceBuilder::new()
                    .layer(layer.clone())
                    .layer(CompressionLayer::new());
                ask(&service.service(origin.clone()), request).await
            };
            answers.push((coding, answer));
        }

        for (coding, answer) in answers {
            assert_eq!(answer.header("content-encoding"), coding, "{order}");
            let compressed = answer.body.starts_with(&[0x1f, 0x8b]);
            assert_eq!(
                compressed,
                coding == "gzip",
                "{order}: the coding is that of the bytes"
            );
            assert!(compressed || answer.text() == text, "{order}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_a_body_half_compressed_leaves_a_whole_entry() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::fresh_streams();
    let service = ServiceBuilder::new()
        .layer(CompressionLayer::new())
        .layer(minute(&cache))
        .service(origin.clone());
    let zipped = || with("/report", &[("accept-encoding", "gzip")]);
    let leaving = tokio::spawn(service.clone().oneshot(zipped()));
    let frames = streams.recv().await.expect("the build has begun");
    frames.data("the first half of the text, ");
    let mut leaving = leaving.await.unwrap().expect("the head is there");
    assert_eq!(leaving.headers()["content-encoding"], "gzip");
    let begun = leaving.body_mut().frame();
    assert!(begun.now_or_never().is_none(), "nothing is compressed yet");

    drop(leaving);
    settle().await;
    frames.data("the second half");
    frames.end();
    until(&cache, |stats| stats.flights == 0).await;

    let plain = ask(&service, get("/report")).await;
    assert_eq!(plain.text(), "the first half of the text, the second half");
    assert!(
        ask(&service, zipped())
            .await
            .body
            .starts_with(&[0x1f, 0x8b])
    );
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn fields_from_layers_above_are_each_requests_own() {
    let origin = report();
    let version = SetResponseHeaderLayer::overriding(
        http::HeaderName::from_static("x-version"),
        HeaderValue::from_static("1"),
    );
    let service = ServiceBuilder::new()
        .set_x_request_id(MakeRequestUuid)
        .layer(version.clone())
        .propagate_x_request_id()
        .layer(minute(&Cache::in_memory()))
        .layer(version)
        .service(origin.clone());

    let mut identifiers = Vec::new();
    for _ in 0..3 {
        let answer = ask(&service, get("/report")).await;
        assert_eq!(answer.headers.get_all("x-version").iter().count(), 1);
        identifiers.push(answer.header("x-request-id").to_owned());
    }

    identifiers.sort();
    identifiers.dedup();
    assert_eq!(identifiers.len(), 3);
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_caught_by_a_layer_outside_as_it_would_be_without_this_one() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(10)).await;
        assert!(call.number > 1, "the handler panicked");
        fresh("healed")
    });
    let service = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .layer(minute(&cache))
        .service(origin.clone());

    let answers = herd(&service, (0..10).map(|_| get("/report")))
        .answers()
        .await;
    sleep(2 * SECOND).await;
    let later = ask(&service, get("/report")).await;

    assert!(answers.iter().all(|answer| answer.status == 500));
    assert_eq!(later.text(), "healed");
    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn it_can_be_left_out() {
    for cache in [None, Some(Cache::in_memory())] {
        let origin = report();
        // Both ways must have one type of body, as with any layer that has a body of its own.
        let layer = cache.as_ref().map(|cache| {
            let stack = ServiceBuilder::new().map_response_body(AxumBody::new);
            stack.layer(minute(cache)).into_inner()
        });
        let service = ServiceBuilder::new()
            .layer(option_layer(layer))
            .map_response_body(AxumBody::new)
            .service(origin.clone());

        ask(&service, get("/report")).await;
        let answer = ask(&service, get("/report")).await;

        assert_eq!(answer.text(), "a report");
        assert_eq!(origin.builds(), if cache.is_some() { 1 } else { 2 });
    }
}

/// The layer and its service have names that a struct can hold.
struct App {
    layer: BufferLayer,
    service: BufferService<Origin>,
}

#[tokio::test(start_paused = true)]
async fn it_can_be_a_field() {
    let origin = report();
    let layer = minute(&Cache::in_memory());
    let app = App {
        service: layer.layer(origin.clone()),
        layer,
    };

    assert_coalesces(app.service.clone(), &origin).await;
    assert!(format!("{:?}", app.layer).contains("Policy"));
}

// ===== axum =====

async fn through(app: &Router, path: &str) -> Answer {
    ask(app, Request::get(path).body(AxumBody::empty()).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn routes_have_policies_of_their_own_over_one_cache() {
    let cache = Cache::in_memory();
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let handler = move || {
        let count = std::sync::Arc::clone(&count);
        async move {
            count
                .fetch_add(1, std::sync::atomic::Ordering::SeqCst)
                .to_string()
        }
    };
    let layer = BufferLayer::new(cache.clone()).jitter(0.0);
    let app = Router::new()
        .route(
            "/short",
            routing::get(handler.clone()).layer(layer.clone().ttl(10 * SECOND)),
        )
        .route(
            "/long",
            routing::get(handler.clone()).layer(layer.clone().ttl(100 * SECOND)),
        )
        .route("/none", routing::get(handler));

    let first = [
        through(&app, "/short").await,
        through(&app, "/long").await,
        through(&app, "/none").await,
    ];
    sleep(11 * SECOND).await;
    let second = [
        through(&app, "/short").await,
        through(&app, "/long").await,
        through(&app, "/none").await,
    ];

    let changed: Vec<_> = first
        .iter()
        .zip(&second)
        .map(|(first, second)| first.body != second.body)
        .collect();
    assert_eq!(changed, [true, false, true]);
    assert_eq!(second[2].status_line(), "");
    assert_eq!(cache.stats().hits, 1);
}

#[tokio::test(start_paused = true)]
#[cfg_attr(not(feature = "axum"), ignore = "the key reads no `OriginalUri` then")]
async fn a_layer_on_a_nested_router_inside_another_one_does_not_wait_for_itself() {
    let cache = Cache::in_memory();
    let layer = minute(&cache);
    let handler = || async {
        sleep(Duration::from_millis(10)).await;
        "a report"
    };
    let inner = Router::new()
        .route("/report", routing::get(handler))
        .layer(layer.clone());
    let app = Router::new().nest("/api", inner).layer(layer);

    let requests = (0..20).map(|_| Request::get("/api/report").body(AxumBody::empty()).unwrap());
    let answers = herd(&app, requests).answers().await;

    assert!(answers.iter().all(|answer| answer.text() == "a report"));
    assert_eq!(cache.stats().builds, 1);
    assert_eq!(cache.stats().bypassed, 1);
    assert!(
        through(&app, "/api/report")
            .await
            .status_line()
            .contains("hit")
    );
}

#[tokio::test(start_paused = true)]
#[cfg_attr(not(feature = "axum"), ignore = "the key reads no `OriginalUri` then")]
async fn a_stale_entry_does_not_answer_the_build_that_refreshes_it() {
    let cache = Cache::in_memory();
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let handler = move || {
        let count = std::sync::Arc::clone(&count);
        async move {
            count
                .fetch_add(1, std::sync::atomic::Ordering::SeqCst)
                .to_string()
        }
    };
    let layer = minute(&cache).stale_while_revalidate(60 * SECOND);
    let inner = Router::new()
        .route("/report", routing::get(handler))
        .layer(layer.clone());
    let app = Router::new().nest("/api", inner).layer(layer);
    through(&app, "/api/report").await;
    sleep(61 * SECOND).await;

    let stale = through(&app, "/api/report").await;
    until(&cache, |stats| stats.flights == 0).await;
    let refreshed = through(&app, "/api/report").await;

    assert_eq!((stale.text(), refreshed.text()), ("0", "1"));
}

#[tokio::test(start_paused = true)]
async fn layers_over_different_caches_may_be_stacked() {
    let origin = report();
    let stack = ServiceBuilder::new()
        .layer(minute(&Cache::in_memory()))
        .layer(minute(&Cache::in_memory()).on_disconnect(OnDisconnect::Cancel));

    assert_coalesces(stack.service(origin.clone()), &origin).await;
}
