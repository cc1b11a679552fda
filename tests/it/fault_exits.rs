//! However a build ends, its lease is given back: whoever comes next, in whichever process, does not wait
//! for it to run out.

use std::{convert::Infallible, future::pending, time::Duration};

use http::{HeaderValue, StatusCode};
use tower_stampede::{BufferLayer, Cache};

use crate::support::{
    redis::RedisServer,
    worker::{
        AMPLE, Handler, Incoming, Outgoing, Worker, builder, failing, layer, text, uncacheable,
        until,
    },
};

type Respond = fn(usize, &Incoming) -> Outgoing;

/// Leases that outlive every test.
fn cache(redis: &RedisServer) -> Cache {
    builder(redis.url()).lease_ttl(100 * AMPLE).build().unwrap()
}

fn large(_: usize, _: &Incoming) -> Outgoing {
    Outgoing::new("x".repeat(2000).into())
}

fn with_cookie(build: usize, request: &Incoming) -> Outgoing {
    let mut response = text(build, request);
    let cookie = HeaderValue::from_static("a=b");
    response.headers_mut().insert("set-cookie", cookie);
    response
}

fn with_status(build: usize, request: &Incoming) -> Outgoing {
    let mut response = text(build, request);
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

fn panics(_: usize, _: &Incoming) -> Outgoing {
    std::panic::resume_unwind(Box::new("on purpose"))
}

async fn no_lease_is_left(redis: &RedisServer, kind: &str) {
    until(|| redis.command::<Vec<String>>(&["KEYS", "*:l*"]).is_empty()).await;
    // Whoever comes next in another process builds at once.
    let next = Handler::open().worker(&layer(&cache(redis)), text);
    let answered = tokio::time::timeout(AMPLE, next.get("/report"));
    answered
        .await
        .unwrap_or_else(|_| panic!("{kind}: it waits"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_response_is() {
    let kinds: [(&str, Respond); 7] = [
        ("stored", text),
        ("no-store", uncacheable),
        ("set-cookie", with_cookie),
        ("no freshness", with_status),
        ("502", failing),
        ("too large", large),
        ("panic", panics),
    ];
    for (kind, respond) in kinds {
        let redis = RedisServer::start();
        let cache = cache(&redis);
        let small = layer(&cache).max_body(1000);
        let worker = Handler::open().worker(&small, respond);

        let answered = worker.herd("/report", 1).outcomes().await;

        assert_eq!(answered.len(), usize::from(kind != "panic"), "{kind}");
        no_lease_is_left(&redis, kind).await;
    }
}

/// A worker whose handler never answers.
fn stuck(layer: &BufferLayer) -> Worker {
    let never = |_: Incoming| async { pending::<Result<Outgoing, Infallible>>().await };
    Worker::behind(layer, tower::service_fn(never))
}

#[tokio::test(flavor = "multi_thread")]
async fn though_there_is_no_response() {
    let redis = RedisServer::start();
    let cache = cache(&redis);
    let hasty = layer(&cache).build_timeout(Duration::from_millis(50));

    let answer = stuck(&hasty).get("/report").await;

    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    no_lease_is_left(&redis, "build timeout").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn though_the_server_forgot_its_scripts_meanwhile() {
    let redis = RedisServer::start();
    let cache = cache(&redis);
    let handler = Handler::held();
    let herd = handler.worker(&layer(&cache), text).herd("/report", 5);
    handler.has_begun(1).await;

    redis.command::<()>(&["SCRIPT", "FLUSH"]);
    handler.let_go();

    assert_eq!(herd.answers().await.len(), 5);
    no_lease_is_left(&redis, "script flush").await;
    let stored: Vec<String> = redis.command(&["KEYS", "*:e1"]);
    assert_eq!(stored.len(), 1, "and the entry is stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn though_the_connections_were_cut_in_that_moment() {
    let redis = RedisServer::start();
    let cache = cache(&redis);
    let handler = Handler::held();
    let herd = handler.worker(&layer(&cache), failing).herd("/report", 5);
    handler.has_begun(1).await;

    redis.command::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
    handler.let_go();

    assert_eq!(herd.answers().await.len(), 5);
    no_lease_is_left(&redis, "cut").await;
}
