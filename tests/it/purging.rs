//! Purges by URI, key and tag, hard and soft, in one process and in several.

use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use tower_stampede::{BufferLayer, Cache, CacheTags, CacheTtl, NoCache, Target};

use crate::support::{
    redis::RedisServer,
    worker::{
        AMPLE, Handler, Incoming, Outgoing, Worker, cache, caching, failing, fleets, get, layer,
        settled, text, until, uri, waiting,
    },
};

fn with(mut response: Outgoing, name: &'static str, value: &'static str) -> Outgoing {
    let name = HeaderName::from_static(name);
    response
        .headers_mut()
        .append(name, HeaderValue::from_static(value));
    response
}

fn steered(mut response: Outgoing, part: impl Clone + Send + Sync + 'static) -> Outgoing {
    response.extensions_mut().insert(part);
    response
}

async fn read_by_all(workers: &[Worker], caches: &[Cache], path: &str) -> String {
    let mut read = String::new();
    for (worker, cache) in workers.iter().zip(caches) {
        read = worker.get(path).await.text().to_owned();
        settled(cache).await;
    }
    read
}

/// Which of `paths` are still there after purging `target`.
async fn left_after(
    target: fn(&BufferLayer) -> Target,
    options: fn(BufferLayer) -> BufferLayer,
    respond: fn(usize, &Incoming) -> Outgoing,
    paths: &[&str],
) -> Vec<Vec<String>> {
    let mut left = Vec::new();
    for (_redis, caches) in fleets() {
        let handler = Handler::open();
        let layers: Vec<_> = caches.iter().map(|cache| options(layer(cache))).collect();
        let workers: Vec<_> = layers
            .iter()
            .map(|layer| handler.worker(layer, respond))
            .collect();
        let mut before = Vec::new();
        for path in paths {
            before.push(read_by_all(&workers, &caches, path).await);
        }

        let purged = caches[0].purge(target(&layers[0])).await.unwrap();

        assert!(purged.is_complete(), "{purged:?}");
        assert_eq!(purged.processes, Some(caches.len()));
        for (worker, cache) in workers.iter().zip(&caches).rev() {
            let mut kept = Vec::new();
            for (path, before) in paths.iter().zip(&before) {
                if worker.get(path).await.text() == before {
                    kept.push((*path).to_owned());
                }
            }
            settled(cache).await;
            left.push(kept);
        }
    }
    left
}

fn as_it_is(layer: BufferLayer) -> BufferLayer {
    layer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uri_is_purged_with_all_its_queries_in_every_process_that_acknowledged_it() {
    let target = |_: &BufferLayer| Target::uri(&uri("/a"));
    let paths = ["/a", "/a?q=1", "/a/b", "/b"];

    for left in left_after(target, as_it_is, text, &paths).await {
        assert_eq!(left, ["/a/b", "/b"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exact_uri_is_purged_with_its_own_query_alone() {
    let target = |_: &BufferLayer| Target::exact_uri(&uri("/a?q=1"));
    let paths = ["/a", "/a?q=1", "/a?q=2"];

    for left in left_after(target, as_it_is, text, &paths).await {
        assert_eq!(left, ["/a", "/a?q=2"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_purged_by_a_request_that_has_it() {
    let target = |layer: &BufferLayer| {
        let (request, ()) = http::Request::get("http://shop.example/a?lang=de&utm=2")
            .body(())
            .unwrap()
            .into_parts();
        layer.target_of(&request).unwrap()
    };
    let options =
        |layer: BufferLayer| layer.query(tower_stampede::QueryKey::Only(vec!["lang".to_owned()]));
    let paths = ["/a?lang=de&utm=1", "/a?lang=fr"];

    for left in left_after(target, options, text, &paths).await {
        assert_eq!(left, ["/a?lang=fr"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_purged_at_once() {
    let target = |_: &BufferLayer| Target::all();

    for left in left_after(target, as_it_is, text, &["/a", "/b"]).await {
        assert_eq!(left, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_purged_whoever_gave_it() {
    let by_response = |build: usize, request: &Incoming| {
        let response = text(build, request);
        match request.uri().path() {
            "/cache-tag" => with(response, "cache-tag", "other, prices"),
            "/surrogate-key" => with(response, "surrogate-key", "prices other"),
            "/xkey" => with(with(response, "xkey", "other"), "xkey", "prices"),
            "/handler" => steered(response, CacheTags::new(["other", "prices"])),
            _ => response,
        }
    };
    let options = |layer: BufferLayer| {
        layer.tags(["all"]).tags_with(|request| {
            let path = request.uri.path();
            (path == "/request").then_some("prices")
        })
    };
    let target = |_: &BufferLayer| Target::tag("prices");
    let paths = [
        "/cache-tag",
        "/surrogate-key",
        "/xkey",
        "/handler",
        "/request",
        "/none",
    ];

    for left in left_after(target, options, by_response, &paths).await {
        assert_eq!(left, ["/none"]);
    }
    let target = |_: &BufferLayer| Target::tag("all");
    for left in left_after(target, options, by_response, &paths).await {
        assert_eq!(left, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_purge_is_served_stale_while_one_build_in_the_fleet_refreshes_it() {
    for (_redis, caches) in fleets() {
        let handler = Handler::open();
        let respond = |build: usize, request: &Incoming| {
            caching(build, request, "max-age=600, stale-while-revalidate=600")
        };
        let worker = |handler: &Handler, cache| handler.worker(&layer(cache).tags(["t"]), respond);
        let workers: Vec<_> = caches.iter().map(|cache| worker(&handler, cache)).collect();
        read_by_all(&workers, &caches, "/a").await;

        let purged = caches[0].soft_purge(Target::tag("t")).await.unwrap();
        assert!(purged.is_complete(), "{purged:?}");

        let held = Handler::held();
        let after: Vec<_> = caches
            .iter()
            .map(|cache| {
                held.worker(&layer(cache).tags(["t"]), move |_, request| {
                    respond(2, request)
                })
            })
            .collect();
        for worker in &after {
            for answer in worker.herd("/a", 10).answers().await {
                assert_eq!(answer.text(), "build 1");
                assert!(
                    answer.outcome.contains("ttl=-") || answer.outcome.contains("ttl=0"),
                    "{answer:?}"
                );
            }
        }
        held.has_begun(1).await;
        held.let_go();
        for worker in &after {
            let fresh = async { while worker.get("/a").await.text() != "build 2" {} };
            tokio::time::timeout(AMPLE, fresh).await.unwrap();
        }
        assert_eq!(held.builds(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_purge_is_served_in_place_of_a_failure() {
    for (_redis, caches) in fleets() {
        let handler = Handler::open();
        let respond = |build: usize, request: &Incoming| {
            caching(build, request, "max-age=600, stale-if-error=600")
        };
        let workers: Vec<_> = caches
            .iter()
            .map(|cache| handler.worker(&layer(cache), respond))
            .collect();
        read_by_all(&workers, &caches, "/a").await;

        caches[0].soft_purge(&uri("/a")).await.unwrap();

        for cache in &caches {
            let broken = handler.worker(&layer(cache), failing);
            let answer = broken.get("/a").await;
            assert_eq!((answer.status, answer.text()), (StatusCode::OK, "build 1"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_purge_fences_the_build_that_is_under_way() {
    for (_redis, caches) in fleets() {
        let held = Handler::held();
        let worker = held.worker(&layer(&caches[0]), text);
        let early = worker.herd("/a", 5);
        held.has_begun(1).await;
        waiting(&caches, 5).await;

        caches[0].soft_purge(&uri("/a")).await.unwrap();
        held.let_go();

        for answer in early.answers().await {
            assert_eq!(answer.text(), "build 1");
        }
        settled(&caches[0]).await;
        assert_eq!(worker.get("/a").await.text(), "build 2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_of_the_response_reaches_the_build_that_has_yet_to_name_it() {
    for (_redis, caches) in fleets() {
        let held = Handler::held();
        let respond = |build: usize, request: &Incoming| {
            steered(text(build, request), CacheTags::new(["late"]))
        };
        let worker = held.worker(&layer(&caches[0]), respond);
        let early = worker.herd("/a", 5);
        held.has_begun(1).await;

        caches[0].purge_tag("late").await.unwrap();
        held.let_go();
        early.answers().await;

        settled(&caches[0]).await;
        assert_eq!(worker.get("/a").await.text(), "build 2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_redis_does_not_hear_of_is_an_error_and_done_here_all_the_same() {
    let mut redis = RedisServer::start();
    let cache = cache(redis.url());
    let worker = Handler::open().worker(&layer(&cache), text);
    assert_eq!(worker.get("/a").await.text(), "build 1");
    settled(&cache).await;
    redis.kill();

    let error = cache.purge(&uri("/a")).await.unwrap_err();

    assert_eq!(error.to_string(), "purged in this process only");
    assert_eq!(worker.get("/a").await.text(), "build 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_does_not_answer_is_counted_out_when_the_time_is_up() {
    let redis = RedisServer::start();
    let caches = [cache(redis.url()), cache(redis.url())];
    let handler = Handler::open();
    for cache in &caches {
        handler.worker(&layer(cache), text).get("/warm").await;
    }
    // Somebody who listens and never answers.
    let mut silent = redis.client().get_connection().unwrap();
    let mut silent = silent.as_pubsub();
    silent.subscribe("stampede:events").unwrap();

    let purged = caches[0].purge(Target::all()).await.unwrap();

    assert_eq!((purged.acknowledged, purged.processes), (2, Some(3)));
    assert!(!purged.is_complete());
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_are_for_caches_and_taken_off_the_responses_unless_the_layer_forwards_them() {
    use tower::{Layer as _, ServiceExt as _};

    let inner = tower::service_fn(async |request: Incoming| {
        let tagged = ["cache-tag", "surrogate-key", "xkey"]
            .into_iter()
            .fold(text(1, &request), |response, name| {
                with(response, name, "a")
            });
        Ok::<_, std::convert::Infallible>(tagged)
    });
    let plain = || layer(&Cache::in_memory());
    for (layer, left) in [(plain(), 0), (plain().forward_tag_fields(), 3)] {
        let service = layer.layer(inner);
        for _ in ["miss", "hit"] {
            let response = service.clone().oneshot(get("/a")).await.unwrap();
            let fields = ["cache-tag", "surrogate-key", "xkey"];
            let found = fields
                .iter()
                .filter(|name| response.headers().contains_key(**name));
            assert_eq!(found.count(), left);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_that_bypass_show_no_tags_either() {
    let cache = Cache::in_memory();
    let respond = |build: usize, request: &Incoming| with(text(build, request), "cache-tag", "a");
    let inner = tower::service_fn(move |request: Incoming| {
        let response = respond(1, &request);
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let service = tower::Layer::layer(&layer(&cache), inner);
    let mut request = get("/a");
    request
        .headers_mut()
        .insert("cookie", HeaderValue::from_static("a=b"));

    let response = tower::ServiceExt::oneshot(service, request).await.unwrap();

    assert!(
        response.headers()["cache-status"]
            .to_str()
            .unwrap()
            .contains("bypass")
    );
    assert!(!response.headers().contains_key("cache-tag"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_with_more_tags_than_are_kept_is_shared_and_not_stored() {
    let cache = Cache::in_memory();
    let respond = |build: usize, request: &Incoming| {
        let names = (0..200).map(|number| number.to_string());
        steered(text(build, request), CacheTags::new(names))
    };
    let worker = Handler::open().worker(&layer(&cache), respond);

    assert_eq!(worker.get("/a").await.text(), "build 1");
    assert_eq!(worker.get("/a").await.text(), "build 2");
}

#[tokio::test(start_paused = true)]
async fn a_handler_says_how_long_its_response_is_fresh_whatever_its_fields_say_to_others() {
    let cache = Cache::in_memory();
    let respond = |build: usize, request: &Incoming| {
        let private = caching(build, request, "private, max-age=1");
        steered(private, CacheTtl::new(Duration::from_secs(100)))
    };
    let worker = Handler::open().worker(&layer(&cache), respond);

    worker.get("/a").await;
    tokio::time::advance(Duration::from_secs(99)).await;
    assert_eq!(worker.get("/a").await.text(), "build 1");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(worker.get("/a").await.text(), "build 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_says_no_cache_is_not_cached() {
    let cache = Cache::in_memory();
    let respond =
        |build: usize, request: &Incoming| steered(caching(build, request, "max-age=60"), NoCache);
    let handler = Handler::held();
    let worker = handler.worker(&layer(&cache), respond);
    let herd = worker.herd("/a", 5);
    until(|| cache.stats().waiters == 5).await;
    handler.let_go();

    let mut texts: Vec<_> = herd
        .answers()
        .await
        .iter()
        .map(|answer| answer.text().to_owned())
        .collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 5, "each has its own");
}
