//! Stores and locks of somebody's own that lie, and panic: no request loses its answer.

use std::{
    panic::panic_any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use tokio::time::Instant;
#[cfg(feature = "redis")]
use tower_stampede::BuildErrorKind;
use tower_stampede::{
    Cache, LinkState, Target,
    lock::{
        self, Holder, LockManager, MemoryLock, Obstacle,
        backend::{
            self, Busy, Claim, Extension, Family, Grant, Holding, Key, Lock, Released, Remaining,
            Removed, Terms,
        },
    },
    store::{BoxFuture, Error, Found, MemoryStore, Read, Store, Version, Write, Written},
};

use crate::support::{
    log::Log,
    worker::{Handler, Incoming, Outgoing, failing, layer, settled, text, uncacheable},
};

const SHORTLY: Duration = Duration::from_secs(3);

/// What is wrong with it.
#[derive(Clone, Copy, Debug)]
enum Lie {
    PanicsWhenCalled,
    PanicsWhenPolled,
    LivesForever,
    CountsInAges,
    ForgetsVersions,
    AnswersUnchanged,
    SaysStored,
    AnswersTooMany,
}

#[derive(Debug)]
struct Liar(Lie, MemoryStore);

impl Liar {
    fn bend(&self, found: Vec<Option<Found>>) -> Vec<Option<Found>> {
        let bent = |found: Found| {
            let (version, left) = (found.version(), found.left());
            let value = found.value().cloned();
            let whole = |version, left| match &value {
                Some(value) => Found::new(version, left, value.clone()),
                None => Found::unchanged(version, left),
            };
            match self.0 {
                Lie::LivesForever => whole(version, Duration::MAX),
                Lie::ForgetsVersions => whole(Version::new(0), left),
                Lie::AnswersUnchanged => Found::unchanged(Version::new(0), left),
                _ => found,
            }
        };
        let mut all: Vec<_> = found.into_iter().map(|found| found.map(bent)).collect();
        if matches!(self.0, Lie::AnswersTooMany) {
            all.push(None);
        }
        all
    }
}

impl Store for Liar {
    fn get<'a>(&'a self, reads: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
        if matches!(self.0, Lie::PanicsWhenCalled) {
            panic_any("called");
        }
        Box::pin(async move {
            if matches!(self.0, Lie::PanicsWhenPolled) {
                panic_any("polled");
            }
            Ok(self.bend(self.1.get(reads).await?))
        })
    }

    fn put<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
        match self.0 {
            Lie::SaysStored => Box::pin(async { Ok(Written::Stored(Version::new(1))) }),
            _ => self.1.put(write),
        }
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.1.remove(key)
    }

    fn resolution(&self) -> Duration {
        match self.0 {
            Lie::CountsInAges => Duration::MAX,
            _ => self.1.resolution(),
        }
    }
}

/// Each request gets an answer of the handler's, soon, in two processes, whatever the handler says.
async fn goes_on(name: &str, caches: &[Cache; 2]) {
    let cases: [(&str, u16, fn(usize, &Incoming) -> Outgoing); 3] = [
        ("fine", 200, text),
        ("failing", 502, failing),
        ("uncacheable", 200, uncacheable),
    ];
    for (case, status, respond) in cases {
        let workers = Handler::open().workers(caches, respond);
        for (worker, cache) in workers.iter().zip(caches).cycle().take(6) {
            let start = Instant::now();

            let herd = worker.herd(&format!("/{case}"), 10);

            for answer in herd.answers().await {
                assert_eq!(answer.status, status, "{name}, {case}: {answer:?}");
            }
            assert!(start.elapsed() < SHORTLY, "{name}, {case}");
            settled(cache).await;
        }
    }
    // Told or not, it ends.
    drop(caches[0].purge(Target::all()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_lies_or_panics_costs_no_request_its_answer() {
    for lie in [
        Lie::PanicsWhenCalled,
        Lie::PanicsWhenPolled,
        Lie::LivesForever,
        Lie::CountsInAges,
        Lie::ForgetsVersions,
        Lie::AnswersUnchanged,
        Lie::SaysStored,
        Lie::AnswersTooMany,
    ] {
        let (store, locks) = (
            Arc::new(Liar(lie, MemoryStore::new())),
            LockManager::in_memory(),
        );
        let caches = [0; 2].map(|_| {
            let builder = Cache::builder().store(Arc::clone(&store), locks.clone());
            builder.build().unwrap()
        });

        goes_on(&format!("{lie:?}"), &caches).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_panics_is_an_outage_of_the_store() {
    let store = Liar(Lie::PanicsWhenPolled, MemoryStore::new());
    let cache = Cache::builder().store(store, LockManager::in_memory());
    let cache = cache.build().unwrap();

    let worker = Handler::open().worker(&layer(&cache), text);
    worker.get("/report").await;

    let health = cache.health();
    let store = health.links.iter().find(|link| link.name == "store");
    let store = store.unwrap();
    assert_eq!(store.state, LinkState::Broken);
    let told = store.last_error.as_deref().unwrap();
    assert!(told.ends_with("it panicked"), "{told}");
}

/// Stands still when told to.
#[derive(Debug, Default)]
struct Sleepy {
    sleeps: AtomicBool,
    inner: MemoryStore,
}

impl Sleepy {
    async fn awake(&self) {
        if self.sleeps.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

impl Store for Sleepy {
    fn get<'a>(&'a self, reads: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(async {
            self.awake().await;
            self.inner.get(reads).await
        })
    }

    fn put<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
        Box::pin(async {
            self.awake().await;
            self.inner.put(write).await
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async {
            self.awake().await;
            self.inner.remove(key).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_store_stands_still_few_wait_for_it_whatever_becomes_of_the_locks_meanwhile() {
    let store = Arc::new(Sleepy::default());
    let cache = Cache::builder().store(Arc::clone(&store), LockManager::in_memory());
    let cache = cache.build().unwrap();
    let responds: [fn(usize, &Incoming) -> Outgoing; 3] = [text, failing, uncacheable];
    let mut held = Vec::new();
    for (number, respond) in responds.into_iter().enumerate() {
        let handler = Handler::held();
        let worker = handler.worker(&layer(&cache), respond);
        for key in 0..20 {
            held.push(worker.herd(&format!("/held/{number}/{key}"), 1));
        }
        handler.has_begun(20).await;
        // One after another, in those five seconds.
        tokio::spawn(async move {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(250)).await;
                handler.let_go_one();
            }
        });
    }
    store.sleeps.store(true, Ordering::SeqCst);

    let worker = Handler::open().worker(&layer(&cache), text);
    let mut asked = Vec::new();
    for request in 0..500 {
        let worker = worker.clone();
        asked.push(tokio::spawn(async move {
            let start = Instant::now();
            worker.get(&format!("/report/{request}")).await;
            start.elapsed()
        }));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let mut slow = 0;
    for asked in asked {
        slow += usize::from(asked.await.unwrap() >= Duration::from_millis(100));
    }
    // Those before the breaker opens, and one probe every quarter of a second.
    assert!(slow <= 50, "{slow} of 500 waited");
    for held in held {
        held.answers().await;
    }
}

/// Answers every other time.
#[derive(Debug, Default)]
struct Flapping(AtomicUsize);

impl Flapping {
    fn is_there(&self) -> bool {
        !self.0.fetch_add(1, Ordering::SeqCst).is_multiple_of(3)
    }
}

impl Store for Flapping {
    fn get<'a>(&'a self, reads: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(async {
            if self.is_there() {
                Ok(vec![None; reads.len()])
            } else {
                Err(Error::unavailable("gone"))
            }
        })
    }

    fn put<'a>(&'a self, _: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
        Box::pin(async { Ok(Written::Refused) })
    }

    fn remove<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_and_goes_does_not_fill_the_log() {
    let (log, _guard) = Log::start();
    let cache = Cache::builder().store(Flapping::default(), LockManager::in_memory());
    let cache = cache.build().unwrap();
    let worker = Handler::open().worker(&layer(&cache), text);
    let before = Instant::now();

    for request in 0..500 {
        worker.get(&format!("/report/{request}")).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    assert!(before.elapsed() < Duration::from_secs(15));
    let told = log.lines("WARN", "part=\"store\"").len();
    assert!((1..=3).contains(&told), "{told} lines in ten seconds");
}

#[cfg(feature = "redis")]
#[test]
fn what_would_do_nothing_with_a_store_is_refused_by_name() {
    let builder = || Cache::builder().event_secret("sixteen letters!");
    let pair = builder().store(MemoryStore::new(), LockManager::in_memory());

    let error = pair.build().unwrap_err();

    assert_eq!(error.kind(), BuildErrorKind::NoEvents);
    assert!(error.to_string().starts_with("event_secret"), "{error}");
    assert!(builder().build().is_ok(), "nothing is shared");
}

#[derive(Clone, Copy, Debug)]
enum LockLie {
    Panics,
    GrantsAll,
    BusyForever,
    NeverAnswers,
    ReleasesNothing,
}

#[derive(Debug)]
struct LyingLock(LockLie, MemoryLock);

impl Lock for LyingLock {
    fn is_shared(&self) -> bool {
        true
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        terms: &'a Terms,
    ) -> backend::BoxFuture<'a, Result<Grant, lock::Error>> {
        match self.0 {
            LockLie::Panics => Box::pin(async { panic_any("acquire") }),
            LockLie::GrantsAll => Box::pin(async {
                Ok(Grant::Granted {
                    fence: Some(u64::MAX),
                })
            }),
            LockLie::BusyForever => Box::pin(async {
                Ok(Grant::Busy(Busy::new(
                    Obstacle::Holder,
                    Some(Remaining::Millis(u64::MAX)),
                )))
            }),
            LockLie::NeverAnswers => Box::pin(std::future::pending()),
            LockLie::ReleasesNothing => self.1.acquire(claim, terms),
        }
    }

    fn release<'a>(
        &'a self,
        holder: &'a Holding,
    ) -> backend::BoxFuture<'a, Result<Released, lock::Error>> {
        match self.0 {
            LockLie::ReleasesNothing => Box::pin(async { Ok(Released::Expired) }),
            LockLie::NeverAnswers => Box::pin(std::future::pending()),
            LockLie::Panics => Box::pin(async { panic_any("release") }),
            _ => self.1.release(holder),
        }
    }

    fn extend<'a>(
        &'a self,
        holder: &'a Holding,
        change: &'a Extension,
    ) -> backend::BoxFuture<'a, Result<Option<Remaining>, lock::Error>> {
        self.1.extend(holder, change)
    }

    fn holders<'a>(
        &'a self,
        key: &'a Key,
        family: Family,
    ) -> backend::BoxFuture<'a, Result<Vec<Holder>, lock::Error>> {
        self.1.holders(key, family)
    }

    fn force_release<'a>(
        &'a self,
        key: &'a Key,
        family: Family,
    ) -> backend::BoxFuture<'a, Result<Removed, lock::Error>> {
        self.1.force_release(key, family)
    }

    fn watch(&self, key: &Key, family: Family) -> Box<dyn backend::Watch> {
        match self.0 {
            LockLie::Panics => panic_any("watch"),
            _ => self.1.watch(key, family),
        }
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> backend::BoxFuture<'a, Result<(), lock::Error>> {
        match self.0 {
            LockLie::Panics => Box::pin(async { panic_any("withdraw") }),
            LockLie::NeverAnswers => Box::pin(std::future::pending()),
            _ => self.1.withdraw(claim),
        }
    }
}

fn lying(lie: LockLie) -> LockManager {
    let lock = LyingLock(lie, MemoryLock::new());
    LockManager::builder()
        .backend(Arc::new(lock))
        .build()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_lie_or_panic_cost_no_request_its_answer() {
    for lie in [
        LockLie::Panics,
        LockLie::GrantsAll,
        LockLie::NeverAnswers,
        LockLie::ReleasesNothing,
    ] {
        let (store, locks) = (Arc::new(MemoryStore::new()), lying(lie));
        let caches = [0; 2].map(|_| {
            let builder = Cache::builder().store(Arc::clone(&store), locks.clone());
            builder
                .lease_ttl(Duration::from_millis(200))
                .build()
                .unwrap()
        });

        goes_on(&format!("{lie:?}"), &caches).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_somebody_keeps_for_ever_costs_what_a_request_may_wait() {
    let cache = Cache::builder().store(MemoryStore::new(), lying(LockLie::BusyForever));
    let cache = cache.build().unwrap();
    let brief = Duration::from_millis(200);
    let impatient = layer(&cache).wait_timeout(brief).build_timeout(brief);
    let worker = Handler::open().worker(&impatient, text);

    for answer in worker.herd("/report", 10).answers().await {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.outcome.contains("wait-timeout"), "{answer:?}");
    }
}
