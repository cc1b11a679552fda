//! Purges where entries are in a store: by generations, without scripts, events or a common clock.

use std::{sync::Arc, time::Duration};

use tower_stampede::{
    Cache, CacheTags, Target,
    lock::LockManager,
    store::{Read, Store as _, Write},
};

use crate::{
    paired::workers,
    support::{
        pairs::Pair,
        worker::{
            AMPLE, Handler, Incoming, Outgoing, Worker, caching, failing, layer, settled, text,
            until, uri, waiting,
        },
    },
};

fn tagged(build: usize, request: &Incoming) -> Outgoing {
    let mut response = text(build, request);
    let tag = if request.uri().path() == "/b" {
        "other"
    } else {
        "prices"
    };
    response.extensions_mut().insert(CacheTags::new([tag]));
    response
}

async fn read(workers: &[Worker], caches: &[Cache], path: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for (worker, cache) in workers.iter().zip(caches) {
        texts.push(worker.get(path).await.text().to_owned());
        settled(cache).await;
    }
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_has_returned_is_done_in_every_process() {
    let targets = [
        (Target::uri(&uri("/a")), &["/a", "/a?q=1"][..]),
        (Target::exact_uri(&uri("/a?q=1")), &["/a?q=1"]),
        (Target::tag("prices"), &["/a", "/a?q=1", "/c"]),
        (Target::all(), &["/a", "/a?q=1", "/b", "/c"]),
    ];
    for pair in Pair::all() {
        for (target, purged) in targets {
            let handler = Handler::open();
            let (caches, workers) = workers(&pair, 3, &handler, tagged);
            let mut before = Vec::new();
            for path in ["/a", "/a?q=1", "/b", "/c"] {
                let texts = read(&workers, &caches, path).await;
                assert_eq!(texts, vec![texts[0].clone(); 3]);
                before.push((path, texts[0].clone()));
            }

            let told = caches[0].purge(target).await.unwrap();

            assert_eq!((told.acknowledged, told.processes), (1, None));
            for (path, before) in before {
                // The last one first: it has had the least time.
                for (worker, cache) in workers.iter().zip(&caches).rev() {
                    let is_kept = worker.get(path).await.text() == before;
                    settled(cache).await;
                    let name = pair.name();
                    assert_eq!(
                        is_kept,
                        !purged.contains(&path),
                        "{name}: {target:?} {path}"
                    );
                }
            }
            caches[0].purge(Target::all()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_fences_what_another_process_builds() {
    for pair in Pair::all() {
        for target in [
            Target::uri(&uri("/a")),
            Target::tag("prices"),
            Target::all(),
        ] {
            let handler = Handler::held();
            let (caches, workers) = workers(&pair, 2, &handler, tagged);
            let early = workers[1].herd("/a", 5);
            handler.has_begun(1).await;
            waiting(&caches, 5).await;

            caches[0].purge(target).await.unwrap();
            handler.let_go();

            for answer in early.answers().await {
                assert_eq!(answer.text(), "build 1", "they were there before");
            }
            settled(&caches[1]).await;
            let after = read(&workers, &caches, "/a").await;
            assert_eq!(after, ["build 2", "build 2"], "{}: {target:?}", pair.name());
            caches[0].purge(Target::all()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_after_a_purge_waits_for_no_build_from_before_it_longer_than_its_next_renewal() {
    for pair in Pair::all() {
        let handler = Handler::held();
        let [one, other] = [(); 2].map(|()| {
            let builder = pair.builder().lease_ttl(Duration::from_millis(600));
            builder.build().unwrap()
        });
        let first = handler.worker(&layer(&one), text);
        let second = handler.worker(&layer(&other), text);
        let early = first.herd("/a", 1);
        handler.has_begun(1).await;

        other.purge(&uri("/a")).await.unwrap();
        let late = second.herd("/a", 1);

        // The first one is still held.
        handler.has_begun(2).await;
        handler.let_go();
        assert_eq!(late.answers().await[0].text(), "build 2");
        early.answers().await;
        settled(&one).await;
        assert_eq!(first.get("/a").await.text(), "build 2", "{}", pair.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_purge_is_served_stale_while_one_build_in_the_fleet_refreshes_it() {
    fn lasting(build: usize, request: &Incoming) -> Outgoing {
        let mut response = caching(build, request, "max-age=600, stale-while-revalidate=600");
        response.extensions_mut().insert(CacheTags::new(["prices"]));
        response
    }
    for pair in Pair::all() {
        for target in [
            Target::uri(&uri("/a")),
            Target::tag("prices"),
            Target::all(),
        ] {
            let handler = Handler::open();
            let (caches, first) = workers(&pair, 3, &handler, lasting);
            assert_eq!(read(&first, &caches, "/a").await, ["build 1"; 3]);

            caches[0].soft_purge(target).await.unwrap();

            let held = Handler::held();
            let after: Vec<_> = caches
                .iter()
                .map(|cache| held.worker(&layer(cache), |_, request| lasting(2, request)))
                .collect();
            for worker in &after {
                for answer in worker.herd("/a", 5).answers().await {
                    assert_eq!(answer.text(), "build 1", "{answer:?}");
                }
            }
            held.has_begun(1).await;
            held.let_go();
            for cache in &caches {
                settled(cache).await;
            }
            assert_eq!(read(&after, &caches, "/a").await, ["build 2"; 3]);
            assert_eq!(held.builds(), 1, "{}: {target:?}", pair.name());
            caches[0].purge(Target::all()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_purge_is_served_in_place_of_a_failure_and_fences_what_is_built() {
    fn lasting(build: usize, request: &Incoming) -> Outgoing {
        caching(build, request, "max-age=600, stale-if-error=600")
    }
    for pair in Pair::all() {
        let handler = Handler::open();
        let (caches, workers) = workers(&pair, 2, &handler, lasting);
        read(&workers, &caches, "/a").await;
        let held = Handler::held();
        let slow = held.worker(&layer(&caches[1]), text);
        let early = slow.herd("/b", 1);
        held.has_begun(1).await;

        caches[0].soft_purge(Target::all()).await.unwrap();

        for cache in &caches {
            let broken = Handler::open().worker(&layer(cache), failing);
            assert_eq!(broken.get("/a").await.text(), "build 1", "{}", pair.name());
        }
        held.let_go();
        early.answers().await;
        settled(&caches[1]).await;
        assert_eq!(slow.get("/b").await.text(), "build 2", "{}", pair.name());
    }
}

/// Whether what was being built, when another process purged `tag`, is there afterwards.
async fn outlives(pair: &Pair, (caches, workers): (&[Cache], &[Worker]), tag: &str) -> bool {
    let handler = Handler::held();
    let slow = handler.worker(&layer(&caches[1]), tagged);
    let early = slow.herd("/a", 1);
    handler.has_begun(1).await;
    caches[0].purge_tag(tag).await.unwrap();
    handler.let_go();
    assert_eq!(
        early.answers().await[0].text(),
        "build 1",
        "{}",
        pair.name()
    );
    settled(&caches[1]).await;
    let is_there = workers[0].get("/a").await.outcome.contains("hit");
    settled(&caches[0]).await;
    caches[0].purge(Target::all()).await.unwrap();
    is_there
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_of_the_response_reaches_the_build_that_has_yet_to_name_it() {
    for pair in Pair::all() {
        let cold = || workers(&pair, 2, &Handler::open(), tagged);
        let (caches, workers) = cold();
        assert!(!outlives(&pair, (&caches, &workers), "prices").await);

        // Which tags the response would name nobody knew: whatever was purged meanwhile counts.
        pair.evict_all();
        let (caches, workers) = cold();
        assert!(!outlives(&pair, (&caches, &workers), "unknown").await);

        // Where the process has had the entry before, it knows.
        read(&workers, &caches, "/a").await;
        caches[0].purge(&uri("/a")).await.unwrap();
        assert!(outlives(&pair, (&caches, &workers), "unknown").await);
        read(&workers, &caches, "/a").await;
        caches[0].purge(&uri("/a")).await.unwrap();
        assert!(!outlives(&pair, (&caches, &workers), "prices").await);

        let early = workers[1].get("/a").await;
        settled(&caches[1]).await;
        caches[0].purge_tag("unknown").await.unwrap();
        assert_eq!(workers[0].get("/a").await.text(), early.text());
    }
}

#[tokio::test]
async fn generations_that_are_lost_make_misses_and_bring_nothing_back() {
    let pair = Pair::memory();
    let (store, _) = pair.in_memory();
    for lost in ["stampede:g:all", "stampede:g:any"] {
        let handler = Handler::open();
        let (caches, workers) = workers(&pair, 2, &handler, tagged);
        read(&workers, &caches, "/a").await;
        caches[0].purge_tag("prices").await.unwrap();
        store.remove(lost).await.unwrap();

        let after = read(&workers, &caches, "/a").await;

        assert_eq!(after, ["build 2", "build 2"], "{lost}");
        caches[0].purge(Target::all()).await.unwrap();
    }
}

#[tokio::test]
async fn generations_that_make_no_sense_are_written_anew() {
    let pair = Pair::memory();
    let (store, _) = pair.in_memory();
    let handler = Handler::open();
    let (caches, workers) = workers(&pair, 2, &handler, text);
    let garbage = Write::new("stampede:g:all", "garbage", AMPLE);
    store.put(&garbage).await.unwrap();

    assert_eq!(read(&workers, &caches, "/a").await, ["build 1", "build 1"]);
    store.put(&garbage).await.unwrap();
    caches[0].soft_purge(Target::all()).await.unwrap();

    assert_eq!(read(&workers, &caches, "/a").await, ["build 2", "build 2"]);
    let found = store.get(&[Read::new("stampede:g:all")]).await.unwrap();
    assert_ne!(found[0].as_ref().unwrap().value().unwrap(), "garbage");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_emptied_in_mid_build_costs_builds_and_nothing_else() {
    for pair in Pair::all() {
        let handler = Handler::held();
        let (caches, workers) = workers(&pair, 2, &handler, tagged);
        let early = workers[0].herd("/a", 5).and(workers[1].herd("/a", 5));
        handler.has_begun(1).await;
        waiting(&caches, 10).await;

        pair.evict_all();
        handler.let_go();
        for answer in early.answers().await {
            assert!(answer.text().starts_with("build "), "{answer:?}");
        }
        for cache in &caches {
            settled(cache).await;
        }
        assert!(handler.builds() <= 2, "once for each process at most");

        let builds = handler.builds();
        let texts = read(&workers, &caches, "/a").await;
        assert_eq!(texts[0], texts[1], "{}", pair.name());
        assert!(handler.builds() <= builds + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn purges_from_all_processes_at_once_are_all_done() {
    for pair in Pair::all() {
        let handler = Handler::open();
        let (caches, workers) = workers(&pair, 3, &handler, tagged);
        let texts = read(&workers, &caches, "/a").await;
        let mut purges = Vec::new();
        for round in 0..20 {
            for cache in &caches {
                let cache = cache.clone();
                purges.push(tokio::spawn(async move {
                    cache.purge_tag(format!("flood-{round}")).await.unwrap();
                    cache.soft_purge(Target::tag("another")).await.unwrap();
                }));
            }
        }
        for purge in purges {
            purge.await.unwrap();
        }
        assert_eq!(read(&workers, &caches, "/a").await, texts);

        for cache in &caches {
            cache.purge_tag("prices").await.unwrap();
        }
        for text in read(&workers, &caches, "/a").await {
            assert_ne!(text, texts[0]);
        }
    }
}

/// A late build's entry is not put over a newer one, whatever has become of its lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_has_lost_its_lock_stores_nothing_over_a_newer_one() {
    let pair = Pair::memory();
    let (store, locks) = pair.in_memory();
    let slow = Handler::held();
    let lasting = || {
        let lease = Duration::from_secs(3600);
        let builder = pair.builder().lease_ttl(lease);
        builder.build().unwrap()
    };
    let (one, other) = (lasting(), lasting());
    let early = slow.worker(&layer(&one), |_, request| text(1, request));
    let late = Handler::open().worker(&layer(&other), |_, request| text(2, request));
    let first = early.herd("/a", 1);
    slow.has_begun(1).await;

    // As if the server of the locks had forgotten it.
    for key in held(locks, store).await {
        assert!(locks.lock(key).force_release().await.unwrap());
    }
    assert_eq!(late.get("/a").await.text(), "build 2");
    settled(&other).await;
    slow.let_go();

    assert_eq!(first.answers().await[0].text(), "build 1");
    settled(&one).await;
    assert_eq!(early.get("/a").await.text(), "build 2");
    assert_eq!(late.get("/a").await.text(), "build 2");
}

/// The names of the locks of the keys that the store knows of.
async fn held(
    locks: &LockManager,
    store: &Arc<crate::support::pairs::Counted<tower_stampede::store::MemoryStore>>,
) -> Vec<String> {
    let mut names = Vec::new();
    for asked in store.asked() {
        if let Some(stem) = asked.strip_suffix(":m") {
            let name = format!("{stem}:l");
            if locks.lock(&name).is_held().await.unwrap() {
                names.push(name);
            }
        }
    }
    assert!(!names.is_empty());
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_from_before_a_purge_is_not_told_after_it() {
    for pair in Pair::all() {
        let handler = Handler::held();
        let (caches, workers) = workers(&pair, 2, &handler, failing);
        let first = workers[0].herd("/a", 1);
        handler.has_begun(1).await;
        let waits = workers[1].herd("/a", 3);
        waiting(&caches, 4).await;
        pair.asked(&caches[1..]).await;

        caches[1].purge(&uri("/a")).await.unwrap();
        let late = workers[1].herd("/a", 1);
        until(|| caches[1].stats().waiters == 4).await;
        handler.let_go();

        for answer in first.and(waits).and(late).answers().await {
            assert_eq!(answer.text(), "out of order");
        }
        assert!(handler.builds() >= 2, "{}", pair.name());
    }
}
