//! The HTTP rules through the shared tier: what one worker stores, another one serves or confirms.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::Full;
use tower_stampede::{BufferLayer, Cache, RequestDirectives};

use crate::{
    http_support::{Site, request, response},
    support::{
        redis::RedisServer,
        worker::{self, Handler},
    },
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
    workers_with(redis, |layer| layer, respond)
}

fn workers_with(
    redis: &RedisServer,
    layer: impl Fn(BufferLayer) -> BufferLayer,
    respond: impl Fn(usize, &Request<Full<Bytes>>) -> Response<Full<Bytes>>
    + Clone
    + Send
    + Sync
    + 'static,
) -> [Site; 2] {
    let builds = Arc::new(Mutex::new(0));
    [(); 2].map(|()| {
        let (builds, respond) = (Arc::clone(&builds), respond.clone());
        Site::new(&layer(BufferLayer::new(cache(redis))), move |_, request| {
            let mut builds = builds.lock().unwrap();
            *builds += 1;
            Ok(respond(*builds, request))
        })
    })
}

async fn until_stored(redis: &RedisServer) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while redis.command::<Vec<String>>(&["KEYS", "*}:e*"]).is_empty() {
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
    until_stored(&redis).await;
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
    until_stored(&redis).await;
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
    until_stored(&redis).await;
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
    until_stored(&redis).await;
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

#[tokio::test]
async fn a_worker_answers_at_once_with_what_another_one_has_left_stale_and_refreshes_it() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let caches = [(); 2].map(|()| worker::cache(redis.url()));
    let [one, other] = [0, 1].map(|at| {
        handler.worker(&worker::layer(&caches[at]), |build, request| {
            let mut response = worker::text(build, request);
            let value = HeaderValue::from_static("max-age=0, stale-while-revalidate=60");
            response.headers_mut().insert("cache-control", value);
            response
        })
    });
    handler.let_go_one();
    one.get("/").await;
    until_stored(&redis).await;

    let herd = other.herd("/", 20).answers().await;
    let late = other.get("/").await;
    handler.has_begun(2).await;
    handler.let_go();

    for answer in herd.iter().chain([&late]) {
        assert_eq!(answer.text(), "build 1");
        assert!(
            answer.outcome.starts_with("stampede; hit; ttl="),
            "{}",
            answer.outcome
        );
    }
    let deadline = tokio::time::Instant::now() + worker::AMPLE;
    while other.get("/").await.text() == "build 1" {
        assert!(tokio::time::Instant::now() < deadline, "no refresh came");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn an_anonymous_entry_of_another_worker_answers_no_request_with_credentials() {
    let redis = RedisServer::start();
    let knowing = |layer: BufferLayer| layer.allow_authorization();
    let [one, other] = workers_with(&redis, knowing, |_, request| {
        let user = request.headers().get("authorization");
        let user = user.map_or("nobody", |user| user.to_str().unwrap());
        response(200, &[("cache-control", "max-age=60")], user)
    });
    one.get("/", &[]).await;
    until_stored(&redis).await;

    let somebody = other.get("/", &[("authorization", "ann")]).await;
    let nobody = other.get("/", &[]).await;

    assert_eq!(
        (&somebody.body[..], somebody.outcome()),
        (&b"ann"[..], "stampede; fwd=request; detail=authorization")
    );
    assert_eq!(&nobody.body[..], b"nobody");
    assert!(nobody.outcome().starts_with("stampede; hit"));
}

#[tokio::test]
async fn a_range_that_this_worker_has_no_entry_for_is_cut_from_another_ones() {
    let redis = RedisServer::start();
    let [one, other] = workers(&redis, |_, request| match request.headers().get("range") {
        Some(_) => response(206, &[("content-range", "bytes 0-1/10")], "01"),
        None => response(200, &[("cache-control", "max-age=60")], "0123456789"),
    });
    let range = &[("range", "bytes=3-4")];

    let nowhere = other.get("/", range).await;
    one.get("/", &[]).await;
    until_stored(&redis).await;
    let shared = other.get("/", range).await;
    let local = other.get("/", range).await;

    assert_eq!(nowhere.outcome(), "stampede; fwd=uri-miss; detail=range");
    assert_eq!(
        (nowhere.status.as_u16(), &nowhere.body[..]),
        (206, &b"01"[..])
    );
    for answer in [shared, local] {
        assert_eq!(
            (answer.status.as_u16(), &answer.body[..]),
            (206, &b"34"[..])
        );
        assert!(answer.outcome().starts_with("stampede; hit"));
    }
    assert_eq!((one.builds(), other.builds()), (1, 1));
}

#[tokio::test]
async fn ranges_pass_side_by_side_when_there_is_no_entry_and_leave_nothing_behind() {
    let redis = RedisServer::start();
    let [one, _] = workers(&redis, |_, request| {
        let asked = request.headers()["range"].to_str().unwrap().to_owned();
        response(206, &[("cache-control", "max-age=60")], &asked)
    });

    let requests: Vec<_> = (0..20).map(|at| format!("bytes={at}-{at}")).collect();
    let asked = requests.iter().map(|range| {
        let site = one.clone();
        async move { site.get("/", &[("range", range)]).await }
    });
    let answers = futures_util::future::join_all(asked).await;

    for (range, answer) in requests.iter().zip(answers) {
        assert_eq!(
            (answer.status.as_u16(), &answer.body[..]),
            (206, range.as_bytes())
        );
    }
    assert_eq!(one.builds(), 20);
    let left: Vec<String> = redis.command(&["KEYS", "*"]);
    assert!(left.iter().all(|key| !key.contains('{')), "{left:?}");
}

#[tokio::test]
async fn a_request_for_an_entry_or_nothing_gets_another_workers() {
    let redis = RedisServer::start();
    let honest = |layer: BufferLayer| layer.request_directives(RequestDirectives::Honour);
    let [one, other] = workers_with(&redis, honest, |_, _| {
        response(200, &[("cache-control", "max-age=60")], "page")
    });
    let only = &[("cache-control", "only-if-cached")];

    let nowhere = other.get("/", only).await;
    one.get("/", &[]).await;
    until_stored(&redis).await;
    let shared = other.get("/", only).await;

    assert_eq!(
        (nowhere.status.as_u16(), nowhere.outcome()),
        (504, "stampede; detail=only-if-cached")
    );
    assert_eq!(
        (shared.status.as_u16(), &shared.body[..]),
        (200, &b"page"[..])
    );
    assert_eq!(other.builds(), 0);
}

#[tokio::test]
async fn a_tag_of_our_own_and_the_name_of_the_key_are_the_same_in_every_worker() {
    let redis = RedisServer::start();
    let telling = |layer: BufferLayer| layer.generate_etag().show_key();
    let [one, other] = workers_with(&redis, telling, |_, _| {
        response(200, &[("cache-control", "max-age=60")], "page")
    });

    let first = one.get("/", &[]).await;
    until_stored(&redis).await;
    let tag = first.field("etag");
    let unchanged = other.get("/", &[("if-none-match", tag)]).await;
    let page = other.get("/", &[]).await;

    assert!(!tag.is_empty());
    assert_eq!(unchanged.status.as_u16(), 304);
    assert_eq!((page.field("etag"), other.builds()), (tag, 0));
    let (_, key) = page.outcome().split_once("; key=\"").unwrap();
    let key = key.trim_end_matches('"');
    assert!(first.outcome().contains(key));
    let named: Vec<String> = redis.command(&["KEYS", &format!("stampede:{{{key}}}:*")]);
    assert_eq!(named.len(), 1, "{named:?}");
}
