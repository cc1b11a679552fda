//! Routers in routers, each with the layer: what they see is not what the client asked for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::OriginalUri, routing};
use http::Request;
use tokio::time::sleep;
use tower_stampede::Cache;

use crate::support::client::{Answer, ask, herd, minute, until};

fn to(path: &str) -> Request<Body> {
    Request::get(path)
        .body(Body::empty())
        .expect("the test's path is valid")
}

#[tokio::test(start_paused = true)]
async fn nested_routers_do_not_collide() {
    let cache = Cache::in_memory();
    let layer = minute(&cache);
    let echo = || routing::get(|OriginalUri(uri): OriginalUri| async move { uri.to_string() });
    let inner = || Router::new().route("/{id}", echo()).layer(layer.clone());
    let app = Router::new()
        .nest("/users", inner())
        .nest("/orders", inner())
        .nest_service("/service", inner())
        .nest("/deep", Router::new().nest("/users", inner()));

    let mut answers = Vec::new();
    for path in [
        "/users/1",
        "/orders/1",
        "/service/1",
        "/deep/users/1",
        "/users/1",
    ] {
        answers.push(ask(&app, to(path)).await);
    }

    let texts: Vec<_> = answers.iter().map(Answer::text).collect();
    assert_eq!(
        texts,
        [
            "/users/1",
            "/orders/1",
            "/service/1",
            "/deep/users/1",
            "/users/1"
        ]
    );
    assert!(answers[4].status_line().contains("hit"));
}

#[tokio::test(start_paused = true)]
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

    let requests = (0..20).map(|_| to("/api/report"));
    let answers = herd(&app, requests).answers().await;

    assert!(answers.iter().all(|answer| answer.text() == "a report"));
    assert_eq!(cache.stats().builds, 1);
    assert_eq!(cache.stats().bypassed, 1);
    assert!(
        ask(&app, to("/api/report"))
            .await
            .status_line()
            .contains("hit")
    );
}

#[tokio::test(start_paused = true)]
async fn a_stale_entry_does_not_answer_the_build_that_refreshes_it() {
    let cache = Cache::in_memory();
    let count = Arc::new(AtomicUsize::new(0));
    let handler = move || {
        let count = Arc::clone(&count);
        async move { count.fetch_add(1, Ordering::SeqCst).to_string() }
    };
    let layer = minute(&cache).stale_while_revalidate(Duration::from_secs(60));
    let inner = Router::new()
        .route("/report", routing::get(handler))
        .layer(layer.clone());
    let app = Router::new().nest("/api", inner).layer(layer);
    ask(&app, to("/api/report")).await;
    sleep(Duration::from_secs(61)).await;

    let stale = ask(&app, to("/api/report")).await;
    until(&cache, |stats| stats.flights == 0).await;
    let refreshed = ask(&app, to("/api/report")).await;

    assert_eq!((stale.text(), refreshed.text()), ("0", "1"));
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn layers_of_two_caches_on_one_redis_do_not_wait_for_each_other() {
    use crate::support::{
        redis::RedisServer,
        worker::{AMPLE, cache, layer},
    };

    let redis = RedisServer::start();
    let (outer, inner) = (cache(redis.url()), cache(redis.url()));
    let app = Router::new()
        .route("/report", routing::get(|| async { "a report" }))
        .layer(layer(&inner))
        .layer(layer(&outer));

    let answer = tokio::time::timeout(AMPLE / 2, ask(&app, to("/report")));

    assert_eq!(answer.await.unwrap().text(), "a report");
    assert_eq!((outer.stats().builds, inner.stats().bypassed), (1, 1));
}
