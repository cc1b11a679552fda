//! Refreshes in the background: what they are made of, what they leave alone, and how many there are.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Body as _;
use tokio::time::{Instant, advance, sleep, timeout};
use tower::ServiceExt as _;
use tower_stampede::{BufferLayer, Cache, Target};

use crate::support::{
    client::{Answer, Layered, ask, attempt, behind, settle, with},
    origin::{Call, Origin, OriginError, failure, frames, head, reply},
    redis::RedisServer,
    worker::{
        AMPLE, Handler, Incoming, Worker, builder, cache, caching, failing, get, layer, settled,
        text,
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// A page of ten seconds, served stale for sixty more; every later build comes to nothing, each in
/// this way.
fn broken_after_the_first(way: &'static str) -> Origin {
    Origin::fallible(move |call| async move {
        let fields = [("cache-control", "max-age=10, stale-while-revalidate=60")];
        if call.number == 1 {
            return Ok(reply(&fields, "page"));
        }
        match way {
            "error" => Err(OriginError::new("down")),
            "panic" => panic!("the handler panicked"),
            "hangs" => pending().await,
            "status" => Ok(failure(502, "down")),
            "uncacheable" => Ok(reply(&[("cache-control", "no-store")], "other")),
            _ => {
                let (frames, body) = frames();
                frames.data("half of a pa");
                match way {
                    "body fails" => frames.fail(),
                    "body panics" => frames.panic(),
                    _ => drop(tokio::spawn(async move {
                        pending::<()>().await;
                        frames.end();
                    })),
                }
                Ok(head(StatusCode::OK, &fields).map(|()| body))
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_comes_to_nothing_neither_removes_nor_freshens_nor_prolongs_the_entry() {
    for way in [
        "error",
        "panic",
        "hangs",
        "status",
        "uncacheable",
        "body fails",
        "body panics",
        "body hangs",
    ] {
        let cache = Cache::in_memory();
        let origin = broken_after_the_first(way);
        let service = behind(
            &BufferLayer::new(cache.clone()).build_timeout(SECOND / 10),
            &origin,
        );
        ask(&service, with("/", &[])).await;
        settle().await;

        advance(10 * SECOND + SECOND / 2).await;
        // Half a second short of the window's end.
        for past in 0..60 {
            let answer = ask(&service, with("/", &[])).await;
            assert_eq!(answer.text(), "page", "{way} after {past} s");
            assert!(
                answer.status_line().starts_with("stampede; hit; ttl=-")
                    || answer.status_line().starts_with("stampede; hit; ttl=0"),
                "{way}: {answer:?}"
            );
            assert_eq!(answer.header("age"), (10 + past).to_string(), "{way}");
            sleep(SECOND).await;
        }
        assert!(origin.builds() > 1, "{way}: it was tried");

        if ["error", "panic", "hangs", "status"].contains(&way) {
            let over = attempt(service, with("/", &[])).await;
            assert_ne!(over.status(), Some(200), "{way}: past its window");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_that_comes_to_nothing_leaves_what_the_shared_tier_has_as_it_is() {
    let redis = RedisServer::start();
    let cache = cache(redis.url());
    let respond = |build: usize, request: &Incoming| {
        caching(build, request, "max-age=600, stale-while-revalidate=600")
    };
    let handler = Handler::open();
    handler.worker(&layer(&cache), respond).get("/a").await;
    settled(&cache).await;
    let names: Vec<String> = redis.command(&["KEYS", "*:e1"]);
    let read = || -> (Vec<u8>, u64) {
        let value = redis.command(&["GET", &names[0]]);
        (value, redis.command(&["PTTL", &names[0]]))
    };
    let (value, left) = read();

    let broken = handler.worker(&layer(&cache).refresh_after(0.0), failing);
    assert_eq!(broken.get("/a").await.text(), "build 1");
    handler.has_begun(2).await;
    settled(&cache).await;

    let (after, left_after) = read();
    assert_eq!(after, value);
    assert!(left_after <= left, "{left_after} of {left}");
    assert_eq!(broken.get("/a").await.text(), "build 1");
}

/// What a handler is to see of the request that refreshes.
#[derive(Clone, Debug, PartialEq)]
struct Tenant(u32);

type Seen = (HeaderMap, Option<Tenant>, bool);

#[tokio::test(start_paused = true)]
async fn a_refresh_is_the_request_without_body_range_and_conditions_and_with_its_extensions() {
    let cache = Cache::in_memory();
    let seen = Arc::new(Mutex::new(Vec::<Seen>::new()));
    let noted = Arc::clone(&seen);
    let worker = Worker::behind(
        &layer(&cache).refresh_after(0.0),
        tower::service_fn(move |request: Incoming| {
            let fields = request.headers().clone();
            let tenant = request.extensions().get().cloned();
            let is_empty = request.body().is_end_stream();
            noted.lock().unwrap().push((fields, tenant, is_empty));
            async move { Ok::<_, Infallible>(text(1, &request)) }
        }),
    );
    worker.get("/a").await;
    settled(&cache).await;
    advance(SECOND).await;
    let mut request = get("/a");
    for (name, value) in [
        ("range", "bytes=0-2"),
        ("if-none-match", "\"of the client\""),
        ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("if-range", "\"of the client\""),
        ("x-request-id", "7"),
    ] {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    request.extensions_mut().insert(Tenant(7));

    worker.send(request).await;
    settled(&cache).await;

    let (fields, tenant, is_empty) = seen.lock().unwrap().remove(1);
    let names: Vec<_> = fields.keys().map(HeaderName::as_str).collect();
    assert_eq!(names, ["x-request-id"], "{fields:?}");
    assert_eq!((tenant, is_empty), (Some(Tenant(7)), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_entries_under_one_tag_are_refreshed_a_few_at_a_time_and_served_meanwhile() {
    const ENTRIES: usize = 5000;
    const AT_ONCE: usize = 8;
    let redis = RedisServer::start();
    let caches = [(); 2].map(|()| {
        let builder = builder(redis.url()).max_refreshes(AT_ONCE);
        builder.build().unwrap()
    });
    let respond = |call: Call| async move {
        sleep(SECOND / 1000).await;
        let fields = [("cache-control", "max-age=600, stale-while-revalidate=600")];
        reply(&fields, call.number.to_string())
    };
    let tagged = |cache: &Cache| BufferLayer::new(cache.clone()).tags(["all"]);
    let services = |origin: &Origin| {
        caches
            .each_ref()
            .map(|cache| behind(&tagged(cache), origin))
    };
    let read = async |service: Layered, number: usize| {
        let request = with(&format!("/{number}"), &[]);
        Answer::read(service.oneshot(request).await.unwrap()).await
    };
    let before = Origin::new(respond);
    let all = services(&before);
    stream::iter(0..ENTRIES)
        .for_each_concurrent(100, async |number| {
            read(all[number % 2].clone(), number).await;
        })
        .await;
    for cache in &caches {
        settled(cache).await;
    }
    assert_eq!(before.builds(), ENTRIES);

    let asked = Instant::now();
    let purged = caches[0].soft_purge(Target::tag("all")).await.unwrap();
    let took = asked.elapsed();

    assert!(purged.is_complete(), "{purged:?}");
    assert!(took < SECOND, "it does not count what it reaches: {took:?}");
    // Everybody reads everything until all of it is new: nobody ever waits for a build.
    let after = Origin::new(respond);
    let all = services(&after);
    let all_new = async {
        while after.builds() < ENTRIES {
            for number in 0..ENTRIES {
                let answer = read(all[number % 2].clone(), number).await;
                assert!(answer.status_line().contains("hit"), "{answer:?}");
            }
        }
    };
    timeout(4 * AMPLE, all_new).await.unwrap();
    for cache in &caches {
        settled(cache).await;
    }
    assert_eq!(after.builds(), ENTRIES, "each of them once");
    assert!(after.peak() <= 2 * AT_ONCE, "{} at once", after.peak());
}
