//! Purges, hits and stale entries.

use std::{future::pending, time::Duration};

use tokio::time::sleep;
use tower::{ServiceExt as _, limit::ConcurrencyLimit};
use tower_stampede::Cache;

use crate::support::{
    client::{ask, behind, get, herd, layer, ms, same, until, with},
    origin::{Origin, OriginError, failure, fresh, held, reply, stuck_in_one_place},
};

// ===== purges =====

#[tokio::test(start_paused = true)]
async fn a_purge_fences_the_build_that_is_under_way() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache), &origin);
    let before = same(&service, 10, "/report");
    until(&cache, |stats| stats.waiters == 10).await;
    origin.called(1).await;

    cache
        .purge(&"http://shop.example/report".parse().unwrap())
        .await
        .unwrap();
    let after = same(&service, 10, "/report");
    until(&cache, |stats| stats.waiters == 20).await;
    gate.open();

    assert!(
        before
            .answers()
            .await
            .iter()
            .all(|answer| answer.text() == "build 1")
    );
    assert!(
        after
            .answers()
            .await
            .iter()
            .all(|answer| answer.text() == "build 2")
    );
    assert_eq!(ask(&service, get("/report")).await.text(), "build 2");
    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_purge_reaches_every_query_and_variant_and_no_other_path() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        reply(
            &[("cache-control", "max-age=60"), ("vary", "accept-language")],
            format!("{}", call.number),
        )
    });
    let service = behind(&layer(&cache), &origin);
    let requests = || {
        [
            with("/report?a", &[("accept-language", "de")]),
            with("/report?b", &[("accept-language", "fr")]),
            with("/other", &[]),
        ]
    };
    for request in requests() {
        ask(&service, request).await;
    }

    cache
        .purge(&"http://shop.example/report".parse().unwrap())
        .await
        .unwrap();
    let mut after = Vec::new();
    for request in requests() {
        after.push(ask(&service, request).await.text().to_owned());
    }

    assert_eq!(after, ["4", "5", "3"]);
}

#[tokio::test(start_paused = true)]
async fn a_purge_forgets_failures_and_what_stood_in_for_them() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        match call.number {
            2 | 3 => failure(500, "broken"),
            number => fresh(format!("build {number}")),
        }
    });
    let layer = layer(&cache).stale_if_error(Duration::from_secs(600));
    let service = behind(&layer, &origin);
    ask(&service, get("/report")).await;
    sleep(Duration::from_secs(61)).await;
    let purge = || async {
        cache
            .purge(&"http://shop.example/report".parse().unwrap())
            .await
    };

    let stood_in = ask(&service, get("/report")).await;
    purge().await.unwrap();
    let broken = ask(&service, get("/report")).await;
    purge().await.unwrap();
    let healed = ask(&service, get("/report")).await;

    assert_eq!(stood_in.text(), "build 1");
    assert_eq!(
        broken.text(),
        "broken",
        "what was purged does not come back"
    );
    assert_eq!(healed.text(), "build 4");
}

// ===== readiness =====

#[tokio::test(start_paused = true)]
async fn a_hit_passes_a_saturated_inner_service() {
    let cache = Cache::in_memory();
    let (origin, _gate) = stuck_in_one_place();
    let service = tower::Layer::layer(&layer(&cache), ConcurrencyLimit::new(origin.clone(), 1));
    ask(&service, get("/report")).await;
    let _stuck = herd(&service, [get("/stuck")]);
    origin.called(2).await;

    let mut hit = tokio_test::task::spawn(service.clone().oneshot(get("/report")));

    assert!(hit.poll().is_ready(), "a hit awaits nothing");
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_answered_in_one_poll_and_without_a_flight() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async { fresh("here") });
    let service = behind(&layer(&cache), &origin);
    ask(&service, get("/report")).await;
    until(&cache, |stats| stats.flights == 0).await;
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();

    let mut hit = tokio_test::task::spawn(service.clone().oneshot(get("/report")));

    assert!(hit.poll().is_ready());
    assert_eq!(cache.stats().flights, 0);
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        tasks,
        "nothing was spawned"
    );
    assert_eq!(origin.builds(), 1);
}

// ===== stale entries =====

#[tokio::test(start_paused = true)]
async fn a_hundred_stale_hits_are_answered_at_once_and_refreshed_by_one_build() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(
        &layer(&cache).stale_while_revalidate(Duration::from_secs(30)),
        &origin,
    );
    gate.let_pass(1);
    ask(&service, get("/report")).await;
    sleep(Duration::from_secs(61)).await;

    let answers = same(&service, 100, "/report").answers().await;

    assert!(answers.iter().all(|answer| answer.text() == "build 1"));
    gate.open();
    until(&cache, |stats| stats.flights == 0).await;
    assert_eq!(ask(&service, get("/report")).await.text(), "build 2");
    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stale_entry_stands_in_for_every_kind_of_failure() {
    for kind in ["error", "panic", "status", "hang"] {
        let cache = Cache::in_memory();
        let origin = Origin::fallible(move |call| async move {
            match (call.number, kind) {
                (1, _) => Ok(fresh("good")),
                (_, "error") => Err(OriginError::new("broken")),
                (_, "panic") => panic!("the handler panicked"),
                (_, "hang") => pending().await,
                _ => Ok(failure(500, "broken")),
            }
        });
        let layer = layer(&cache)
            .stale_if_error(Duration::from_secs(600))
            .build_timeout(ms(100));
        let service = behind(&layer, &origin);
        ask(&service, get("/report")).await;
        sleep(Duration::from_secs(61)).await;

        let outcomes = same(&service, 10, "/report").outcomes().await;
        let later = ask(&service, get("/report")).await;

        let panicked = usize::from(kind == "panic");
        assert_eq!(
            outcomes.iter().filter(|outcome| outcome.is_panic()).count(),
            panicked,
            "{kind}"
        );
        let good = outcomes
            .iter()
            .filter(|outcome| outcome.status() == Some(200));
        assert_eq!(good.count(), 10 - panicked, "{kind}");
        assert_eq!(later.text(), "good", "{kind}");
        assert_eq!(origin.builds(), 2, "{kind}");
    }
}
