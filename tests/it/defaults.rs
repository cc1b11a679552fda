//! The defaults that the documentation promises, each as it is felt.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, advance, sleep};
use tower_stampede::Cache;

use crate::support::{
    client::{
        Layered, ask, assert_nothing_is_left, behind, get, layer, minute, ms, same, settle,
        targets, until, with,
    },
    origin::{Origin, failure, fresh, head, held, held_if, held_then, no_store, reply, whole},
};

const SECOND: Duration = Duration::from_secs(1);
const MIB: usize = 1024 * 1024;

/// Whether the second of two requests in a row is a hit.
async fn is_kept(service: &Layered) -> bool {
    ask(service, get("/report")).await;
    let second = ask(service, get("/report")).await;
    second.status_line().contains("hit")
}

#[tokio::test(start_paused = true)]
async fn waiters_build_once_more_after_five_seconds_and_a_build_ends_after_thirty() {
    let cache = Cache::in_memory();
    let (origin, _gate) = held_if(
        |call| call.number == 1,
        |call| fresh(format!("build {}", call.number)),
    );
    let service = behind(&layer(&cache), &origin);
    let began = Instant::now();
    let starter = same(&service, 1, "/report");
    origin.called(1).await;

    let waiters = same(&service, 3, "/report").answers().await;
    assert_eq!(began.elapsed().as_secs(), 5);
    assert!(waiters.iter().all(|answer| answer.text() == "build 2"));

    let starter = &starter.answers().await[0];
    assert_eq!(began.elapsed().as_secs(), 30);
    assert_eq!(
        (starter.status.as_u16(), starter.header("retry-after")),
        (503, "1")
    );
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_remembered_for_a_second() {
    let origin = Origin::new(|_| async { failure(500, "out of order") });
    let service = behind(&minute(&Cache::in_memory()), &origin);
    assert_eq!(targets(&service, &origin, &["/report"]).await, 1);

    advance(ms(990)).await;
    assert_eq!(targets(&service, &origin, &["/report"]).await, 0);
    advance(ms(20)).await;
    assert_eq!(targets(&service, &origin, &["/report"]).await, 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_thirty_seconds_for_what_was_uncacheable() {
    let cache = Cache::in_memory();
    let (origin, gate) = held_then(|_| no_store("yours"));
    let service = behind(&layer(&cache), &origin);
    gate.let_pass(1);
    ask(&service, get("/report")).await;

    for (pause, together) in [(29 * SECOND, 4), (31 * SECOND, 1)] {
        advance(pause).await;
        let before = origin.builds();
        let herd = same(&service, 4, "/report");
        settle().await;
        assert_eq!(origin.builds() - before, together);
        gate.let_pass(4);
        herd.answers().await;
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_of_four_mebibytes_are_kept_and_no_larger_ones() {
    for (length, kept) in [(4 * MIB, true), (4 * MIB + 1, false)] {
        let origin = Origin::new(move |_| async move { fresh(vec![b'x'; length]) });
        let service = behind(&layer(&Cache::in_memory()), &origin);

        assert_eq!(is_kept(&service).await, kept, "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_has_sixteen_variants() {
    let origin = Origin::new(|call| async move {
        let fields = [("cache-control", "max-age=60"), ("vary", "x-kind")];
        reply(&fields, call.header("x-kind"))
    });
    let service = behind(&layer(&Cache::in_memory()), &origin);
    let mut kept = 0;

    for kind in 0..20 {
        let kind = kind.to_string();
        ask(&service, with("/report", &[("x-kind", &kind)])).await;
        let again = ask(&service, with("/report", &[("x-kind", &kind)])).await;
        kept += usize::from(again.status_line().contains("hit"));
    }

    assert_eq!(kept, 16);
}

#[tokio::test(start_paused = true)]
async fn the_layers_lifetime_is_for_four_statuses_and_up_to_five_percent_shorter() {
    for status in [200, 201, 203, 204, 300, 301, 302, 307, 308, 404, 410, 451] {
        let status = StatusCode::from_u16(status).unwrap();
        let origin = Origin::new(move |_| async move { head(status, &[]).map(|()| whole("")) });
        let service = behind(&minute(&Cache::in_memory()), &origin);
        let first = ask(&service, get("/report")).await;

        let kept = is_kept(&service).await;

        assert_eq!(
            kept,
            [200, 203, 301, 308].contains(&status.as_u16()),
            "{status}"
        );
        if let Some((_, ttl)) = first.status_line().split_once("ttl=") {
            assert!((57..=60).contains(&ttl.parse::<u64>().unwrap()), "{ttl}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_nor_served_stale_that_nobody_asked_for() {
    let unstated = Origin::new(|_| async { reply(&[], "body") });
    let service = behind(&layer(&Cache::in_memory()), &unstated);
    let first = ask(&service, get("/report")).await;
    assert!(first.status_line().ends_with("detail=no-freshness"));
    assert!(!is_kept(&service).await);

    let failing = Origin::new(|call| async move {
        match call.number {
            1 => fresh("body"),
            _ => failure(500, "out of order"),
        }
    });
    let service = behind(&layer(&Cache::in_memory()), &failing);
    ask(&service, get("/report")).await;
    sleep(61 * SECOND).await;
    assert_eq!(ask(&service, get("/report")).await.status, 500);
}

#[tokio::test(start_paused = true)]
async fn a_build_is_finished_though_its_only_client_leaves() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache), &origin);
    let only = same(&service, 1, "/report");
    origin.called(1).await;

    only.leave(0);
    until(&cache, |stats| stats.waiters == 0).await;
    gate.open();
    origin.idle().await;

    assert_eq!(origin.finished(), 1);
    let later = ask(&service, get("/report")).await;
    assert!(later.status_line().contains("hit"));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_wait_for_one_build_and_the_next_one_falls_back() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache), &origin);

    let crowd = same(&service, 10_000, "/report");
    until(&cache, |stats| stats.waiters == 10_000).await;
    let more = same(&service, 1, "/report");
    origin.called(2).await;
    gate.open();

    assert_eq!(crowd.answers().await.len(), 10_000);
    assert_eq!(more.answers().await[0].text(), "build 2");
    assert_eq!(cache.stats().timed_out, 1);
}
