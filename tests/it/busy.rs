//! While another process builds: how long the others wait, and what sets them free.

use std::time::Duration;

use tower_stampede::{Cache, CacheBuilder, OnDisconnect};

use crate::support::{
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{
        AMPLE, Handler, Incoming, Outgoing, Worker, builder, cache, failing, get, layer, leases,
        settled, text, uncacheable, until, waiting,
    },
};

/// A worker that has asked Redis before.
async fn warm(handler: &Handler, cache: &Cache, path: &str) -> Worker {
    let worker = handler.worker(&layer(cache), text);
    handler.let_go_one();
    worker.get(path).await;
    worker
}

/// Leases that are not renewed while a test lasts.
fn long_leases(redis: &RedisServer) -> CacheBuilder {
    builder(redis.url()).lease_ttl(10 * AMPLE)
}

/// Returns once so many processes, none of which renews a lease, have claimed for the first time: who
/// claims only when the first build is over has waited for nobody, and leads the next one.
async fn have_claimed(redis: &RedisServer, processes: usize) {
    until(|| redis.clients_at("evalsha") >= processes).await;
}

fn stating_nothing(build: usize, request: &Incoming) -> Outgoing {
    let mut response = text(build, request);
    *response.status_mut() = http::StatusCode::ACCEPTED;
    response
}

fn not_allowed(build: usize, request: &Incoming) -> Outgoing {
    let mut response = text(build, request);
    *response.status_mut() = http::StatusCode::UNAUTHORIZED;
    response
}

#[tokio::test]
async fn processes_that_waited_for_what_is_not_shared_between_them_build_together_and_not_in_turn()
{
    let kinds: [(&str, fn(usize, &Incoming) -> Outgoing); 3] = [
        ("/unstated", stating_nothing),
        ("/401", not_allowed),
        ("/no-store", uncacheable),
    ];
    for (path, respond) in kinds {
        let (redis, handler) = (RedisServer::start(), Handler::held());
        let caches = [0; 4].map(|_| long_leases(&redis).build().unwrap());
        let workers = handler.workers(&caches, respond);

        let herds = workers.each_ref().map(|worker| worker.herd(path, 1));
        handler.has_begun(1).await;
        have_claimed(&redis, 4).await;
        handler.let_go_one();
        // Held as they are, none of them can have waited for another one.
        handler.has_begun(4).await;
        handler.let_go();

        for herd in herds {
            assert!(herd.answers().await[0].text().starts_with("build "));
        }
        assert_eq!(handler.builds(), 4, "{path}");
    }
}

#[tokio::test]
async fn where_nothing_is_remembered_those_who_waited_elsewhere_are_told_all_the_same() {
    let kinds: [(&str, fn(usize, &Incoming) -> Outgoing, usize); 2] =
        [("/no-store", uncacheable, 4), ("/failing", failing, 1)];
    for (path, respond, builds) in kinds {
        let (redis, handler) = (RedisServer::start(), Handler::held());
        let caches = [0; 4].map(|_| {
            let builder = long_leases(&redis).failure_memo(Duration::ZERO);
            builder.hit_for_miss(Duration::ZERO).build().unwrap()
        });
        let workers = handler.workers(&caches, respond);

        let herds = workers.each_ref().map(|worker| worker.herd(path, 1));
        handler.has_begun(1).await;
        have_claimed(&redis, 4).await;
        handler.let_go_one();
        handler.has_begun(builds).await;
        handler.let_go();
        for herd in herds {
            herd.answers().await;
        }

        assert_eq!(handler.builds(), builds, "{path}");
    }
}

#[tokio::test]
async fn a_slow_redis_does_not_use_up_the_patience_for_the_build_of_another_process() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let budget = Duration::from_secs(1);
    let slow = Cache::builder()
        .redis(proxy.url())
        .redis_budget(budget)
        .build()
        .unwrap();
    let quick = cache(redis.url());
    let handler = Handler::held();
    let near = warm(&handler, &quick, "/near").await;
    let far = warm(&handler, &slow, "/far").await;
    proxy.delay_replies(budget.mul_f64(0.3));

    let building = near.herd("/report", 1);
    handler.has_begun(3).await;
    redis.reset_counts();
    let waits = far.herd("/report", 5);
    // Together they take longer than the budget for one request.
    until(|| redis.count("evalsha") >= 5).await;
    assert_eq!(handler.builds(), 3);
    handler.let_go();
    let answers = waits.and(building).answers().await;

    assert!(answers.iter().all(|answer| answer.text() == "build 3"));
    assert_eq!(far.send(get("/report")).await.text(), "build 3");
}

/// A worker whose only client leaves while it builds under a lease, and another one that waits.
async fn left_alone(
    choice: OnDisconnect,
    handler: &Handler,
    redis: &RedisServer,
) -> (Cache, Worker) {
    let caches = [0; 2].map(|_| cache(redis.url()));
    let alone = handler.worker(&layer(&caches[0]).on_disconnect(choice), text);
    let other = handler.worker(&layer(&caches[1]), text);
    let client = tokio::spawn(async move { alone.get("/report").await });
    handler.has_begun(1).await;
    client.abort();
    waiting(&caches, 0).await;
    let [cache, _] = caches;
    (cache, other)
}

#[tokio::test]
async fn a_build_that_its_client_has_left_is_finished_for_the_other_processes() {
    let (redis, handler) = (RedisServer::start(), Handler::held());
    let (cache, other) = left_alone(OnDisconnect::Finish, &handler, &redis).await;

    let waits = other.herd("/report", 3);
    handler.let_go();
    let answers = waits.answers().await;

    assert!(answers.iter().all(|answer| answer.text() == "build 1"));
    settled(&cache).await;
    until(|| leases(&redis).is_empty()).await;
}

#[tokio::test]
async fn a_build_that_its_last_client_has_cancelled_gives_its_lease_to_the_other_processes() {
    let (redis, handler) = (RedisServer::start(), Handler::held());
    let (cache, other) = left_alone(OnDisconnect::Cancel, &handler, &redis).await;
    settled(&cache).await;

    let waits = other.herd("/report", 3);
    handler.has_begun(2).await;
    handler.let_go();

    for answer in waits.answers().await {
        assert_eq!(answer.text(), "build 2");
    }
    until(|| leases(&redis).is_empty()).await;
}

#[tokio::test]
async fn nobody_waits_for_what_is_built_to_reach_a_redis_that_stands_still() {
    let (redis, handler) = (RedisServer::start(), Handler::held());
    let cache = cache(redis.url());
    let worker = warm(&handler, &cache, "/warm").await;
    settled(&cache).await;

    let herd = worker.herd("/report", 10);
    handler.has_begun(2).await;
    waiting(std::slice::from_ref(&cache), 10).await;
    redis.pause();
    handler.let_go();
    let answers = herd.answers().await;

    // The fill is still under way.
    assert_eq!(cache.stats().flights, 1);
    assert!(answers.iter().all(|answer| answer.text() == "build 2"));
    redis.resume();
}

#[tokio::test]
async fn without_redis_every_process_builds_once_whatever_becomes_of_the_build() {
    let mut redis = RedisServer::start();
    redis.kill();
    let caches = [0; 4].map(|_| cache(redis.url()));
    let kinds: [(&str, fn(usize, &Incoming) -> Outgoing); 3] = [
        ("/stored", text),
        ("/failing", failing),
        ("/unstated", stating_nothing),
    ];
    for (path, respond) in kinds {
        let handler = Handler::held();
        let workers = handler.workers(&caches, respond);

        let herds = workers.each_ref().map(|worker| worker.herd(path, 50));
        handler.has_begun(4).await;
        waiting(&caches, 200).await;
        handler.let_go();
        for herd in herds {
            assert_eq!(herd.answers().await.len(), 50);
        }

        assert_eq!(handler.builds(), 4, "{path}");
    }
}
