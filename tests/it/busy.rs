//! While another process builds: how long the others wait, and what sets them free.

use std::time::Duration;

use tower_stampede::Cache;

use crate::support::{
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{
        Handler, Incoming, Outgoing, Worker, cache, get, layer, text, uncacheable, until, waiting,
    },
};

/// A worker that has asked Redis before.
async fn warm(handler: &Handler, cache: &Cache, path: &str) -> Worker {
    let worker = handler.worker(&layer(cache), text);
    handler.let_go_one();
    worker.get(path).await;
    worker
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
    let redis = RedisServer::start();
    let kinds: [(&str, fn(usize, &Incoming) -> Outgoing); 3] = [
        ("/unstated", stating_nothing),
        ("/401", not_allowed),
        ("/no-store", uncacheable),
    ];
    for (path, respond) in kinds {
        let handler = Handler::held();
        let caches = [0; 4].map(|_| cache(redis.url()));
        let workers = caches
            .each_ref()
            .map(|cache| handler.worker(&layer(cache), respond));

        let herds = workers.each_ref().map(|worker| worker.herd(path, 1));
        waiting(&caches, 4).await;
        handler.has_begun(1).await;
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
