//! The shared tier on a real Redis: several caches, as several workers have them.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, Uri};
use http_body_util::Full;
use tower_stampede::Cache;

use crate::support::{
    redis::RedisServer,
    worker::{
        self, Handler, Incoming, Outgoing, Worker, cache, failing, get, layer, settled, text,
        uncacheable, until, waiting,
    },
};

/// `count` workers, each with a cache of its own.
fn workers(
    redis: &RedisServer,
    count: usize,
    handler: &Handler,
    respond: fn(usize, &Incoming) -> Outgoing,
) -> (Vec<Cache>, Vec<Worker>) {
    let caches: Vec<_> = (0..count).map(|_| cache(redis.url())).collect();
    let workers = caches
        .iter()
        .map(|cache| handler.worker(&layer(cache), respond))
        .collect();
    (caches, workers)
}

/// Connects, subscribes and stores all scripts, so that what is counted next is the protocol alone.
async fn warm(redis: &RedisServer, caches: &[Cache], workers: &[Worker]) {
    for (at, (worker, cache)) in workers.iter().zip(caches).enumerate() {
        worker.get(&format!("/warm/{at}")).await;
        settled(cache).await;
    }
    redis.reset_counts();
}

/// How often the workers asked: scripts and reads of their own.
fn trips(redis: &RedisServer) -> u64 {
    let counts = redis.command_counts();
    let of = |name: &str| counts.get(name).copied().unwrap_or(0);
    of("evalsha") + of("eval")
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_ask_at_the_same_time_share_one_build() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let (caches, workers) = workers(&redis, 4, &handler, text);

    let herds: Vec<_> = workers
        .iter()
        .map(|worker| worker.herd("/report", 50))
        .collect();
    waiting(&caches, 200).await;
    handler.let_go();

    for herd in herds {
        for answer in herd.answers().await {
            assert_eq!((answer.status, answer.text()), (StatusCode::OK, "build 1"));
        }
    }
    assert_eq!(handler.builds(), 1);
}

#[tokio::test]
async fn a_cold_build_takes_two_trips_a_shared_hit_one_and_a_local_hit_none() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (caches, workers) = workers(&redis, 2, &handler, text);
    warm(&redis, &caches, &workers).await;

    let cold = workers[0].get("/report").await;
    settled(&caches[0]).await;
    assert_eq!(trips(&redis), 2);
    assert!(cold.outcome.contains("fwd=uri-miss; stored"), "{cold:?}");

    let shared = workers[1].get("/report").await;
    settled(&caches[1]).await;
    assert_eq!(trips(&redis), 3);
    assert!(shared.outcome.contains("hit"), "{shared:?}");

    for worker in &workers {
        for _ in 0..10 {
            let local = worker.get("/report").await;
            assert!(local.outcome.contains("hit"), "{local:?}");
        }
    }
    assert_eq!(trips(&redis), 3);
}

#[tokio::test]
async fn the_first_build_of_a_process_is_a_local_hit_although_the_subscription_came_up_meanwhile() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let (caches, workers) = workers(&redis, 1, &handler, text);
    let cold = workers[0].herd("/report", 1);
    handler.has_begun(1).await;
    until(|| redis.clients("pubsub") == 1).await;
    // Its confirmation has come when the next request has asked anew.
    until(|| redis.count("subscribe") == 1).await;
    handler.let_go();
    cold.answers().await;
    settled(&caches[0]).await;
    workers[0].get("/other").await;
    settled(&caches[0]).await;
    redis.reset_counts();

    let answer = workers[0].get("/report").await;

    assert_eq!(answer.text(), "build 1");
    assert_eq!(trips(&redis), 0);
}

/// The commands that a cold herd of `waiters` costs two processes, over a build of 400 ms.
async fn cost_of_herd(waiters: usize) -> (u64, usize) {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let (caches, workers) = workers(&redis, 2, &handler, text);
    for worker in &workers {
        let warm = worker.herd("/warm", 1);
        handler.let_go();
        warm.answers().await;
    }
    let held = Handler::held();
    let workers: Vec<_> = caches
        .iter()
        .map(|cache| held.worker(&layer(cache), text))
        .collect();
    redis.reset_counts();

    let first = workers[0].herd("/report", waiters);
    held.has_begun(1).await;
    let second = workers[1].herd("/report", waiters);
    waiting(&caches, 2 * waiters).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    held.let_go();
    for answer in first.and(second).answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    (trips(&redis), held.builds())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_waits_costs_the_same_for_ten_and_for_a_hundred_waiters() {
    for waiters in [10, 100] {
        let (trips, builds) = cost_of_herd(waiters).await;

        assert_eq!(builds, 1);
        // Claim and fill of the one, claim, polls at 50, 150 and 350 ms and the claim after the event of the
        // other, and a claim of newcomers while the subscription comes up.
        assert!(trips <= 10, "{waiters} waiters: {trips} trips");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_herd_of_processes_that_have_just_started_builds_once_and_asks_a_few_times() {
    for requests in [25, 250] {
        let redis = RedisServer::start();
        let handler = Handler::held();
        let (caches, workers) = workers(&redis, 4, &handler, text);
        let mut herds = Vec::new();
        for worker in &workers {
            herds.push(worker.herd("/report", requests / 2));
        }
        // The second half comes after the subscription has come up.
        until(|| redis.clients("pubsub") == 4).await;
        for worker in &workers {
            herds.push(worker.herd("/report", requests / 2));
        }
        waiting(&caches, 8 * (requests / 2)).await;
        handler.let_go();

        for herd in herds {
            for answer in herd.answers().await {
                assert_eq!(answer.text(), "build 1");
            }
        }
        assert_eq!(handler.builds(), 1);
        let trips = trips(&redis);
        assert!(trips <= 40, "{requests} requests: {trips} trips");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_shared_by_the_waiters_of_every_process_and_nobody_builds_in_turn() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let (caches, workers) = workers(&redis, 3, &handler, failing);
    let open = Handler::open();
    let others = caches.iter().map(|cache| open.worker(&layer(cache), text));
    warm(&redis, &caches, &others.collect::<Vec<_>>()).await;
    let first = workers[0].herd("/report", 20);
    handler.has_begun(1).await;
    let others = workers[1]
        .herd("/report", 20)
        .and(workers[2].herd("/report", 20));
    waiting(&caches, 60).await;
    until(|| trips(&redis) >= 3).await;
    handler.let_go();

    for answer in first.and(others).answers().await {
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
        assert_eq!(answer.text(), "out of order");
    }
    assert_eq!(handler.builds(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncacheable_response_sets_every_process_free_and_the_next_wave_does_not_wait() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let (caches, workers) = workers(&redis, 2, &handler, uncacheable);
    let first = workers[0].herd("/report", 10);
    handler.has_begun(1).await;
    let other = workers[1].herd("/report", 10);
    waiting(&caches, 20).await;

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

#[tokio::test(flavor = "multi_thread")]
async fn under_a_hit_for_miss_marker_the_first_storable_response_is_stored_for_all() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (caches, stubborn) = workers(&redis, 2, &handler, uncacheable);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_reaches_entries_and_builds_under_way_in_the_other_processes() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (caches, workers) = workers(&redis, 2, &handler, text);
    warm(&redis, &caches, &workers).await;
    let path = Uri::from_static("http://shop.example/report");
    for worker in &workers {
        worker.get("/report").await;
    }
    settled(&caches[1]).await;
    let before = handler.builds();

    caches[0].purge(&path).await.unwrap();
    let own = workers[0].get("/report").await;
    assert_eq!(own.text(), format!("build {}", before + 1));
    let told = async { while workers[1].get("/report").await.body != own.body {} };
    tokio::time::timeout(worker::AMPLE, told).await.unwrap();

    let held = Handler::held();
    let slow = held.worker(&layer(&caches[1]), text);
    let waiter = slow.herd("/report?page=2", 1);
    held.has_begun(1).await;
    caches[0].purge(&path).await.unwrap();
    held.let_go();
    assert_eq!(waiter.answers().await[0].text(), "build 1");
    settled(&caches[1]).await;

    let after = slow.get("/report?page=2").await;
    assert_eq!(after.text(), "build 2");
    assert_eq!(workers[0].get("/report?page=2").await.text(), "build 2");
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
async fn variants_are_shared_and_cost_a_cold_process_one_more_trip_once() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (caches, workers) = workers(&redis, 2, &handler, text);
    warm(&redis, &caches, &workers).await;
    let handler = Handler::open();
    let workers: Vec<_> = caches
        .iter()
        .map(|cache| handler.worker(&layer(cache), by_language))
        .collect();
    let german = workers[0].send(in_language("de")).await;
    let french = workers[0].send(in_language("fr")).await;
    settled(&caches[0]).await;
    assert_eq!(
        (german.text(), french.text()),
        ("build 1 in de", "build 2 in fr")
    );
    redis.reset_counts();

    assert_eq!(workers[1].send(in_language("de")).await.body, german.body);
    assert_eq!(trips(&redis), 2);
    assert_eq!(workers[1].send(in_language("fr")).await.body, french.body);
    assert_eq!(trips(&redis), 3);
    assert_eq!(workers[1].send(in_language("de")).await.body, german.body);
    assert_eq!(trips(&redis), 3);

    let path = Uri::from_static("http://shop.example/report");
    caches[0].purge(&path).await.unwrap();
    assert_eq!(
        workers[0].send(in_language("fr")).await.text(),
        "build 3 in fr"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_come_over_byte_for_byte() {
    fn large(size: usize) -> impl Fn(usize, &Incoming) -> Outgoing + Clone + Send + Sync {
        move |_, _| Response::new(Full::from(noise(size)))
    }
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (one, other) = (cache(redis.url()), cache(redis.url()));
    for size in [0, 1, 60_000, 65_000, 65_536, 66_000, 3 * 1024 * 1024] {
        let path = format!("/{size}");
        let builder = handler.worker(&layer(&one), large(size));
        let reader = handler.worker(&layer(&other), text);
        builder.get(&path).await;
        settled(&one).await;

        let answer = reader.get(&path).await;

        assert!(answer.outcome.contains("hit"), "{}", answer.outcome);
        assert!(answer.body == noise(size), "{size} bytes");
    }
}

fn noise(size: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.u8(..))
        .take(size)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn age_and_remaining_lifetime_are_right_in_the_other_process() {
    fn aged(_: usize, _: &Incoming) -> Outgoing {
        let mut response = Response::new(Full::from("aged"));
        let headers = response.headers_mut();
        headers.insert("cache-control", HeaderValue::from_static("max-age=100"));
        headers.insert("age", HeaderValue::from_static("40"));
        response
    }
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (caches, workers) = workers(&redis, 2, &handler, aged);
    workers[0].get("/report").await;
    settled(&caches[0]).await;
    // As if 20 seconds had passed: the entry's time to live is the only clock.
    let entry = entry_of(&redis);
    let left: u64 = redis.command(&["PTTL", &entry]);
    assert!((50_000..=60_000).contains(&left), "{left}");
    redis.command::<()>(&["PEXPIRE", &entry, &(left - 20_000).to_string()]);

    let answer = workers[1].get("/report").await;

    assert!(matches!(answer.age, Some(60..=70)), "{answer:?}");
    let ttl: i64 = answer
        .outcome
        .split("ttl=")
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert!((25..=40).contains(&ttl), "{answer:?}");
}

/// The one entry's name.
pub(crate) fn entry_of(redis: &RedisServer) -> String {
    let keys: Vec<String> = redis.command(&["KEYS", "*:e1"]);
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.into_iter().next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_lies_under_a_live_key_is_a_miss_and_overwritten() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (caches, workers) = workers(&redis, 2, &handler, text);
    workers[0].get("/report").await;
    settled(&caches[0]).await;
    let entry = entry_of(&redis);
    let value: Vec<u8> = redis.command(&["GET", &entry]);

    for (name, garbage) in garbage(&value) {
        let before = handler.builds();
        put(&redis, &entry, &garbage);
        let cold = cache(redis.url());
        let worker = handler.worker(&layer(&cold), text);

        let answer = worker.get("/report").await;
        settled(&cold).await;

        assert_eq!(answer.status, StatusCode::OK, "{name}");
        assert_eq!(handler.builds(), before + 1, "{name}");
        let healed = cache(redis.url());
        let reader = handler.worker(&layer(&healed), text);
        assert_eq!(reader.get("/report").await.body, answer.body, "{name}");
        assert_eq!(handler.builds(), before + 1, "{name}: it was overwritten");
    }
}

/// Damaged forms of an entry.
fn garbage(value: &[u8]) -> HashMap<&'static str, Vec<u8>> {
    let with = |at: usize, byte: u8| {
        let mut value = value.to_vec();
        value[at] = byte;
        value
    };
    let mut future = value.to_vec();
    future[37..53].copy_from_slice(b"9999999999999999");
    HashMap::from([
        ("empty", Vec::new()),
        ("text", b"hello".to_vec()),
        ("version 0", with(3, b'0')),
        ("version 99", with(3, b'c')),
        ("unknown kind", with(4, b'?')),
        ("compressed, and is not", with(4, b'Z')),
        ("garbled token", with(10, 0xff)),
        ("garbled time", with(40, b'x')),
        ("garbled life", with(55, b'x')),
        ("garbled window", with(70, b'x')),
        ("another key's proof", with(80, value[80] ^ 1)),
        ("garbled count", with(111, b'z')),
        ("a few bytes only", value[..60].to_vec()),
        ("head only", value[..114].to_vec()),
        ("truncated", value[..value.len() - 40].to_vec()),
        ("garbled tag", with(150, 0xff)),
        ("garbled meta", with(214, 0xff)),
        ("zeros", vec![0; 200]),
        ("from the future, garbled", {
            future[4] = b'?';
            future
        }),
    ])
}

fn put(redis: &RedisServer, key: &str, value: &[u8]) {
    let mut connection = redis.client().get_connection().unwrap();
    redis::cmd("SET")
        .arg(key)
        .arg(value)
        .arg("PX")
        .arg(50_000)
        .exec(&mut connection)
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_the_wrong_type_is_no_outage_and_is_overwritten() {
    for suffix in ["e1", "l", "m"] {
        let redis = RedisServer::start();
        let handler = Handler::open();
        let (caches, workers) = workers(&redis, 1, &handler, text);
        workers[0].get("/report").await;
        settled(&caches[0]).await;
        let entry = entry_of(&redis);
        redis.command::<()>(&["DEL", &entry]);
        let key = format!("{}{suffix}", entry.strip_suffix("e1").unwrap());
        redis.command::<()>(&["RPUSH", &key, "not", "ours"]);

        let cold = cache(redis.url());
        let worker = handler.worker(&layer(&cold), text);
        worker.get("/report").await;
        settled(&cold).await;

        let third = cache(redis.url());
        let reader = handler.worker(&layer(&third), text);
        let answer = reader.get("/report").await;
        assert_eq!(answer.text(), "build 2", "{suffix}: {answer:?}");
        assert_eq!(cold.stats().shared_failures.total(), 0, "{suffix}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_records_of_the_wrong_type_or_gone_start_anew() {
    for command in [
        &["DEL", "stampede:tags"][..],
        &["SET", "stampede:tags", "x"],
    ] {
        let redis = RedisServer::start();
        let handler = Handler::open();
        let (caches, workers) = workers(&redis, 2, &handler, text);
        workers[0].get("/report").await;
        settled(&caches[0]).await;
        redis.command::<()>(command);

        // Nothing is known of the past any more.
        assert_eq!(workers[1].get("/report").await.text(), "build 2");
        settled(&caches[1]).await;
        caches[0]
            .purge(&Uri::from_static("http://shop.example/report"))
            .await
            .unwrap();

        assert_eq!(workers[0].get("/report").await.text(), "build 3");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_the_server_has_forgotten_are_sent_again() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (caches, workers) = workers(&redis, 2, &handler, text);
    workers[0].get("/one").await;
    settled(&caches[0]).await;

    redis.command::<()>(&["SCRIPT", "FLUSH"]);
    workers[0].get("/two").await;
    settled(&caches[0]).await;

    assert_eq!(workers[1].get("/two").await.text(), "build 2");
    assert_eq!(caches[0].stats().shared_failures.total(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_purge_overtakes_while_it_is_built_is_not_said_to_be_stored() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let (caches, workers) = workers(&redis, 2, &handler, text);
    let herd = workers[0].herd("/report", 2);
    waiting(&caches, 2).await;
    handler.has_begun(1).await;

    let report = Uri::from_static("http://shop.example/report");
    caches[0].purge(&report).await.unwrap();
    handler.let_go();

    for answer in herd.answers().await {
        assert!(!answer.outcome.contains("stored"), "{answer:?}");
    }
}
