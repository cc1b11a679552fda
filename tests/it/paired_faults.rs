//! A Memcached with a Redis lock, and one of them fails: the requests go on.

use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::time::Instant;
use tower_stampede::{
    Cache, LinkState,
    lock::LockManager,
    store::{BoxFuture, Error, Found, MemcachedStore, Read, Store, Write, Written},
};

use crate::support::{
    log::Log,
    memcached::MemcachedServer,
    pairs::Pair,
    redis::RedisServer,
    worker::{
        AMPLE, Handler, Worker, failing, layer, rounds_under_load, settled, text, until, waiting,
    },
};

/// What one request may be held up, on a machine under load.
const SHORTLY: Duration = Duration::from_secs(3);

/// With the budget and the timeouts that people have by default.
fn hasty(memcached: &MemcachedServer, redis: &RedisServer) -> Cache {
    let store = MemcachedStore::new(&memcached.address()).unwrap();
    let locks = LockManager::redis(&redis.url()).unwrap();
    Cache::builder().store(store, locks).build().unwrap()
}

fn paths(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("/{name}/{at}")).collect()
}

/// Ten requests at the same time for each of `paths`, each answered by one build of its path.
async fn goes_on(worker: &Worker, handler: &Handler, paths: &[String]) {
    let before = handler.builds();
    let start = Instant::now();
    let herds: Vec<_> = paths.iter().map(|path| worker.herd(path, 10)).collect();
    for herd in herds {
        for answer in herd.answers().await {
            assert_eq!(answer.status, StatusCode::OK);
        }
    }
    assert!(start.elapsed() < SHORTLY, "{:?}", start.elapsed());
    assert_eq!(handler.builds() - before, paths.len());
}

/// Returns once a build of this cache is stored for others again.
async fn heals(worker: &Worker, cache: &Cache, memcached: &MemcachedServer) {
    let healed = async {
        for at in 0.. {
            worker.get(&format!("/healed/{at}")).await;
            settled(cache).await;
            if !memcached.keys_with(":e1").is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    for key in memcached.keys_with(":e1") {
        memcached.delete(&key);
    }
    tokio::time::timeout(AMPLE, healed)
        .await
        .expect("it heals by itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_memcached_costs_one_budget_and_then_nothing_and_heals() {
    let (memcached, redis) = (MemcachedServer::start(), RedisServer::start());
    let cache = hasty(&memcached, &redis);
    let handler = Handler::open();
    let worker = handler.worker(&layer(&cache), text);
    worker.get("/before").await;
    settled(&cache).await;

    memcached.pause();
    goes_on(&worker, &handler, &paths("frozen", 10)).await;
    goes_on(&worker, &handler, &paths("open", 10)).await;
    let start = Instant::now();
    for path in paths("later", 50) {
        worker.get(&path).await;
    }
    assert!(start.elapsed() < SHORTLY, "{:?}", start.elapsed());
    assert!(worker.get("/later/3").await.outcome.contains("hit"));
    memcached.resume();

    heals(&worker, &cache, &memcached).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memcached_that_is_killed_and_restarted_under_load_fails_no_request() {
    let (mut memcached, redis) = (MemcachedServer::start(), RedisServer::start());
    let caches = [hasty(&memcached, &redis), hasty(&memcached, &redis)];
    let handlers = [Handler::open(), Handler::open()];
    let workers: Vec<_> = caches
        .iter()
        .zip(&handlers)
        .map(|(cache, handler)| handler.worker(&layer(cache), text))
        .collect();

    rounds_under_load(&handlers, &workers, 1, |round| match round {
        10 => memcached.kill(),
        20 => memcached.restart(),
        _ => {}
    })
    .await;

    heals(&workers[0], &caches[0], &memcached).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_locks_entries_are_still_found_and_stored_and_every_process_builds_once() {
    let (memcached, mut redis) = (MemcachedServer::start(), RedisServer::start());
    let caches = [hasty(&memcached, &redis), hasty(&memcached, &redis)];
    let handlers = [Handler::open(), Handler::open()];
    let workers: Vec<_> = caches
        .iter()
        .zip(&handlers)
        .map(|(cache, handler)| handler.worker(&layer(cache), text))
        .collect();
    for path in paths("before", 20) {
        workers[0].get(&path).await;
    }
    settled(&caches[0]).await;

    redis.kill();
    goes_on(&workers[0], &handlers[0], &paths("dead", 20)).await;
    settled(&caches[0]).await;
    for path in paths("before", 20).into_iter().chain(paths("dead", 20)) {
        let answer = workers[1].get(&path).await;
        assert!(answer.outcome.contains("hit"), "{answer:?}");
    }
    goes_on(&workers[1], &handlers[1], &paths("also-dead", 20)).await;
    let health = caches[1].health();
    let state = |name| {
        let link = health.links.iter().find(|link| link.name == name);
        link.unwrap().state
    };
    assert_eq!(state("store"), LinkState::Connected);
    assert_eq!(state("locks"), LinkState::Broken);

    redis.restart();
    heals(&workers[1], &caches[1], &memcached).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_stand_still_cost_half_a_budget_and_then_nothing_and_leave_no_lock() {
    let (memcached, redis) = (MemcachedServer::start(), RedisServer::start());
    let cache = hasty(&memcached, &redis);
    let handler = Handler::open();
    let worker = handler.worker(&layer(&cache), text);
    worker.get("/before").await;
    settled(&cache).await;

    redis.pause();
    goes_on(&worker, &handler, &paths("frozen", 10)).await;
    goes_on(&worker, &handler, &paths("open", 10)).await;
    assert!(worker.get("/before").await.outcome.contains("hit"));
    redis.resume();

    heals(&worker, &cache, &memcached).await;
    let locks =
        || redis.command::<Vec<String>>(&["KEYS", "buffer:lock:????????????????????????????????"]);
    until(|| locks().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_dies_while_a_build_runs_costs_its_waiters_nothing() {
    let (memcached, mut redis) = (MemcachedServer::start(), RedisServer::start());
    let caches = [hasty(&memcached, &redis), hasty(&memcached, &redis)];
    let handler = Handler::held();
    let workers = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), text));
    let herd = workers[0].herd("/report", 10);
    handler.has_begun(1).await;
    waiting(&caches, 10).await;

    redis.kill();
    handler.let_go();

    for answer in herd.answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    settled(&caches[0]).await;
    // It was stored all the same: nobody else could have had the lock.
    assert_eq!(workers[1].get("/report").await.text(), "build 1");
}

#[tokio::test]
async fn what_the_store_does_not_take_is_delivered_told_once_and_kept_here() {
    let (log, _guard) = Log::start();
    let (memcached, redis) = (MemcachedServer::start(), RedisServer::start());
    let caches = [hasty(&memcached, &redis), hasty(&memcached, &redis)];
    let handler = Handler::open();
    let large = |_: usize, _: &_| Response::new(Full::from(vec![b'x'; 2_000_000]));
    let workers = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), large));

    for path in ["/one", "/two"] {
        for worker in &workers {
            assert_eq!(worker.get(path).await.body.len(), 2_000_000);
        }
        for cache in &caches {
            settled(cache).await;
        }
    }

    assert_eq!(handler.builds(), 4, "each process has its own");
    let told = log.lines("WARN", "larger than the store takes");
    assert_eq!(told.len(), 2, "once in each process: {}", log.text());
    assert!(log.lines("WARN", "opened").is_empty(), "{}", log.text());
    let locks: Vec<String> =
        redis.command(&["KEYS", "buffer:lock:????????????????????????????????"]);
    assert!(locks.is_empty(), "{locks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_waited_for_what_is_too_large_build_together_and_not_in_turn() {
    let pair = Pair::Servers(MemcachedServer::start(), RedisServer::start());
    let large = |_: usize, _: &_| Response::new(Full::from(vec![b'x'; 2_000_000]));
    let handler = Handler::held();
    let caches = [0; 4].map(|_| pair.cache());
    let workers = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), large));
    let herds = workers.each_ref().map(|worker| worker.herd("/large", 1));
    handler.has_begun(1).await;
    waiting(&caches, 4).await;
    pair.asked(&caches).await;

    handler.let_go_one();
    // Held as they are, none of them can have waited for another one.
    handler.has_begun(4).await;
    handler.let_go();

    for herd in herds {
        herd.answers().await;
    }
    assert_eq!(handler.builds(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_lies_under_a_live_key_is_a_miss_and_overwritten() {
    let (memcached, redis) = (MemcachedServer::start(), RedisServer::start());
    let handler = Handler::open();
    let first = hasty(&memcached, &redis);
    let worker = handler.worker(&layer(&first), text);
    worker.get("/report").await;
    settled(&first).await;
    let entry = memcached.keys_with(":e1").remove(0);
    let value = memcached.get(&entry).unwrap();
    let mut garbage = vec![
        Vec::new(),
        b"hello".to_vec(),
        b"TSP1".to_vec(),
        vec![0; 200],
    ];
    for at in [0, 3, 5, 60, 75, 90, 110, 150, 180, value.len() / 2] {
        let mut other = value.clone();
        other[at] ^= 0x55;
        garbage.push(other);
        garbage.push(value[..at].to_vec());
    }

    for (number, garbage) in garbage.into_iter().enumerate() {
        let before = handler.builds();
        memcached.set(&entry, &garbage);
        let cold = hasty(&memcached, &redis);
        let answer = handler.worker(&layer(&cold), text).get("/report").await;
        settled(&cold).await;

        assert_eq!(answer.status, StatusCode::OK, "{number}");
        // What was changed in the response itself nobody can tell.
        if answer.text() == format!("build {}", before + 1) {
            let healed = hasty(&memcached, &redis);
            let reader = handler.worker(&layer(&healed), text);
            assert_eq!(reader.get("/report").await.body, answer.body, "{number}");
            assert_eq!(handler.builds(), before + 1, "{number}: it was overwritten");
        }
    }
    assert!(handler.builds() > 15, "{}", handler.builds());
}

#[tokio::test]
async fn an_outage_is_logged_once_for_each_part() {
    let (log, _guard) = Log::start();
    let (mut memcached, mut redis) = (MemcachedServer::start(), RedisServer::start());
    let cache = hasty(&memcached, &redis);
    let worker = Handler::open().worker(&layer(&cache), text);
    worker.get("/SECRET/before?token=SECRET").await;
    settled(&cache).await;

    redis.kill();
    for path in paths("SECRET", 20) {
        worker.get(&path).await;
    }
    memcached.kill();
    for path in paths("SECRET", 50) {
        worker.get(&path).await;
    }
    memcached.restart();
    redis.restart();
    heals(&worker, &cache, &memcached).await;
    let all_well = || {
        let health = cache.health();
        health
            .links
            .iter()
            .all(|link| link.state == LinkState::Connected)
    };
    for path in paths("well", 10_000) {
        worker.get(&path).await;
        if all_well() {
            break;
        }
    }

    for part in ["store", "locks"] {
        let part = format!("part=\"{part}\"");
        let of = |level| log.lines(level, &part).len();
        assert_eq!((of("WARN"), of("INFO")), (1, 1), "{part}: {}", log.text());
    }
    assert!(!log.text().contains("SECRET"), "{}", log.text());
}

/// A store of somebody's own that never answers.
#[derive(Debug)]
struct Silent;

impl Store for Silent {
    fn get<'a>(&'a self, _: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(std::future::pending())
    }

    fn put<'a>(&'a self, _: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
        Box::pin(std::future::pending())
    }

    fn remove<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(std::future::pending())
    }
}

/// A store of somebody's own that answers something else.
#[derive(Debug)]
struct Confused;

impl Store for Confused {
    fn get<'a>(&'a self, _: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(async { Ok(vec![None]) })
    }

    fn put<'a>(&'a self, _: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
        Box::pin(async { Ok(Written::Refused) })
    }

    fn remove<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Err(Error::refused("no")) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_do_what_a_store_does_costs_no_request_its_answer() {
    let locks = LockManager::in_memory;
    let silent = Cache::builder().store(Silent, locks()).build().unwrap();
    let confused = Cache::builder().store(Confused, locks()).build().unwrap();
    for cache in [silent, confused] {
        let handler = Handler::open();
        let worker = handler.worker(&layer(&cache), text);

        goes_on(&worker, &handler, &paths("odd", 10)).await;
        let broken = Handler::open().worker(&layer(&cache), failing);
        let answers = broken.herd("/failing", 10).answers().await;

        assert!(answers.iter().all(|answer| answer.status == 502));
        cache
            .purge(tower_stampede::Target::all())
            .await
            .map(drop)
            .unwrap_or_default();
    }
}
