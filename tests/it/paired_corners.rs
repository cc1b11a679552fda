//! Stores and locks: what is rare, what is asked for, and who is no more.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tower_stampede::{
    Cache, Fallback,
    lock::LockManager,
    store::{BoxFuture, Error, Found, MemoryStore, Read, Store, Write, Written},
};

use crate::{
    paired::workers,
    support::{
        pairs::Pair,
        worker::{Handler, Incoming, Outgoing, caching, layer, settled, text, waiting},
    },
};

#[tokio::test]
async fn who_says_so_trusts_what_was_confirmed_for_a_while_and_no_longer() {
    tokio::time::pause();
    let pair = Pair::memory();
    let (store, _) = pair.in_memory();
    let trusting = pair.builder().trust_local(Duration::from_secs(5));
    let (one, other) = (pair.cache(), trusting.build().unwrap());
    let handler = Handler::open();
    let first = handler.worker(&layer(&one), text);
    let second = handler.worker(&layer(&other), text);
    first.get("/report").await;
    settled(&one).await;
    second.get("/report").await;
    settled(&other).await;

    store.reset();
    one.purge(tower_stampede::Target::all()).await.unwrap();
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(second.get("/report").await.text(), "build 1");
    assert_eq!(store.trips(), (0, 2, 0), "the purge, and no look");
    assert_eq!(first.get("/report").await.text(), "build 2");
    settled(&one).await;

    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(second.get("/report").await.text(), "build 2");
}

#[tokio::test]
async fn what_lives_for_too_short_to_be_counted_is_not_waited_for_in_turn() {
    #[derive(Debug, Default)]
    struct Coarse(MemoryStore);

    impl Store for Coarse {
        fn get<'a>(
            &'a self,
            reads: &'a [Read],
        ) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
            Box::pin(async {
                let found = self.0.get(reads).await?.into_iter();
                // As one that counts seconds: a part of one is none.
                let rounded = found.map(|found| {
                    let found = found?;
                    let left = found.left().saturating_sub(Duration::from_secs(1));
                    Some(match found.value() {
                        Some(value) => Found::new(found.version(), left, value.clone()),
                        None => Found::unchanged(found.version(), left),
                    })
                });
                Ok(rounded.collect())
            })
        }

        fn put<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
            self.0.put(write)
        }

        fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
            self.0.remove(key)
        }

        fn resolution(&self) -> Duration {
            Duration::from_secs(1)
        }
    }

    let (store, locks) = (Arc::new(Coarse::default()), LockManager::in_memory());
    let handler = Handler::held();
    let caches = [0; 4].map(|_| {
        let builder = Cache::builder().redis_budget(Duration::from_secs(10));
        let builder = builder.store(Arc::clone(&store), locks.clone());
        builder.build().unwrap()
    });
    let workers = caches.each_ref().map(|cache| {
        handler.worker(&layer(cache), |build, request| {
            caching(build, request, "max-age=1")
        })
    });
    let herds = workers.each_ref().map(|worker| worker.herd("/report", 1));
    handler.has_begun(1).await;
    waiting(&caches, 4).await;
    Pair::memory().asked(&caches).await;

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
async fn those_who_have_waited_long_enough_share_one_more_build_in_all_processes() {
    for pair in Pair::all() {
        let handler = Handler::held();
        let caches = [0; 3].map(|_| pair.cache());
        let workers = caches.each_ref().map(|cache| {
            let impatient = layer(cache).wait_timeout(Duration::from_millis(300));
            handler.worker(&impatient.fallback(Fallback::Build), text)
        });
        let first = workers[0].herd("/report", 1);
        handler.has_begun(1).await;
        let others = workers[1]
            .herd("/report", 5)
            .and(workers[2].herd("/report", 5));
        handler.has_begun(2).await;
        // Everybody's patience is over by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(handler.builds(), 2, "{}", pair.name());
        handler.let_go();

        for answer in first.and(others).answers().await {
            assert_eq!(answer.status, StatusCode::OK);
        }
        assert_eq!(handler.builds(), 2, "{}", pair.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_while_it_builds_is_followed_by_another_when_its_lock_has_run_out() {
    for pair in Pair::all() {
        let handler = Handler::held();
        let [dying, other] = [(); 2].map(|()| {
            let builder = pair.builder().lease_ttl(Duration::from_millis(500));
            builder.build().unwrap()
        });
        let worker = handler.worker(&layer(&dying), text);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.spawn(async move { worker.get("/report").await });
        handler.has_begun(1).await;

        runtime.shutdown_background();
        let waits = handler.worker(&layer(&other), text).herd("/report", 5);
        handler.has_begun(2).await;
        handler.let_go();

        for answer in waits.answers().await {
            assert_eq!(answer.text(), "build 2", "{}", pair.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_entry_from_the_store_stands_in_when_the_wait_is_over() {
    fn stale(build: usize, request: &Incoming) -> Outgoing {
        caching(build, request, "max-age=0, stale-if-error=600")
    }
    for pair in Pair::all() {
        let (caches, workers) = workers(&pair, 2, &Handler::open(), stale);
        workers[0].get("/report").await;
        settled(&caches[0]).await;
        let held = Handler::held();
        let impatient = layer(&caches[1]).wait_timeout(Duration::from_millis(200));

        let answer = held.worker(&impatient, text).get("/report").await;

        assert_eq!(answer.text(), "build 1", "{}: {answer:?}", pair.name());
        held.let_go();
    }
}

#[cfg(feature = "redis")]
#[test]
fn a_cache_has_one_shared_tier() {
    let locks = LockManager::in_memory();
    let builder = Cache::builder().store(MemoryStore::new(), locks);

    let error = builder.redis("redis://127.0.0.1/").build().unwrap_err();

    assert_eq!(error.kind(), tower_stampede::BuildErrorKind::TwoTiers);
    assert_eq!(
        error.to_string(),
        "redis and store: only one of them can be set"
    );
}
