//! Purges that come in the middle of a build, at every point where it gives way to others.
//!
//! The inner service reads a version when it begins, and gives way after each step. A purge says that
//! there is a new one: whoever comes after it never gets the old one as fresh.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Uri};
use tokio::{runtime, task::yield_now, time::sleep};
use tower_stampede::{BufferLayer, Cache, Target};

use crate::support::{
    client::{Answer, Empties, Layered, ask, behind, settle, with},
    origin::{Origin, frames, head},
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{AMPLE, builder},
};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Force {
    Hard,
    Soft,
}

/// Which build the purge comes into.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Build {
    Cold,
    /// Of what has expired and may not be served meanwhile.
    Expired,
    /// In the background, of what is served meanwhile.
    StaleServed,
    /// In the background, of what is still fresh.
    Early,
    /// On request.
    Renewed,
}

impl Build {
    fn on(self, layer: BufferLayer) -> BufferLayer {
        match self {
            Self::Cold | Self::Expired => layer,
            Self::StaleServed => layer.stale_while_revalidate(HOUR),
            Self::Early => layer.refresh_after(0.0),
            Self::Renewed => layer.refresh_if(|request| request.headers.contains_key("x-renew")),
        }
    }

    fn request(self) -> Request<Empties> {
        match self {
            Self::Renewed => with("/page", &[("x-renew", "1")]),
            _ => with("/page", &[]),
        }
    }
}

type Aim = fn(&BufferLayer) -> Target;

fn aims() -> [Aim; 6] {
    [
        |_| Target::from(&uri()),
        |_| Target::exact_uri(&uri()),
        |layer| {
            let (request, _) = with("/page", &[]).into_parts();
            layer.target_of(&request).unwrap()
        },
        |_| Target::tag("of the layer"),
        |_| Target::tag("of the response"),
        |_| Target::all(),
    ]
}

fn uri() -> Uri {
    Uri::from_static("http://shop.example/page")
}

async fn purge(cache: &Cache, target: Target, force: Force) {
    let purged = match force {
        Force::Hard => cache.purge(target).await,
        Force::Soft => cache.soft_purge(target).await,
    };
    assert!(purged.unwrap().is_complete());
}

/// A service whose handler gives way between its steps.
#[derive(Clone)]
struct Site {
    version: Arc<AtomicUsize>,
    origin: Origin,
}

impl Site {
    fn new() -> Self {
        let version = Arc::new(AtomicUsize::new(0));
        let read = Arc::clone(&version);
        let origin = Origin::new(move |_| {
            let version = read.load(Ordering::SeqCst);
            async move {
                for _ in 0..3 {
                    yield_now().await;
                }
                let (frames, body) = frames();
                tokio::spawn(async move {
                    frames.data("version ");
                    yield_now().await;
                    frames.data(version.to_string());
                    yield_now().await;
                    frames.end();
                });
                let fields = [
                    ("cache-control", "max-age=10"),
                    ("cache-tag", "of the response"),
                ];
                head(http::StatusCode::OK, &fields).map(|()| body)
            }
        });
        Self { version, origin }
    }

    fn changes(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }
}

fn is_fresh(answer: &Answer) -> bool {
    let outcome = answer.status_line();
    !outcome.contains("ttl=-") && !outcome.contains("ttl=0")
}

/// The build that is raced, the herd that waits for it, and after so many steps the purge.
async fn race(build: Build, aim: Aim, force: Force, steps: usize) -> bool {
    let cache = Cache::in_memory();
    let layer = build.on(BufferLayer::new(cache.clone()).tags(["of the layer"]));
    let site = Site::new();
    let service = behind(&layer, &site.origin);
    if build != Build::Cold {
        ask(&service, with("/page", &[])).await;
        settle().await;
        site.changes();
    }
    sleep(Duration::from_secs(match build {
        Build::Expired | Build::StaleServed => 11,
        Build::Cold | Build::Early | Build::Renewed => 1,
    }))
    .await;
    let before = site.origin.builds();
    let herd = crate::support::client::herd(&service, (0..3).map(|_| build.request()));

    for _ in 0..steps {
        yield_now().await;
    }
    let all_done = cache.stats().flights == 0 && site.origin.builds() > before;
    let old = site.version.load(Ordering::SeqCst);
    site.changes();
    purge(&cache, aim(&layer), force).await;
    let late = ask(&service, with("/page", &[])).await;

    let what = format!("{build:?} {force:?} after {steps} steps: {late:?}");
    let new = format!("version {}", old + 1);
    let serves_stale = force == Force::Soft && build == Build::StaleServed;
    assert!(
        late.text() == new || serves_stale && !is_fresh(&late),
        "{what}"
    );
    for early in herd.answers().await {
        assert_eq!(early.status, 200, "{what}");
    }
    settle().await;
    ask(&service, with("/page", &[])).await;
    settle().await;
    let last = ask(&service, with("/page", &[])).await;
    assert_eq!((last.text(), is_fresh(&last)), (&*new, true), "{what}");
    all_done
}

#[test]
fn whoever_comes_after_a_purge_never_gets_what_was_being_built_wherever_that_was() {
    const STEPS: usize = 20;
    for build in [
        Build::Cold,
        Build::Expired,
        Build::StaleServed,
        Build::Early,
        Build::Renewed,
    ] {
        for aim in aims() {
            for force in [Force::Hard, Force::Soft] {
                let mut done = Vec::new();
                for steps in 0..STEPS {
                    let runtime = runtime::Builder::new_current_thread()
                        .enable_all()
                        .start_paused(true)
                        .build()
                        .unwrap();
                    done.push(runtime.block_on(race(build, aim, force, steps)));
                }
                // The first comes before all of it, and the last after it.
                assert!(!done[0] && done[STEPS - 1], "{build:?}: {done:?}");
            }
        }
    }
}

/// A handler that purges, itself, what it is building.
#[tokio::test(start_paused = true)]
async fn a_handler_may_purge_what_it_builds() {
    let cache = Cache::in_memory();
    let purger = cache.clone();
    let origin = Origin::new(move |call| {
        let cache = purger.clone();
        async move {
            if call.number < 3 {
                cache.purge(&uri()).await.unwrap();
            }
            crate::support::origin::fresh(format!("build {}", call.number))
        }
    });
    let service = behind(&BufferLayer::new(cache), &origin);
    let mut read = Vec::new();
    for _ in 0..4 {
        read.push(ask(&service, with("/page", &[])).await.text().to_owned());
        settle().await;
    }

    assert_eq!(read, ["build 1", "build 2", "build 3", "build 3"]);
}

fn over(url: String) -> Cache {
    builder(url).acknowledge_within(AMPLE).build().unwrap()
}

async fn idle(cache: &Cache) {
    crate::support::worker::settled(cache).await;
}

async fn reads(service: Layered) -> Answer {
    let answer = tower::ServiceExt::oneshot(service, with("/page", &[])).await;
    Answer::read(answer.unwrap()).await
}

/// Each trip to Redis takes its time, so that the purge comes before, in and after each of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_elsewhere_is_as_good_whichever_trip_to_redis_it_comes_into() {
    const TRIP: Duration = Duration::from_millis(4);
    const CASES: usize = 72;
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let (near, far) = (over(redis.url()), over(proxy.url()));
    let site = Site::new();
    let layer = |cache: &Cache| BufferLayer::new(cache.clone()).tags(["of the layer"]);
    let services = [&near, &far].map(|cache| behind(&layer(cache), &site.origin));
    for (service, cache) in services.iter().zip([&near, &far]) {
        reads(service.clone()).await;
        idle(cache).await;
    }
    proxy.delay(TRIP);

    for (number, aim) in aims().into_iter().cycle().enumerate().take(2 * CASES) {
        let (purger, case) = ([&near, &far][number / CASES], number % CASES);
        let force = [Force::Hard, Force::Soft][case / 6 % 2];
        purge(&near, Target::all(), Force::Hard).await;
        let early = tokio::spawn(reads(services[1].clone()));
        let pause = TRIP * u32::try_from(case / 6).unwrap() / 4;
        sleep(pause).await;

        site.changes();
        let meanwhile = services.each_ref().map(|service| {
            let service = service.clone();
            tokio::spawn(async move {
                loop {
                    assert_eq!(reads(service.clone()).await.status, 200);
                    sleep(TRIP / 4).await;
                }
            })
        });
        purge(purger, aim(&layer(&near)), force).await;

        let new = format!("version {}", site.version.load(Ordering::SeqCst));
        for service in services.iter().rev() {
            let late = reads(service.clone()).await;
            assert_eq!(late.text(), new, "{force:?} after {pause:?}: {late:?}");
        }
        for reading in meanwhile {
            assert!(!reading.is_finished());
            reading.abort();
        }
        assert_eq!(early.await.unwrap().status, 200);
        for cache in [&near, &far] {
            idle(cache).await;
        }
        for service in services.iter().rev() {
            let last = reads(service.clone()).await;
            assert_eq!(last.text(), new, "{force:?} after {pause:?}: {last:?}");
        }
    }
}
