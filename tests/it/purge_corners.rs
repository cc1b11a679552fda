//! Purges in odd circumstances: strange names, strangers, floods, and nobody to tell.

use http::{HeaderValue, Method, StatusCode};
use tower_stampede::{BufferLayer, Cache};

use crate::support::{
    redis::RedisServer,
    worker::{Handler, Incoming, Worker, cache, fleets, get, layer, settled, text, until, uri},
};

fn workers(
    handler: &Handler,
    caches: &[Cache],
    options: impl Fn(BufferLayer) -> BufferLayer,
) -> Vec<Worker> {
    let worker = |cache: &Cache| handler.worker(&options(layer(cache)), text);
    caches.iter().map(worker).collect()
}

/// What the last of them reads.
async fn read_by_all(workers: &[Worker], caches: &[Cache], path: &str) -> String {
    let mut read = String::new();
    for (worker, cache) in workers.iter().zip(caches) {
        read = worker.get(path).await.text().to_owned();
        settled(cache).await;
    }
    read
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_may_have_any_name() {
    const LONG: usize = 10_000;
    let names = [
        String::new(),
        " ".to_owned(),
        "!".to_owned(),
        "~!".to_owned(),
        "~prices".to_owned(),
        "prices, and more".to_owned(),
        "*".to_owned(),
        "{a}:{b}".to_owned(),
        "\r\nSET a b\r\n".to_owned(),
        "\0\u{7f}".to_owned(),
        "Preise für Käse 🧀".to_owned(),
        "http://shop.example/a".to_owned(),
        "x".repeat(LONG),
    ];
    for (_redis, caches) in fleets() {
        let handler = Handler::open();
        let tagged = |layer: BufferLayer| {
            layer.tags_with({
                let names = names.clone();
                move |request| {
                    let number = request
                        .uri
                        .path()
                        .trim_start_matches('/')
                        .parse::<usize>()
                        .unwrap();
                    names.get(number).cloned()
                }
            })
        };
        let workers = workers(&handler, &caches, tagged);
        for (number, name) in names.iter().enumerate() {
            let mut before = Vec::new();
            for other in 0..=names.len() {
                before.push(read_by_all(&workers, &caches, &format!("/{other}")).await);
            }

            let purged = caches[0].purge_tag(name).await.unwrap();

            assert!(purged.is_complete(), "{name:?}");
            for (other, before) in before.iter().enumerate() {
                let after = read_by_all(&workers, &caches, &format!("/{other}")).await;
                assert_eq!(after != *before, other == number, "{name:?}: {other}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_purges_by_a_request() {
    let cache = Cache::in_memory();
    let respond = |build: usize, request: &Incoming| {
        let mut response = text(build, request);
        if request.method() != Method::GET {
            // As a router says that has no handler for it.
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        }
        response
    };
    let worker = Handler::open().worker(&layer(&cache), respond);
    worker.get("/a").await;

    for (method, field) in [
        ("GET", ("x-purge", "1")),
        ("GET", ("cache-tag", "a")),
        ("GET", ("cache-control", "no-cache")),
        ("GET", ("pragma", "no-cache")),
        ("PURGE", ("x-key", "a")),
        ("BAN", ("x-key", "a")),
        ("REFRESH", ("x-key", "a")),
    ] {
        let mut request = get("/b");
        *request.uri_mut() = uri("/a");
        *request.method_mut() = method.parse().unwrap();
        let (name, value) = field;
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
        worker.send(request).await;
        assert_eq!(
            worker.get("/a").await.text(),
            "build 1",
            "{method} {field:?}"
        );
    }
}

/// More purges than are remembered forget nothing that they purged.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_purges_of_other_tags_leaves_an_entry_alone_until_its_own_comes() {
    for (_redis, caches) in fleets() {
        let handler = Handler::open();
        let workers = workers(&handler, &caches, |layer| layer.tags(["own"]));
        read_by_all(&workers, &caches, "/a").await;

        let mut flood = tokio::task::JoinSet::new();
        for number in 0..500 {
            let cache = caches[number % caches.len()].clone();
            flood.spawn(async move { cache.purge_tag(number.to_string()).await.unwrap() });
        }
        for purged in flood.join_all().await {
            assert!(purged.is_complete(), "{purged:?}");
        }
        assert_eq!(read_by_all(&workers, &caches, "/a").await, "build 1");

        caches[0].purge_tag("own").await.unwrap();
        assert_eq!(read_by_all(&workers, &caches, "/a").await, "build 2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_can_be_told_a_purge_says_that_it_cannot_count() {
    let redis = RedisServer::start();
    let cache = cache(redis.url());
    let worker = Handler::open().worker(&layer(&cache), text);
    worker.get("/a").await;
    settled(&cache).await;
    redis.command::<()>(&["ACL", "SETUSER", "default", "-publish"]);

    let purged = cache.purge(&uri("/a")).await.unwrap();

    assert_eq!((purged.acknowledged, purged.processes), (1, None));
    assert!(!purged.is_complete());
    assert_eq!(worker.get("/a").await.text(), "build 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_does_nothing_else_purges_in_the_others() {
    let redis = RedisServer::start();
    let caches = [cache(redis.url()), cache(redis.url())];
    let handler = Handler::open();
    let workers = workers(&handler, &caches, |layer| layer);
    read_by_all(&workers, &caches, "/a").await;
    until(|| redis.clients("pubsub") == 2).await;

    let purged = cache(redis.url()).purge(&uri("/a")).await.unwrap();

    assert_eq!((purged.acknowledged, purged.processes), (3, Some(3)));
    assert_eq!(read_by_all(&workers, &caches, "/a").await, "build 2");
}

#[tokio::test(start_paused = true)]
async fn who_comes_after_a_purge_by_a_tag_of_the_response_does_not_read_along() {
    use crate::support::{
        client::{ask, behind, get as plain, herd},
        origin::{Origin, head},
    };

    let cache = Cache::in_memory();
    let fields = [
        ("cache-control", "max-age=60"),
        ("content-length", "4"),
        ("cache-tag", "t"),
    ];
    let (origin, mut streams) = Origin::streaming(move |_| head(StatusCode::OK, &fields));
    let service = behind(&BufferLayer::new(cache.clone()), &origin);
    let early = herd(&service, [plain("/")]);
    let first = streams.recv().await.unwrap();
    first.data("ol");
    crate::support::client::settle().await;

    cache.purge_tag("t").await.unwrap();
    let late = herd(&service, [plain("/")]);
    let second = streams.recv().await.expect("it is built anew");
    first.data("d!");
    first.end();
    second.data("new!");
    second.end();

    assert_eq!(early.answers().await[0].text(), "old!");
    assert_eq!(late.answers().await[0].text(), "new!");
    assert_eq!(ask(&service, plain("/")).await.text(), "new!");
}
