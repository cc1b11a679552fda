//! The HTTP rules through the shared tier: what one worker stores, another one serves or confirms.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::Full;
use tower_stampede::{BufferLayer, Cache};

use crate::{
    http_support::{Site, request, response},
    support::redis::RedisServer,
};

fn cache(redis: &RedisServer) -> Cache {
    Cache::builder().redis(redis.url()).build().unwrap()
}

/// Two workers with one Redis and one origin; the origin numbers what it makes.
fn workers(
    redis: &RedisServer,
    respond: impl Fn(usize, &Request<Full<Bytes>>) -> Response<Full<Bytes>>
    + Clone
    + Send
    + Sync
    + 'static,
) -> [Site; 2] {
    let builds = Arc::new(Mutex::new(0));
    [(); 2].map(|()| {
        let (builds, respond) = (Arc::clone(&builds), respond.clone());
        Site::new(&BufferLayer::new(cache(redis)), move |_, request| {
            let mut builds = builds.lock().unwrap();
            *builds += 1;
            Ok(respond(*builds, request))
        })
    })
}

async fn until_stored(redis: &RedisServer, keys: i64) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while redis.command::<i64>(&["DBSIZE"]) < keys {
        assert!(tokio::time::Instant::now() < deadline, "nothing was stored");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_worker_confirms_what_another_one_has_stored() {
    let redis = RedisServer::start();
    let [one, other] = workers(&redis, |build, request| {
        let fields = &[("cache-control", "no-cache"), ("etag", "\"a\"")];
        match request.headers().get("if-none-match") {
            Some(_) => response(304, fields, ""),
            None => response(200, fields, &format!("build {build}")),
        }
    });

    one.get("/", &[]).await;
    until_stored(&redis, 2).await;
    let confirmed = other.get("/", &[]).await;

    assert_eq!(
        confirmed.outcome(),
        "stampede; fwd=stale; fwd-status=304; stored; ttl=0"
    );
    assert_eq!(&confirmed.body[..], b"build 1");
    assert_eq!(other.last_seen()["if-none-match"], "\"a\"");
}

#[tokio::test]
async fn fields_pass_through_the_shared_tier_byte_for_byte() {
    let redis = RedisServer::start();
    let latin = HeaderValue::from_bytes(b"attachment; filename=\"caf\xe9\"").unwrap();
    let value = latin.clone();
    let [one, other] = workers(&redis, move |_, _| {
        let lines = [
            ("cache-control", "max-age=60"),
            ("link", "<a>"),
            ("link", "<b>, <c>"),
            ("x-empty", ""),
        ];
        let mut response = response(200, &lines, "page");
        response
            .headers_mut()
            .insert("content-disposition", value.clone());
        response
    });

    one.get("/", &[]).await;
    until_stored(&redis, 2).await;
    let answer = other.get("/", &[]).await;

    let all =
        |headers: &HeaderMap, name: &str| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
    assert!(
        answer.outcome().starts_with("stampede; hit"),
        "{}",
        answer.outcome()
    );
    assert_eq!(answer.headers["content-disposition"], latin);
    assert_eq!(all(&answer.headers, "link"), ["<a>", "<b>, <c>"]);
    assert_eq!(all(&answer.headers, "x-empty"), [""]);
    assert_eq!(other.builds(), 0);
}

#[tokio::test]
async fn a_condition_is_answered_from_the_shared_tier() {
    let redis = RedisServer::start();
    let [one, other] = workers(&redis, |_, _| {
        response(
            200,
            &[("cache-control", "max-age=60"), ("etag", "\"a\"")],
            "0123456789",
        )
    });

    one.get("/", &[]).await;
    until_stored(&redis, 2).await;
    let unchanged = other.get("/", &[("if-none-match", "\"a\"")]).await;

    assert_eq!(unchanged.status.as_u16(), 304);
    assert_eq!(other.builds(), 0);
}

#[tokio::test]
async fn an_unsafe_request_to_one_worker_purges_in_the_other() {
    let redis = RedisServer::start();
    let [one, other] = workers(&redis, |build, _| {
        response(
            200,
            &[("cache-control", "max-age=60")],
            &format!("build {build}"),
        )
    });
    one.get("/", &[]).await;
    until_stored(&redis, 2).await;
    other.get("/", &[]).await;
    assert_eq!(other.builds(), 0);

    one.ask(request(Method::POST, "/", &[])).await;

    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while other.builds() == 0 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the purge never came"
        );
        other.get("/", &[]).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
