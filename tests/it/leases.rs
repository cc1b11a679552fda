//! Leases between workers: renewed, lost, stolen, left behind, and the extra one.

use std::{
    env,
    process::{Child, Command, Stdio},
    time::Duration,
};

use http::{HeaderValue, StatusCode};
use tokio::time::{Instant, sleep};
use tower_stampede::{Cache, Fallback};

use crate::support::{
    log::Log,
    redis::RedisServer,
    worker::{
        AMPLE, Handler, Incoming, Outgoing, Worker, builder, cache, layer, leases, settled, text,
        until, waiting,
    },
};

const SHORT: Duration = Duration::from_millis(300);

/// Long enough for a process on a machine under load to renew it in time.
const SURE: Duration = Duration::from_millis(1500);

fn with_short_leases(url: String) -> Cache {
    builder(url).lease_ttl(SHORT).build().unwrap()
}

/// The name of the one lease, once there is one.
async fn lease(redis: &RedisServer) -> String {
    until(|| leases(redis).len() == 1).await;
    leases(redis).remove(0)
}

/// What another process's lease on a key reads while it is held.
fn foreign(redis: &RedisServer) -> String {
    let (seconds, micros): (u64, u64) = redis.command(&["TIME"]);
    let token = "another process, another process";
    format!(
        "#{}:{token}:{:016}:",
        token.len(),
        seconds * 1_000_000 + micros
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_renewed_as_long_as_its_build_runs() {
    let redis = RedisServer::start();
    let caches = [
        with_short_leases(redis.url()),
        with_short_leases(redis.url()),
    ];
    let handler = Handler::held();
    let workers = handler.workers(&caches, text);
    let first = workers[0].herd("/report", 1);
    handler.has_begun(1).await;
    let second = workers[1].herd("/report", 10);

    sleep(4 * SHORT).await;
    assert_eq!(handler.builds(), 1);
    handler.let_go();

    for answer in first.and(second).answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    assert_eq!(handler.builds(), 1);
    until(|| leases(&redis).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_never_stores_and_never_fails_its_request() {
    for thief in [None, Some("somebody else's")] {
        let redis = RedisServer::start();
        let cache = with_short_leases(redis.url());
        let handler = Handler::held();
        let (_, herd) = handler.under_way(&cache, text, 5).await;
        let lease = lease(&redis).await;

        match thief {
            None => redis.command::<()>(&["DEL", &lease]),
            Some(thief) => redis.command::<()>(&["SET", &lease, thief, "PX", "600000"]),
        }
        handler.let_go();

        for answer in herd.answers().await {
            assert_eq!((answer.status, answer.text()), (StatusCode::OK, "build 1"));
        }
        settled(&cache).await;
        let stored: Vec<String> = redis.command(&["KEYS", "*:e1"]);
        assert!(stored.is_empty(), "{stored:?}");
        let left: Option<String> = redis.command(&["GET", &lease]);
        assert_eq!(left.as_deref(), thief, "nobody else's lease is touched");
        let stats = cache.stats();
        assert_eq!(stats.entries, 0);
        assert_eq!(stats.lost_leases + stats.fenced_fills, 1, "{stats:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_whose_lease_is_lost_takes_no_newcomers() {
    let redis = RedisServer::start();
    let cache = with_short_leases(redis.url());
    let handler = Handler::held();
    let (worker, herd) = handler.under_way(&cache, text, 5).await;
    let lease = lease(&redis).await;

    redis.command::<()>(&["DEL", &lease]);
    let newcomer = async {
        // Until the loss is noticed, whoever comes joins the first build.
        while handler.builds() == 1 {
            drop(worker.herd("/report", 1));
            sleep(SHORT / 10).await;
        }
    };
    tokio::time::timeout(AMPLE, newcomer)
        .await
        .expect("a second build begins");
    handler.let_go();

    let answers = herd.answers().await;
    assert!(answers.iter().all(|answer| answer.text() == "build 1"));
    let said = |words: &str| {
        answers
            .iter()
            .filter(|one| one.outcome.contains(words))
            .count()
    };
    assert_eq!((said("detail=lease-lost"), said("stored")), (1, 0));
    settled(&cache).await;
    assert_eq!(worker.get("/report").await.text(), "build 2");
}

#[tokio::test]
async fn a_lease_that_is_lost_is_told_and_counted_once() {
    let (log, _guard) = Log::start();
    let redis = RedisServer::start();
    let cache = with_short_leases(redis.url());
    let handler = Handler::held();
    let (_, herd) = handler.under_way(&cache, text, 5).await;
    let lease = lease(&redis).await;

    redis.command::<()>(&["DEL", &lease]);
    until(|| cache.stats().lost_leases == 1).await;
    sleep(2 * SHORT).await;
    handler.let_go();

    assert_eq!(herd.answers().await.len(), 5);
    settled(&cache).await;
    assert_eq!(
        (cache.stats().lost_leases, cache.stats().fenced_fills),
        (1, 0)
    );
    let told = log.lines("WARN", "a lease was lost");
    assert_eq!(told.len(), 1, "{}", log.text());
    let digest = lease.split(['{', '}']).nth(1).unwrap();
    assert!(told[0].contains(digest) && !log.text().contains("report"));
}

/// The other half of the next test, in a process of its own.
#[tokio::test]
#[ignore = "a worker that is killed in the middle of its build"]
async fn a_worker_that_never_finishes() {
    let url = env::var("REDIS_OF_WORKER").expect("the test gives it");
    let cache = builder(url).lease_ttl(SURE).build().unwrap();
    let worker = Handler::held().worker(&layer(&cache), text);
    worker.get("/report").await;
}

struct Process(Child);

impl Process {
    fn start(redis: &RedisServer) -> Self {
        let name = "leases::a_worker_that_never_finishes";
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--nocapture"])
            .env("REDIS_OF_WORKER", redis.url())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holder_is_followed_by_exactly_one_once_its_lease_is_over() {
    let redis = RedisServer::start();
    let caches = [0; 3].map(|_| builder(redis.url()).lease_ttl(SURE).build().unwrap());
    let handler = Handler::open();
    let workers = handler.workers(&caches, text);
    let process = Process::start(&redis);
    lease(&redis).await;
    let herds = workers.each_ref().map(|worker| worker.herd("/report", 20));
    waiting(&caches, 60).await;
    sleep(SURE + SHORT).await;
    assert_eq!(handler.builds(), 0, "the holder is alive");

    let killed = Instant::now();
    drop(process);

    for herd in herds {
        for answer in herd.answers().await {
            assert_eq!((answer.status, answer.text()), (StatusCode::OK, "build 1"));
        }
    }
    assert_eq!(handler.builds(), 1);
    assert!(
        killed.elapsed() < Duration::from_secs(5),
        "{:?}",
        killed.elapsed()
    );
}

fn revalidated(build: usize, request: &Incoming) -> Outgoing {
    let mut response = text(build, request);
    let value = HeaderValue::from_static("max-age=10, stale-while-revalidate=60");
    response.headers_mut().insert("cache-control", value);
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stale_within_its_window_answers_at_once_while_another_process_builds() {
    let redis = RedisServer::start();
    let one = cache(redis.url());
    let handler = Handler::open();
    handler
        .worker(&layer(&one), revalidated)
        .get("/report")
        .await;
    settled(&one).await;
    let entry: Vec<String> = redis.command(&["KEYS", "*:e1"]);
    // Less than the window is left, so that it is stale, as if ten seconds had passed.
    redis.command::<()>(&["PEXPIRE", &entry[0], "55000"]);
    let lease = format!("{}l", entry[0].strip_suffix("e1").unwrap());
    redis.command::<()>(&["SET", &lease, &foreign(&redis), "PX", "600000"]);
    let other = cache(redis.url());
    let worker = handler.worker(&layer(&other), revalidated);

    for answer in worker.herd("/report", 10).answers().await {
        assert_eq!(answer.text(), "build 1");
        assert!(answer.age.unwrap() >= 10, "{answer:?}");
    }

    assert_eq!(handler.builds(), 1);
}

/// Workers with little patience, and a build that somebody else never finishes.
async fn impatient<const N: usize>(
    redis: &RedisServer,
    handler: &Handler,
    extra_builds: u8,
) -> ([Cache; N], [Worker; N]) {
    let caches = std::array::from_fn(|_| cache(redis.url()));
    let workers = caches.each_ref().map(|cache| {
        let impatient = layer(cache)
            .wait_timeout(SHORT)
            .fallback(Fallback::Build)
            .extra_builds(extra_builds);
        handler.worker(&impatient, text)
    });
    let probe = Handler::held();
    let holder = cache(redis.url());
    let stuck = probe.worker(&layer(&holder), text).herd("/report", 1);
    probe.has_begun(1).await;
    drop(stuck);
    // Its renewals end with it, and the lease stays.
    let lease = lease(redis).await;
    redis.command::<()>(&["SET", &lease, &foreign(redis), "PX", "600000"]);
    (caches, workers)
}

#[tokio::test(flavor = "multi_thread")]
async fn those_whose_wait_timed_out_share_one_extra_build_in_the_whole_fleet() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let (caches, workers) = impatient::<2>(&redis, &handler, 1).await;

    let first = workers[0].herd("/report", 10);
    handler.has_begun(1).await;
    let second = workers[1].herd("/report", 10);
    waiting(&caches, 20).await;
    sleep(3 * SHORT).await;
    assert_eq!(handler.builds(), 1);
    handler.let_go();

    for answer in first.and(second).answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    settled(&caches[0]).await;
    let cold = handler.worker(&layer(&cache(redis.url())), text);
    assert_eq!(
        cold.get("/report").await.text(),
        "build 1",
        "the extra build is stored"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_may_allow_the_fleet_more_extra_builds_one_in_a_process() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let (caches, workers) = impatient::<4>(&redis, &handler, 3).await;

    let herds = workers.each_ref().map(|worker| worker.herd("/report", 5));
    waiting(&caches, 20).await;
    handler.has_begun(3).await;
    sleep(3 * SHORT).await;
    assert_eq!(handler.builds(), 3);
    handler.let_go();

    for herd in herds {
        for answer in herd.answers().await {
            assert!(answer.text().starts_with("build "), "{answer:?}");
        }
    }
    assert_eq!(handler.builds(), 3);
}
