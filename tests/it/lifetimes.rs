//! Whatever happens, and in whatever order: no entry is served past its lifetime and its stale window,
//! none that a purge has reached to a request that came after it, and none of a failed build.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use http_body_util::Full;
use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestCaseResult, TestRunner},
};
use tokio::{
    runtime,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower_stampede::{BufferLayer, Cache, CacheTags, Target};

use crate::support::{
    redis::RedisServer,
    worker::{Answer, Incoming, Outgoing, Worker, cache, layer, settled, uri},
};

const PATHS: [&str; 3] = ["/a", "/b", "/c"];

/// How long what is built is fresh, and for how long after that it may be served.
#[derive(Clone, Copy, Debug)]
struct Times {
    life: Duration,
    while_refreshed: Duration,
    in_place_of_failures: Duration,
    /// How far apart the clocks of the test and of the cache may be.
    tolerance: Duration,
}

impl Times {
    fn on(self, layer: BufferLayer) -> BufferLayer {
        layer
            .ttl(self.life)
            .jitter(0.0)
            .stale_while_revalidate(self.while_refreshed)
            .stale_if_error(self.in_place_of_failures)
    }
}

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    /// A request, whose answer is awaited, or not until the end.
    Ask(usize, usize, Patience),
    Purge(usize, Aim, Force),
    /// From now on builds of the path take so long, and come to this.
    Handler(usize, Duration, StatusCode),
    Pass(Duration),
    /// Everything that is under way comes to its end.
    Settle,
}

#[derive(Clone, Copy, Debug)]
enum Patience {
    Waits,
    Parallel,
    Leaves(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Force {
    Hard,
    Soft,
}

#[derive(Clone, Copy, Debug)]
enum Aim {
    Path(usize),
    TagOf(usize),
    Everything,
}

impl Aim {
    fn reaches(self, path: usize) -> bool {
        match self {
            Self::Path(aim) | Self::TagOf(aim) => aim == path,
            Self::Everything => true,
        }
    }

    fn target(self) -> Target {
        match self {
            Self::Path(path) => Target::uri(&uri(PATHS[path])),
            Self::TagOf(path) => Target::tag(PATHS[path]),
            Self::Everything => Target::all(),
        }
    }
}

/// A build that has come to an end.
#[derive(Clone, Copy, Debug)]
struct Build {
    path: usize,
    began: u64,
    ended: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Purge {
    aim: Aim,
    force: Force,
    called: u64,
    returned: u64,
    at: Instant,
}

/// A request with its answer.
#[derive(Clone, Debug)]
struct Exchange {
    path: usize,
    called: u64,
    at: Instant,
    answer: Answer,
}

/// What has happened. Its clock orders what the machine's clock cannot.
#[derive(Default)]
struct History {
    clock: AtomicU64,
    builds: Mutex<Vec<Build>>,
    handler: Mutex<[Option<(Duration, StatusCode)>; PATHS.len()]>,
}

impl History {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// The build that an answer is of.
    fn behind(&self, answer: &Answer) -> Build {
        self.builds.lock().unwrap()[answer.text().parse::<usize>().unwrap()]
    }

    async fn build(&self, path: usize) -> Outgoing {
        let began = self.tick();
        let (takes, status) =
            self.handler.lock().unwrap()[path].unwrap_or((Duration::ZERO, StatusCode::OK));
        if !takes.is_zero() {
            sleep(takes).await;
        }
        let ended = Instant::now();
        let mut builds = self.builds.lock().unwrap();
        let mut response = Outgoing::new(Full::from(builds.len().to_string()));
        builds.push(Build { path, began, ended });
        *response.status_mut() = status;
        response
            .extensions_mut()
            .insert(CacheTags::new([PATHS[path]]));
        response
    }

    fn worker(self: &Arc<Self>, layer: &BufferLayer) -> Worker {
        let history = Arc::clone(self);
        Worker::behind(
            layer,
            tower::service_fn(move |request: Incoming| {
                let history = Arc::clone(&history);
                async move {
                    let path = request.uri().path();
                    let path = PATHS.iter().position(|known| *known == path).unwrap();
                    Ok::<_, Infallible>(history.build(path).await)
                }
            }),
        )
    }

    async fn ask(self: Arc<Self>, worker: Worker, path: usize) -> Exchange {
        let at = Instant::now();
        let called = self.tick();
        let answer = worker.get(PATHS[path]).await;
        Exchange {
            path,
            called,
            at,
            answer,
        }
    }
}

/// What must be true of each answer.
fn check(exchange: &Exchange, history: &History, purges: &[Purge], times: Times) -> TestCaseResult {
    let Exchange {
        path,
        called,
        at,
        answer,
    } = exchange;
    if answer.status != StatusCode::OK {
        prop_assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
        return Ok(());
    }
    let build = history.behind(answer);
    prop_assert_eq!(build.path, *path);
    let before = |purge: &&Purge| {
        purge.aim.reaches(*path) && build.began < purge.called && purge.returned < *called
    };
    let hard = purges
        .iter()
        .filter(before)
        .find(|purge| purge.force == Force::Hard);
    prop_assert!(hard.is_none(), "{exchange:?} of {build:?} after {hard:?}");

    // Of several soft purges the last one counts: what each of them reaches is not listed anywhere.
    let softened = purges.iter().filter(before).map(|purge| purge.at).max();
    let fresh_until = build.ended + times.life;
    let fresh_until = softened.map_or(fresh_until, |at| at.min(fresh_until)) + times.tolerance;
    let is_hit = answer.outcome.starts_with("stampede; hit");
    let window = if !is_hit || answer.outcome.contains("detail=") {
        times.while_refreshed.max(times.in_place_of_failures)
    } else if ["ttl=-", "ttl=0"]
        .iter()
        .any(|ttl| answer.outcome.contains(ttl))
    {
        times.while_refreshed
    } else {
        Duration::ZERO
    };
    prop_assert!(
        *at <= fresh_until + window,
        "{exchange:?} of {build:?}: {:?} too late",
        *at - (fresh_until + window)
    );
    Ok(())
}

async fn run(
    steps: Vec<Step>,
    caches: &[Cache],
    times: Times,
) -> Result<(usize, usize), TestCaseError> {
    let history = Arc::new(History::default());
    let workers: Vec<_> = caches
        .iter()
        .map(|cache| history.worker(&times.on(layer(cache))))
        .collect();
    let (mut purges, mut exchanges) = (Vec::new(), Vec::new());
    let mut parallel: Vec<JoinHandle<Exchange>> = Vec::new();
    for step in steps {
        match step {
            Step::Ask(process, path, patience) => {
                let worker = workers[process % workers.len()].clone();
                let asked = Arc::clone(&history).ask(worker, path);
                match patience {
                    Patience::Waits => exchanges.push(asked.await),
                    Patience::Parallel => parallel.push(tokio::spawn(asked)),
                    Patience::Leaves(after) => {
                        exchanges.extend(tokio::time::timeout(after, asked).await);
                    }
                }
            }
            Step::Purge(process, aim, force) => {
                let cache = &caches[process % caches.len()];
                let (called, at) = (history.tick(), Instant::now());
                let purged = match force {
                    Force::Hard => cache.purge(aim.target()).await,
                    Force::Soft => cache.soft_purge(aim.target()).await,
                };
                let purged = purged.unwrap();
                prop_assert!(purged.is_complete(), "{purged:?}");
                purges.push(Purge {
                    aim,
                    force,
                    called,
                    returned: history.tick(),
                    at,
                });
            }
            Step::Handler(path, takes, status) => {
                history.handler.lock().unwrap()[path] = Some((takes, status));
            }
            Step::Pass(time) => sleep(time).await,
            // Builds that follow each other may take several lives.
            Step::Settle => {
                while caches.iter().any(|cache| cache.stats().flights > 0) {
                    sleep(times.life / 100).await;
                }
            }
        }
    }
    for asked in parallel {
        exchanges.push(asked.await.unwrap());
    }
    for exchange in &exchanges {
        check(exchange, &history, &purges, times)?;
    }
    let builds = history.builds.lock().unwrap().len();
    Ok((exchanges.len(), builds))
}

fn steps(times: Times, length: usize) -> impl Strategy<Value = Vec<Step>> {
    let moment = move || {
        prop_oneof![
            Just(Duration::ZERO),
            (1..2000_u32).prop_map(move |part| times.life * part / 1000),
        ]
    };
    let path = || 0..PATHS.len();
    let force = prop_oneof![Just(Force::Hard), Just(Force::Soft)];
    let aim = prop_oneof![
        3 => path().prop_map(Aim::Path),
        3 => path().prop_map(Aim::TagOf),
        1 => Just(Aim::Everything),
    ];
    let status = prop_oneof![
        3 => Just(StatusCode::OK),
        2 => Just(StatusCode::BAD_GATEWAY),
    ];
    let patience = prop_oneof![
        3 => Just(Patience::Waits),
        3 => Just(Patience::Parallel),
        1 => moment().prop_map(Patience::Leaves),
    ];
    let step = prop_oneof![
        8 => (0..2_usize, path(), patience).prop_map(|(process, path, patience)| {
            Step::Ask(process, path, patience)
        }),
        2 => (0..2_usize, aim, force).prop_map(|(process, aim, force)| {
            Step::Purge(process, aim, force)
        }),
        2 => (path(), moment(), status).prop_map(|(path, takes, status)| {
            Step::Handler(path, takes, status)
        }),
        4 => moment().prop_map(Step::Pass),
        1 => Just(Step::Settle),
    ];
    prop::collection::vec(step, 1..length)
}

fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    }
}

#[test]
fn in_memory_nothing_is_served_past_its_time_or_after_a_purge() {
    let times = Times {
        life: Duration::from_secs(10),
        while_refreshed: Duration::from_secs(5),
        in_place_of_failures: Duration::from_secs(15),
        tolerance: Duration::ZERO,
    };
    let (answered, built) = (AtomicU64::new(0), AtomicU64::new(0));

    let held = TestRunner::new(config(400)).run(&steps(times, 60), |steps| {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let (exchanges, builds) = runtime.block_on(run(steps, &[Cache::in_memory()], times))?;
        answered.fetch_add(exchanges as u64, Ordering::Relaxed);
        built.fetch_add(builds as u64, Ordering::Relaxed);
        Ok(())
    });

    held.unwrap_or_else(|failure| panic!("{failure}"));
    let (answered, built) = (answered.into_inner(), built.into_inner());
    assert!(answered > built, "some are hits: {answered} of {built}");
}

#[test]
fn on_redis_nothing_is_served_past_its_time_or_after_a_purge_that_was_acknowledged() {
    let times = Times {
        life: Duration::from_millis(400),
        while_refreshed: Duration::from_millis(200),
        in_place_of_failures: Duration::from_millis(600),
        // What the machine may be busy with meanwhile.
        tolerance: Duration::from_secs(2),
    };
    let redis = RedisServer::start();
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();

    let held = TestRunner::new(config(12)).run(&steps(times, 40), |steps| {
        let caches = [(); 2].map(|()| {
            // The entries of the case before are not this one's.
            redis.command::<()>(&["FLUSHALL"]);
            cache(redis.url())
        });
        runtime.block_on(async {
            let all = async {
                connected(&caches).await;
                run(steps, &caches, times).await
            };
            all.await.map(drop)
        })
    });

    held.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Until both hear each other's purges.
async fn connected(caches: &[Cache]) {
    let history = Arc::new(History::default());
    for cache in caches {
        history.worker(&layer(cache)).get("/a").await;
        settled(cache).await;
    }
    caches[0].purge(Target::all()).await.unwrap();
}
