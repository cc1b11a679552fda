//! Purges and refreshes between processes that are really several.

use std::{convert::Infallible, env, time::Duration};

use http::{HeaderValue, Method};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    time::{Instant, sleep},
};
use tower_stampede::{BufferLayer, Cache, CacheTags, Fallback, Purged, Target};

use crate::support::{
    process::{BUILDS, HELD, MARK, Process},
    redis::RedisServer,
    worker::{AMPLE, Incoming, Outgoing, Worker, builder, get, layer, until, uri},
};

/// The other half of all these tests, in processes of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a worker that does what it is told"]
async fn a_worker_that_does_what_it_is_told() {
    let url = env::var("REDIS_OF_WORKER").expect("the test gives it");
    let cache = builder(url.as_str())
        .acknowledge_within(Duration::from_secs(2))
        .build()
        .unwrap();
    // One cache, and three policies before it.
    let impatient = layer(&cache)
        .wait_timeout(Duration::from_millis(300))
        .fallback(Fallback::Build);
    let worker = Site {
        plain: serving(&layer(&cache), &url).await,
        eager: serving(&layer(&cache).refresh_after(0.0), &url).await,
        impatient: serving(&impatient, &url).await,
        cache,
    };
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = orders.next_line().await {
        let worker = worker.clone();
        tokio::spawn(async move {
            let (number, order) = line.split_once(' ').unwrap();
            let answer = worker.obey(order).await;
            println!("{MARK}{number} {answer}");
        });
    }
}

#[derive(Clone)]
struct Site {
    cache: Cache,
    plain: Worker,
    eager: Worker,
    impatient: Worker,
}

/// Its handler numbers the builds of the whole fleet, and is held while the test says so.
async fn serving(layer: &BufferLayer, url: &str) -> Worker {
    let redis = redis::Client::open(url).unwrap();
    let redis = redis.get_multiplexed_async_connection().await.unwrap();
    Worker::behind(
        layer,
        tower::service_fn(move |request: Incoming| {
            let mut redis = redis.clone();
            async move {
                if request.method() != Method::GET {
                    return Ok::<_, Infallible>(Outgoing::default());
                }
                let build: u64 = ask(&mut redis, &["INCR", BUILDS]).await;
                while ask::<u64>(&mut redis, &["EXISTS", HELD]).await == 1 {
                    sleep(Duration::from_millis(5)).await;
                }
                let mut response = Outgoing::new(format!("build {build}").into());
                let directives = match request.uri().path() {
                    "/brief" => "max-age=1, stale-while-revalidate=600",
                    _ => "max-age=600, stale-while-revalidate=600",
                };
                let directives = HeaderValue::from_static(directives);
                response.headers_mut().insert("cache-control", directives);
                response.extensions_mut().insert(CacheTags::new(["t"]));
                Ok(response)
            }
        }),
    )
}

async fn ask<T: redis::FromRedisValue>(
    redis: &mut redis::aio::MultiplexedConnection,
    words: &[&str],
) -> T {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query_async(redis).await.unwrap()
}

impl Site {
    async fn obey(&self, order: &str) -> String {
        let (verb, object) = order.split_once(' ').unwrap_or((order, ""));
        let told = match verb {
            "get" => return read(&self.plain, object).await,
            "get-eagerly" => return read(&self.eager, object).await,
            "get-impatiently" => return read(&self.impatient, object).await,
            "post" => {
                let mut request = get(object);
                *request.method_mut() = Method::POST;
                return self.plain.send(request).await.status.to_string();
            }
            "waiters" => return self.cache.stats().waiters.to_string(),
            "purge" => self.cache.purge(&uri(object)).await,
            "purge-tag" => self.cache.purge_tag(object).await,
            "purge-all" => self.cache.purge(Target::all()).await,
            "soft-purge-tag" => self.cache.soft_purge(Target::tag(object)).await,
            order => panic!("{order}?"),
        };
        let Purged {
            acknowledged,
            processes,
            ..
        } = told.unwrap();
        format!("{acknowledged} of {processes:?}")
    }
}

async fn read(worker: &Worker, path: &str) -> String {
    let answer = worker.get(path).await;
    format!("{} | {}", answer.text(), answer.outcome)
}

struct Fleet {
    redis: RedisServer,
    workers: Vec<Process>,
}

impl Fleet {
    fn start(workers: usize) -> Self {
        let redis = RedisServer::start();
        let test = "workers::a_worker_that_does_what_it_is_told";
        let workers = (0..workers).map(|_| Process::start(&redis, test));
        let workers = workers.collect();
        Self { redis, workers }
    }

    /// Every process has its own copy of these pages, and listens.
    async fn warm(workers: usize, paths: &[&str]) -> Self {
        let fleet = Self::start(workers);
        for worker in &fleet.workers {
            for path in paths {
                let held = async { while !worker.get(path).await.1.contains("hit") {} };
                tokio::time::timeout(AMPLE, held).await.unwrap();
            }
        }
        until(|| fleet.redis.clients("pubsub") == workers).await;
        fleet
    }

    fn builds(&self) -> u64 {
        let builds: Option<u64> = self.redis.command(&["GET", BUILDS]);
        builds.unwrap_or(0)
    }

    fn hold(&self) {
        self.redis.command::<()>(&["SET", HELD, "1"]);
    }

    fn let_go(&self) {
        self.redis.command::<()>(&["DEL", HELD]);
    }

    /// What each worker answers.
    async fn read(&self, path: &str) -> Vec<String> {
        let mut read = Vec::new();
        for worker in &self.workers {
            read.push(worker.get(path).await.0);
        }
        read
    }

    fn everyone(&self) -> String {
        let all = self.workers.len();
        format!("{all} of Some({all})")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_has_returned_is_done_in_every_process() {
    for workers in [2, 4] {
        for purge in ["purge /a", "purge-tag t", "purge-all"] {
            let fleet = Fleet::warm(workers, &["/a"]).await;
            assert_eq!(fleet.builds(), 1);

            let told = fleet.workers[0].order(purge).await;

            assert_eq!(told, fleet.everyone(), "{purge}");
            // The last one first: it has had the least time.
            for worker in fleet.workers.iter().rev() {
                assert_eq!(worker.get("/a").await.0, "build 2", "{purge}");
            }
            assert_eq!(fleet.builds(), 2, "{purge}: one build for all of them");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_fences_what_another_process_builds() {
    for (workers, purge) in [(2, "purge /a"), (4, "purge-tag t"), (4, "purge-all")] {
        let fleet = Fleet::warm(workers, &["/other"]).await;
        fleet.hold();
        let early = fleet.workers[1].order("get /a");
        until(|| fleet.builds() == 2).await;

        assert_eq!(fleet.workers[0].order(purge).await, fleet.everyone());
        let late = fleet.workers.iter().map(|worker| worker.order("get /a"));
        let late: Vec<_> = late.collect();
        for worker in &fleet.workers {
            let waits = async { while worker.order("waiters").await == "0" {} };
            tokio::time::timeout(AMPLE, waits).await.unwrap();
        }
        if purge != "purge-tag t" {
            // That a tag is on it, nobody knows before the response names it.
            until(|| fleet.builds() == 3).await;
        }
        fleet.let_go();

        assert!(early.await.starts_with("build 2 |"), "{purge}");
        for late in late {
            let late = late.await;
            assert!(late.starts_with("build 3 |"), "{purge}: {late}");
        }
        assert_eq!(fleet.read("/a").await, vec!["build 3"; workers]);
        assert_eq!(fleet.builds(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_soft_purge_nobody_waits_and_one_process_refreshes() {
    for workers in [2, 4] {
        let fleet = Fleet::warm(workers, &["/a"]).await;
        fleet.hold();

        let told = fleet.workers[0].order("soft-purge-tag t").await;

        assert_eq!(told, fleet.everyone());
        for _ in 0..20 {
            assert_eq!(fleet.read("/a").await, vec!["build 1"; workers]);
        }
        assert_eq!(fleet.builds(), 2, "of all who would, one refreshes");
        fleet.let_go();
        let fresh = async { while fleet.read("/a").await != vec!["build 2"; workers] {} };
        tokio::time::timeout(AMPLE, fresh).await.unwrap();
        assert_eq!(fleet.builds(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stale_is_refreshed_by_one_process_while_all_answer_at_once() {
    for workers in [2, 4] {
        let fleet = Fleet::warm(workers, &["/brief"]).await;
        fleet.hold();
        // Fresh for a second.
        let begun = async {
            while fleet.builds() == 1 {
                fleet.read("/brief").await;
            }
        };
        tokio::time::timeout(AMPLE, begun).await.unwrap();

        let asked = Instant::now();
        for _ in 0..20 {
            let herd = fleet
                .workers
                .iter()
                .map(|worker| worker.order("get /brief"));
            for answer in herd.collect::<Vec<_>>() {
                assert!(answer.await.starts_with("build 1 | stampede; hit"));
            }
        }
        assert!(asked.elapsed() < AMPLE, "the handler was held all along");
        assert_eq!(fleet.builds(), 2);
        fleet.let_go();

        let fresh = async { while fleet.read("/brief").await != vec!["build 2"; workers] {} };
        // Fresh for a second again: the third build is right too, if the machine is slow.
        drop(tokio::time::timeout(Duration::from_millis(900), fresh).await);
        assert!(fleet.builds() <= 3, "{}", fleet.builds());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ahead_of_time_one_process_refreshes_while_all_answer_at_once() {
    for workers in [2, 4] {
        let fleet = Fleet::warm(workers, &["/a"]).await;
        fleet.hold();

        for _ in 0..20 {
            let herd = fleet.workers.iter();
            let herd = herd.map(|worker| worker.order("get-eagerly /a"));
            for answer in herd.collect::<Vec<_>>() {
                assert!(answer.await.starts_with("build 1 | stampede; hit"));
            }
        }
        until(|| fleet.builds() > 1).await;
        assert_eq!(fleet.builds(), 2);
        fleet.let_go();

        let fresh = async { while fleet.read("/a").await != vec!["build 2"; workers] {} };
        tokio::time::timeout(AMPLE, fresh).await.unwrap();
        assert_eq!(fleet.builds(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_have_waited_long_enough_share_one_more_build_in_all_processes() {
    for workers in [2, 4] {
        let fleet = Fleet::warm(workers, &["/other"]).await;
        fleet.hold();
        let first = fleet.workers[0].order("get-impatiently /a");
        until(|| fleet.builds() == 2).await;
        let mut herd = Vec::new();
        for worker in &fleet.workers[1..] {
            herd.extend((0..5).map(|_| worker.order("get-impatiently /a")));
        }
        until(|| fleet.builds() > 2).await;
        // Everybody's patience is over by then.
        sleep(Duration::from_secs(1)).await;
        assert_eq!(fleet.builds(), 3);
        fleet.let_go();

        for answer in herd {
            let answer = answer.await;
            assert!(answer.starts_with("build 2 |") || answer.starts_with("build 3 |"));
        }
        assert!(first.await.starts_with("build 2 |"));
        assert_eq!(fleet.builds(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_through_one_process_is_seen_in_the_others() {
    let fleet = Fleet::warm(4, &["/a", "/a?q=1", "/b"]).await;

    fleet.workers[2].order("post /a").await;

    let seen = async {
        loop {
            let (page, query) = (fleet.read("/a").await, fleet.read("/a?q=1").await);
            let old = |text: &String| text == "build 1" || text == "build 2";
            if !page.iter().chain(&query).any(old) {
                break;
            }
        }
    };
    tokio::time::timeout(AMPLE, seen)
        .await
        .expect("it reaches all of them");
    assert_eq!(fleet.read("/b").await, vec!["build 3"; 4]);
    assert_eq!(fleet.builds(), 5, "each page once more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stands_still_is_not_counted_and_follows_when_it_goes_on() {
    let fleet = Fleet::warm(4, &["/a"]).await;
    fleet.workers[3].freeze();

    let told = fleet.workers[0].order("purge /a").await;

    assert_eq!(told, "3 of Some(4)");
    for worker in &fleet.workers[..3] {
        assert_eq!(worker.get("/a").await.0, "build 2");
    }
    fleet.workers[3].thaw();
    let follows = async { while fleet.workers[3].get("/a").await.0 != "build 2" {} };
    tokio::time::timeout(AMPLE, follows)
        .await
        .expect("it hears of it");
    assert_eq!(fleet.workers[0].order("purge /a").await, fleet.everyone());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_was_building_when_it_stood_still_through_a_purge_is_not_stored() {
    let fleet = Fleet::warm(2, &["/other"]).await;
    fleet.hold();
    let early = fleet.workers[1].order("get /a");
    until(|| fleet.builds() == 2).await;
    fleet.workers[1].freeze();

    assert_eq!(fleet.workers[0].order("purge /a").await, "1 of Some(2)");
    let late = fleet.workers[0].order("get /a");
    until(|| fleet.builds() == 3).await;
    fleet.let_go();
    assert!(late.await.starts_with("build 3 |"));
    fleet.workers[1].thaw();

    assert!(early.await.starts_with("build 2 |"));
    assert_eq!(fleet.workers[0].get("/a").await.0, "build 3");
    let follows = async { while fleet.workers[1].get("/a").await.0 != "build 3" {} };
    tokio::time::timeout(AMPLE, follows).await.unwrap();
    assert_eq!(fleet.builds(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_gone_is_not_waited_for() {
    let mut fleet = Fleet::warm(3, &["/a"]).await;
    drop(fleet.workers.pop());
    until(|| fleet.redis.clients("pubsub") == 2).await;

    let asked = Instant::now();
    let told = fleet.workers[0].order("purge /a").await;

    assert_eq!(told, "2 of Some(2)");
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn purges_from_all_processes_at_once_are_all_done() {
    let fleet = Fleet::warm(4, &["/a", "/b"]).await;
    let mut orders = Vec::new();
    for round in 0..50 {
        for worker in &fleet.workers {
            orders.push(worker.order(&format!("purge-tag flood-{round}")));
            orders.push(worker.order("soft-purge-tag another"));
        }
    }
    for order in orders {
        assert_eq!(order.await, fleet.everyone());
    }
    assert_eq!(
        fleet.read("/a").await,
        vec!["build 1"; 4],
        "none of these tags is on it"
    );

    let last = fleet
        .workers
        .iter()
        .map(|worker| worker.order("purge-tag t"));
    for told in last.collect::<Vec<_>>() {
        assert_eq!(told.await, fleet.everyone());
    }
    for page in fleet.read("/a").await {
        assert_ne!(page, "build 1");
    }
}
