//! Many who want the same at the same time.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use crate::lock_ground::{MINUTE, ms, on_both, spawn, take};

on_both! {
    async fn sets_that_overlap_exclude_each_other_and_nobody_is_stuck(ground: Ground) {
        const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
        let inside: Arc<[AtomicUsize; 5]> = Arc::default();
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..40_usize {
            let locks = if number % 2 == 0 { &ground.locks } else { &ground.elsewhere };
            let wanted = [number % 5, (number * 3 + 1) % 5, (number * 3 + 1) % 5, (number * 2 + 2) % 5];
            let request = locks.lock_all(wanted.map(|name| NAMES[name])).wait(MINUTE);
            let inside = Arc::clone(&inside);
            tasks.spawn(async move {
                let guard = request.acquire().await.unwrap();
                let names: std::collections::BTreeSet<_> = wanted.into_iter().collect();
                for name in &names {
                    assert_eq!(inside[*name].fetch_add(1, SeqCst), 0);
                }
                sleep(ms(1)).await;
                for name in &names {
                    inside[*name].fetch_sub(1, SeqCst);
                }
                assert!(guard.release().await.unwrap().was_held());
            });
        }

        assert_eq!(timeout(MINUTE, tasks.join_all()).await.unwrap().len(), 40);
    }

    async fn a_preferred_writer_comes_in_although_readers_never_stop(ground: Ground) {
        let done = Arc::new(AtomicBool::new(false));
        let reading = Arc::new(AtomicUsize::new(0));
        let mut readers = tokio::task::JoinSet::new();
        for number in 0..6 {
            let request = ground.elsewhere.read("r").wait(MINUTE);
            let (done, reading) = (Arc::clone(&done), Arc::clone(&reading));
            readers.spawn(async move {
                sleep(ms(number * 3)).await;
                while !done.load(Relaxed) {
                    let guard = request.acquire().await.unwrap();
                    reading.fetch_add(1, SeqCst);
                    // Long enough that there is always a reader.
                    sleep(ms(20)).await;
                    reading.fetch_sub(1, SeqCst);
                    assert!(guard.release().await.unwrap().was_held());
                }
            });
        }
        while reading.load(SeqCst) < 4 {
            sleep(ms(1)).await;
        }

        let before = Instant::now();
        let writer = ground.locks.write("r").prefer_writer().wait(MINUTE).acquire().await.unwrap();
        let waited = before.elapsed();
        assert_eq!(reading.load(SeqCst), 0, "a writer is alone");
        done.store(true, Relaxed);
        assert!(writer.release().await.unwrap().was_held());

        assert!(waited < Duration::from_secs(2), "{waited:?}");
        readers.join_all().await;
    }

    async fn a_writer_and_readers_are_never_inside_together(ground: Ground) {
        let (readers, writers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..60_u64 {
            let locks = if number % 2 == 0 { &ground.locks } else { &ground.elsewhere };
            let (readers, writers) = (Arc::clone(&readers), Arc::clone(&writers));
            let writes = number % 5 == 0;
            let request = if writes { locks.write("r").prefer_writer() } else { locks.read("r") };
            tasks.spawn(async move {
                sleep(ms(fastrand::u64(0..20))).await;
                let guard = request.wait(MINUTE).acquire().await.unwrap();
                let mine = if writes { &writers } else { &readers };
                mine.fetch_add(1, SeqCst);
                sleep(ms(fastrand::u64(0..3))).await;
                assert!(writers.load(SeqCst) == 0 || (writers.load(SeqCst) == 1 && readers.load(SeqCst) == 0));
                mine.fetch_sub(1, SeqCst);
                assert!(guard.release().await.unwrap().was_held());
            });
        }

        assert_eq!(timeout(MINUTE, tasks.join_all()).await.unwrap().len(), 60);
    }

    async fn the_longest_wait_is_still_woken(ground: Ground) {
        let guard = take(&ground.elsewhere.lock("a").persistent()).await;
        let waiting = spawn({
            let request = ground.locks.lock("a").wait(tower_stampede::lock::MAX_DURATION);
            async move { request.acquire().await.map(drop) }
        });
        sleep(ms(20)).await;

        assert!(guard.release().await.unwrap().was_held());

        assert!(timeout(Duration::from_secs(2), waiting).await.unwrap().unwrap().is_ok());
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_larger_than_the_queue_to_the_server_takes_turns() {
    let server = crate::support::redis::RedisServer::start();
    let locks = tower_stampede::lock::LockManager::builder()
        .redis(server.url())
        .command_timeout(Duration::from_secs(5))
        .build()
        .unwrap();
    let mut crowd = tokio::task::JoinSet::new();
    for number in 0..3000 {
        let request = locks.lock(number.to_string());
        crowd.spawn(async move { request.acquire().await });
    }

    for outcome in crowd.join_all().await {
        outcome.unwrap().keep();
    }

    let held: u64 = server.command(&["DBSIZE"]);
    assert_eq!(held, 3000);
}
