//! The shared tier made of a store and of locks: several caches, as several processes have them.

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tower_stampede::Cache;

use crate::support::{
    pairs::Pair,
    worker::{
        Handler, Incoming, Outgoing, Worker, caching, failing, get, layer, settled, text,
        uncacheable, waiting,
    },
};

/// `count` processes, each with a cache of its own.
pub(crate) fn workers(
    pair: &Pair,
    count: usize,
    handler: &Handler,
    respond: fn(usize, &Incoming) -> Outgoing,
) -> (Vec<Cache>, Vec<Worker>) {
    let caches: Vec<_> = (0..count).map(|_| pair.cache()).collect();
    let workers = caches
        .iter()
        .map(|cache| handler.worker(&layer(cache), respond))
        .collect();
    (caches, workers)
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_ask_at_the_same_time_share_one_build() {
    for pair in Pair::all() {
        let handler = Handler::held();
        let (caches, workers) = workers(&pair, 4, &handler, text);

        let herds: Vec<_> = workers
            .iter()
            .map(|worker| worker.herd("/report", 50))
            .collect();
        waiting(&caches, 200).await;
        handler.has_begun(1).await;
        handler.let_go();

        for herd in herds {
            for answer in herd.answers().await {
                assert_eq!((answer.status, answer.text()), (StatusCode::OK, "build 1"));
            }
        }
        assert_eq!(handler.builds(), 1, "{}", pair.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_shared_and_every_hit_is_confirmed() {
    for pair in Pair::all() {
        let handler = Handler::open();
        let (caches, workers) = workers(&pair, 3, &handler, text);

        for _ in 0..3 {
            for (worker, cache) in workers.iter().zip(&caches) {
                assert_eq!(worker.get("/report").await.text(), "build 1");
                settled(cache).await;
            }
        }

        let again = workers[0].get("/report").await;
        assert!(again.outcome.contains("hit"), "{again:?}");
        assert_eq!(handler.builds(), 1, "{}", pair.name());
    }
}

#[tokio::test]
async fn a_cold_build_takes_two_looks_and_one_write_and_a_hit_one_look_without_the_body() {
    let pair = Pair::memory();
    let (store, _) = pair.in_memory();
    let handler = Handler::open();
    let (caches, workers) = workers(&pair, 2, &handler, |_, _| {
        Response::new(Full::from(vec![b'x'; 100_000]))
    });
    // The generations of the namespace are written once.
    workers[0].get("/first").await;
    settled(&caches[0]).await;

    store.reset();
    workers[0].get("/report").await;
    settled(&caches[0]).await;
    // Look, look again under the lock, and once more when it is there; the generations of three tags, and the
    // entry.
    assert_eq!(store.trips(), (3, 4, 0));

    store.reset();
    workers[1].get("/report").await;
    assert_eq!(store.trips(), (1, 0, 0));
    assert!(store.sent() > 100_000);

    store.reset();
    for worker in &workers {
        for _ in 0..5 {
            assert!(worker.get("/report").await.outcome.contains("hit"));
        }
    }
    assert_eq!(store.trips(), (10, 0, 0));
    assert!(store.sent() < 10_000, "{}", store.sent());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_shared_by_the_waiters_of_every_process_and_nobody_builds_in_turn() {
    for pair in Pair::all() {
        let handler = Handler::held();
        let (caches, workers) = workers(&pair, 3, &handler, failing);
        let first = workers[0].herd("/report", 20);
        handler.has_begun(1).await;
        let others = workers[1]
            .herd("/report", 20)
            .and(workers[2].herd("/report", 20));
        waiting(&caches, 60).await;
        pair.asked(&caches[1..]).await;
        handler.let_go();

        for answer in first.and(others).answers().await {
            assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
            assert_eq!(answer.text(), "out of order");
        }
        assert_eq!(handler.builds(), 1, "{}", pair.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_shared_as_a_failure() {
    for pair in Pair::all() {
        let handler = Handler::held();
        let (caches, workers) = workers(&pair, 2, &handler, |_, _| panic!("out of order"));
        let worker = workers[0].clone();
        let first = tokio::spawn(async move { worker.get("/report").await });
        handler.has_begun(1).await;
        let others = workers[1].herd("/report", 20);
        waiting(&caches, 21).await;
        pair.asked(&caches[1..]).await;
        handler.let_go();

        assert!(first.await.unwrap_err().is_panic());
        for answer in others.answers().await {
            assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        }
        assert_eq!(handler.builds(), 1, "{}", pair.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncacheable_response_sets_every_process_free_and_the_next_wave_does_not_wait() {
    for pair in Pair::all() {
        let handler = Handler::held();
        let (caches, workers) = workers(&pair, 2, &handler, uncacheable);
        let first = workers[0].herd("/report", 10);
        handler.has_begun(1).await;
        let other = workers[1].herd("/report", 10);
        waiting(&caches, 20).await;
        pair.asked(&caches[1..]).await;

        // One permit ends the one build; all the others begin theirs, none after the other.
        handler.let_go_one();
        handler.has_begun(20).await;
        handler.let_go();
        first.and(other).answers().await;

        let handler = Handler::held();
        let workers: Vec<_> = caches
            .iter()
            .map(|cache| handler.worker(&layer(cache), uncacheable))
            .collect();
        let wave = workers[0]
            .herd("/report", 10)
            .and(workers[1].herd("/report", 10));
        handler.has_begun(20).await;
        handler.let_go();
        wave.answers().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_a_hit_for_miss_marker_the_first_storable_response_is_stored_for_all() {
    for pair in Pair::all() {
        let handler = Handler::open();
        let (caches, stubborn) = workers(&pair, 2, &handler, uncacheable);
        stubborn[0].get("/report").await;
        settled(&caches[0]).await;

        let healed: Vec<_> = caches
            .iter()
            .map(|cache| handler.worker(&layer(cache), text))
            .collect();
        let probe = healed[1].get("/report").await;
        settled(&caches[1]).await;

        for worker in &healed {
            let answer = worker.get("/report").await;
            assert!(answer.outcome.contains("hit"), "{answer:?}");
            assert_eq!(answer.body, probe.body);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_entry_answers_all_processes_while_one_refreshes_it() {
    fn brief(build: usize, request: &Incoming) -> Outgoing {
        caching(build, request, "max-age=0, stale-while-revalidate=600")
    }
    for pair in Pair::all() {
        let handler = Handler::open();
        let (caches, first) = workers(&pair, 3, &handler, brief);
        first[0].get("/report").await;
        settled(&caches[0]).await;

        let held = Handler::held();
        let after: Vec<_> = caches
            .iter()
            .map(|cache| held.worker(&layer(cache), |_, request| text(2, request)))
            .collect();
        for _ in 0..3 {
            for worker in &after {
                assert_eq!(worker.get("/report").await.text(), "build 1");
            }
        }
        held.has_begun(1).await;
        assert_eq!(held.builds(), 1, "{}", pair.name());
        held.let_go();
        for cache in &caches {
            settled(cache).await;
        }

        for worker in &after {
            assert_eq!(worker.get("/report").await.text(), "build 2");
        }
        assert_eq!(held.builds(), 1, "{}", pair.name());
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_elsewhere_are_woken_by_the_release() {
    let pair = Pair::memory();
    let handler = Handler::held();
    let (caches, workers) = workers(&pair, 2, &handler, text);
    let first = workers[0].herd("/report", 1);
    handler.has_begun(1).await;
    let waits = workers[1].herd("/report", 5);
    waiting(&caches, 6).await;
    // By now they ask once in a while.
    tokio::time::sleep(Duration::from_secs(8)).await;

    let released = tokio::time::Instant::now();
    handler.let_go();

    for answer in first.and(waits).answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    let waited = released.elapsed();
    assert!(waited < Duration::from_millis(50), "{waited:?}");
}

fn by_language(build: usize, request: &Incoming) -> Outgoing {
    let language = request.headers().get("accept-language").unwrap();
    let body = format!("build {build} in {}", language.to_str().unwrap());
    let mut response = Response::new(Full::from(body));
    let vary = HeaderValue::from_static("accept-language");
    response.headers_mut().insert("vary", vary);
    response
}

fn in_language(language: &str) -> Incoming {
    let mut request = get("/report");
    let value = HeaderValue::from_str(language).unwrap();
    request.headers_mut().insert("accept-language", value);
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn variants_are_shared_each_with_those_who_ask_for_it() {
    for pair in Pair::all() {
        let handler = Handler::open();
        let (caches, workers) = workers(&pair, 2, &handler, by_language);
        let german = workers[0].send(in_language("de")).await;
        settled(&caches[0]).await;
        let french = workers[0].send(in_language("fr")).await;
        settled(&caches[0]).await;
        assert_eq!(
            (german.text(), french.text()),
            ("build 1 in de", "build 2 in fr")
        );

        for worker in workers.iter().rev() {
            assert_eq!(worker.send(in_language("de")).await.body, german.body);
            assert_eq!(worker.send(in_language("fr")).await.body, french.body);
        }
        assert_eq!(handler.builds(), 2, "{}", pair.name());

        let path = "http://shop.example/report".parse().unwrap();
        caches[0].purge(&path).await.unwrap();
        let again = workers[1].send(in_language("fr")).await;
        assert_eq!(again.text(), "build 3 in fr");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_come_over_byte_for_byte() {
    fn noise(size: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(7);
        std::iter::repeat_with(|| random.u8(..))
            .take(size)
            .collect()
    }
    for pair in Pair::all() {
        let (one, other) = (pair.cache(), pair.cache());
        let handler = Handler::open();
        for size in [0, 1, 1023, 65_536, 1_000_000] {
            let path = format!("/{size}");
            let large = move |_: usize, _: &Incoming| Response::new(Full::from(noise(size)));
            handler.worker(&layer(&one), large).get(&path).await;
            settled(&one).await;

            let answer = handler.worker(&layer(&other), text).get(&path).await;

            assert!(answer.outcome.contains("hit"), "{size}: {}", answer.outcome);
            assert!(answer.body == noise(size), "{size} bytes");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn age_and_remaining_lifetime_are_right_in_the_other_process() {
    fn aged(build: usize, request: &Incoming) -> Outgoing {
        let mut response = caching(build, request, "max-age=100");
        let age = HeaderValue::from_static("40");
        response.headers_mut().insert("age", age);
        response
    }
    for pair in Pair::all() {
        let handler = Handler::open();
        let (caches, workers) = workers(&pair, 2, &handler, aged);
        workers[0].get("/report").await;
        settled(&caches[0]).await;
        tokio::time::sleep(Duration::from_millis(1100)).await;

        let answer = workers[1].get("/report").await;

        // No younger than it is, and by two seconds older at most (and the machine may be slow).
        assert!(matches!(answer.age, Some(41..=50)), "{answer:?}");
        let ttl = answer.outcome.split("ttl=").nth(1).unwrap();
        assert!((50..=59).contains(&ttl.parse().unwrap()), "{answer:?}");
    }
}
