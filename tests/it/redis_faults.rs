//! Redis failing, in every way that the proxy and the server know: the requests go on.

use std::time::Duration;

use http::{StatusCode, Uri};
use tokio::time::Instant;
use tower_stampede::{BufferLayer, Cache};

use crate::support::{
    log::Log,
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{
        self, AMPLE, Answer, Handler, Worker, cache, get, layer, rounds_under_load, settled, text,
        until,
    },
};

/// What one request may be held up, on a machine under load.
const SHORTLY: Duration = Duration::from_secs(3);

/// With the budget that people have by default.
fn hasty(url: String) -> Cache {
    Cache::builder().redis(url).build().unwrap()
}

fn behind(proxy: &FaultProxy) -> Cache {
    hasty(proxy.url())
}

/// Ten requests at the same time for each of `paths`, each answered by a build of its path.
async fn goes_on(worker: &Worker, handler: &Handler, paths: &[String]) {
    let builds = builds_for(worker, handler, paths).await;
    assert_eq!(builds, paths.len(), "one build for each key");
}

/// The same, where the events may be interrupted meanwhile: what was built before that is not for those who
/// come later.
async fn goes_on_through_a_gap(worker: &Worker, handler: &Handler, paths: &[String]) {
    let builds = builds_for(worker, handler, paths).await;
    let once_or_twice = paths.len()..=2 * paths.len();
    assert!(once_or_twice.contains(&builds), "{builds} builds");
}

async fn builds_for(worker: &Worker, handler: &Handler, paths: &[String]) -> usize {
    let before = handler.builds();
    let start = Instant::now();
    let herds: Vec<_> = paths.iter().map(|path| worker.herd(path, 10)).collect();
    for herd in herds {
        for answer in herd.answers().await {
            assert_eq!(answer.status, StatusCode::OK);
        }
    }
    assert!(start.elapsed() < SHORTLY, "{:?}", start.elapsed());
    handler.builds() - before
}

fn paths(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("/{name}/{at}")).collect()
}

/// Returns once a build of this cache is stored for others again.
async fn heals(worker: &Worker, cache: &Cache, redis: &RedisServer) {
    let healed = async {
        for at in 0.. {
            worker.get(&format!("/healed/{at}")).await;
            settled(cache).await;
            let keys: Vec<String> = redis.command(&["KEYS", "*:e1"]);
            if !keys.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    redis.command::<()>(&["FLUSHALL"]);
    tokio::time::timeout(AMPLE, healed)
        .await
        .expect("it heals by itself");
}

/// A worker that has stored something.
async fn warmed(cache: &Cache) -> (Handler, Worker) {
    let handler = Handler::open();
    let worker = handler.worker(&layer(cache), text);
    worker.get("/before").await;
    settled(cache).await;
    (handler, worker)
}

async fn connected(cache: &Cache, handler: &Handler, proxy: &FaultProxy) -> Worker {
    let worker = handler.worker(&layer(cache), text);
    worker.get("/connects").await;
    settled(cache).await;
    until(|| proxy.counts().accepted >= 3).await;
    worker
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_refuses_connections_costs_next_to_nothing() {
    let mut redis = RedisServer::start();
    let cache = hasty(redis.url());
    redis.kill();
    let handler = Handler::open();
    let worker = handler.worker(&layer(&cache), text);

    goes_on(&worker, &handler, &paths("refused", 20)).await;
    let start = Instant::now();
    for path in paths("one after the other", 100) {
        worker.get(&path.replace(' ', "-")).await;
    }
    assert!(start.elapsed() < SHORTLY, "{:?}", start.elapsed());
    let local = worker.get("/refused/0").await;
    assert!(local.outcome.contains("hit"), "{local:?}");

    redis.restart();
    heals(&worker, &cache, &redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_redis_costs_one_budget_and_then_nothing() {
    let redis = RedisServer::start();
    let cache = hasty(redis.url());
    let (handler, worker) = warmed(&cache).await;

    redis.pause();
    goes_on(&worker, &handler, &paths("frozen", 10)).await;
    goes_on(&worker, &handler, &paths("open", 10)).await;
    let start = Instant::now();
    for path in paths("later", 50) {
        worker.get(&path).await;
    }
    assert!(start.elapsed() < SHORTLY, "{:?}", start.elapsed());
    redis.resume();

    heals(&worker, &cache, &redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_at_the_start_costs_one_budget() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    proxy.freeze();
    let cache = behind(&proxy);
    let handler = Handler::open();
    let worker = handler.worker(&layer(&cache), text);

    goes_on(&worker, &handler, &paths("hole", 10)).await;
    goes_on(&worker, &handler, &paths("later", 10)).await;
    proxy.heal();

    heals(&worker, &cache, &redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_cut_or_lost_costs_its_own_request_nothing_but_the_shared_tier() {
    let faults: [fn(&FaultProxy); 4] = [
        |proxy| proxy.cut_in_next_reply(3),
        FaultProxy::lose_next_reply,
        FaultProxy::lose_next_request,
        FaultProxy::cut,
    ];
    for fault in faults {
        let redis = RedisServer::start();
        let proxy = FaultProxy::start(redis.port());
        let cache = behind(&proxy);
        let handler = Handler::open();
        let worker = connected(&cache, &handler, &proxy).await;

        fault(&proxy);
        goes_on_through_a_gap(&worker, &handler, &paths("cut", 5)).await;

        proxy.heal();
        heals(&worker, &cache, &redis).await;
    }
}

#[tokio::test]
async fn a_full_redis_is_no_outage_and_is_told_of_once() {
    let (log, _guard) = Log::start();
    let redis = RedisServer::start();
    let cache = cache(redis.url());
    let (handler, worker) = warmed(&cache).await;

    redis.config("maxmemory-policy", "noeviction");
    redis.config("maxmemory", "1");
    goes_on(&worker, &handler, &paths("full", 20)).await;
    assert!(worker.get("/full/3").await.outcome.contains("hit"));
    assert!(cache.stats().shared_failures.out_of_memory >= 20);
    redis.config("maxmemory", "0");

    heals(&worker, &cache, &redis).await;
    assert_eq!(log.lines("WARN", "takes none").len(), 1, "{}", log.text());
    assert_eq!(
        log.lines("INFO", "takes them again").len(),
        1,
        "{}",
        log.text()
    );
    assert!(log.lines("WARN", "opened").is_empty(), "{}", log.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_redis_costs_no_request_its_answer() {
    let redis = RedisServer::start();
    let cache = hasty(redis.url());
    let (handler, worker) = warmed(&cache).await;

    // Nobody listens there: it waits for its primary, and serves what it has.
    redis.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    goes_on(&worker, &handler, &paths("read-only", 20)).await;
    redis.command::<()>(&["REPLICAOF", "NO", "ONE"]);

    heals(&worker, &cache, &redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_killed_and_restarted_under_load_fails_no_request() {
    let mut redis = RedisServer::start();
    let caches = [hasty(redis.url()), hasty(redis.url())];
    let handlers = [Handler::open(), Handler::open()];
    let workers: Vec<_> = caches
        .iter()
        .zip(&handlers)
        .map(|(cache, handler)| handler.worker(&layer(cache), text))
        .collect();

    // What was built in the outage is dropped when it ends.
    rounds_under_load(&handlers, &workers, 2, |round| match round {
        10 => redis.kill(),
        20 => redis.restart(),
        _ => {}
    })
    .await;
    for handler in &handlers {
        let builds = handler.builds();
        assert!(
            builds <= 30 + 4,
            "one build per round and process: {builds}"
        );
    }

    heals(&workers[0], &caches[0], &redis).await;
}

#[tokio::test]
async fn an_outage_is_logged_once_and_nothing_secret_ever() {
    let (log, _guard) = Log::start();
    let mut redis = RedisServer::start();
    let cache = hasty(redis.url());
    let handler = Handler::open();
    let worker = handler.worker(&layer(&cache), |build, request| {
        let mut response = text(build, request);
        *response.body_mut() = "SECRET in the body".into();
        let value = http::HeaderValue::from_static("SECRET");
        response.headers_mut().insert("x-own", value);
        response
    });
    let ask = async |at: usize| {
        let mut request = get(&format!("/SECRET/{at}?token=SECRET"));
        let value = http::HeaderValue::from_static("SECRET");
        request.headers_mut().insert("x-token", value);
        worker.send(request).await
    };
    ask(0).await;
    settled(&cache).await;

    redis.kill();
    for at in 1..50 {
        ask(at).await;
    }
    redis.restart();
    heals(&worker, &cache, &redis).await;

    assert_eq!(log.lines("WARN", "shared tier").len(), 1, "{}", log.text());
    assert_eq!(log.lines("INFO", "shared tier").len(), 1, "{}", log.text());
    // One line for each connection that there was.
    assert!(log.lines("WARN", "").len() <= 5, "{}", log.text());
    assert!(!log.text().contains("SECRET"), "{}", log.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_unknown_outcome_leave_no_lease_behind() {
    let redis = RedisServer::start();
    let cache = Cache::builder()
        .redis(redis.url())
        .lease_ttl(Duration::from_secs(600))
        .build()
        .unwrap();
    let (handler, worker) = warmed(&cache).await;

    redis.pause();
    goes_on(&worker, &handler, &paths("frozen", 20)).await;
    redis.resume();

    // The claims run now, and what undoes them: some at once, some when the breaker lets them.
    let leases = || redis.command::<Vec<String>>(&["KEYS", "*:l"]).len();
    let tombstones = || redis.command::<Vec<String>>(&["KEYS", "*:x:*"]).len();
    until(|| tombstones() > 0).await;
    until(|| leases() == 0).await;
}

#[tokio::test]
async fn where_the_channel_is_refused_every_hit_asks_redis() {
    let (log, _guard) = Log::start();
    let redis = RedisServer::start();
    redis.command::<()>(&[
        "ACL",
        "SETUSER",
        "worker",
        "on",
        ">pw",
        "~*",
        "+@all",
        "resetchannels",
    ]);
    let build = || {
        let client = redis.client_as("worker", "pw");
        let budget = Duration::from_secs(10);
        let builder = Cache::builder().redis_client(client).redis_budget(budget);
        builder.build().unwrap()
    };
    let (one, other) = (build(), build());
    let handler = Handler::open();
    let first = handler.worker(&layer(&one), text);
    let second = handler.worker(&layer(&other), text);
    first.get("/report").await;
    settled(&one).await;
    until(|| log.lines("WARN", "channel is refused").len() == 1).await;

    second.get("/report").await;
    assert_eq!(first.get("/report").await.text(), "build 1");
    one.purge(&Uri::from_static("http://shop.example/report"))
        .await
        .unwrap();

    // No event tells of it, and nobody serves it any more.
    assert_eq!(second.get("/report").await.text(), "build 2");
    settled(&other).await;
    assert_eq!(first.get("/report").await.text(), "build 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_missed_events_local_entries_are_dropped_and_waiters_still_wake() {
    let redis = RedisServer::start();
    let (one, other) = (cache(redis.url()), cache(redis.url()));
    let handler = Handler::open();
    let first = handler.worker(&layer(&one), text);
    let second = handler.worker(&layer(&other), text);
    first.get("/report").await;
    settled(&one).await;
    second.get("/report").await;
    until(|| redis.clients("pubsub") == 2).await;
    let held = Handler::held();
    let slow = held.worker(&layer(&one), text);
    let waiting = held.worker(&layer(&other), text);
    let build = slow.herd("/slow", 1);
    held.has_begun(1).await;
    let waiters = waiting.herd("/slow", 5);
    worker::waiting(std::slice::from_ref(&other), 5).await;

    redis.command::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    redis.command::<()>(&["FLUSHALL"]);
    until(|| redis.clients("pubsub") == 2).await;
    held.let_go();

    let answers = build.and(waiters).answers().await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    let dropped = async { while second.get("/report").await.text() == "build 1" {} };
    tokio::time::timeout(AMPLE, dropped)
        .await
        .expect("it is asked for anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_local_entry_is_served_to_its_end_while_redis_is_down() {
    let mut redis = RedisServer::start();
    let cache = hasty(redis.url());
    let handler = Handler::open();
    let worker = handler.worker(&BufferLayer::new(cache.clone()).ttl(AMPLE * 10), text);
    worker.get("/report").await;
    settled(&cache).await;

    redis.kill();
    let answers: Vec<Answer> = worker.herd("/report", 50).answers().await;
    assert!(answers.iter().all(|answer| answer.text() == "build 1"));
    for _ in 0..20 {
        assert_eq!(worker.get("/report").await.text(), "build 1");
    }
    assert_eq!(handler.builds(), 1);
}
