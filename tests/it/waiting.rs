//! How long a request waits, how many may, and what is shared without being stored.

use std::{future::pending, time::Duration};

use http::StatusCode;
use tokio::time::{Instant, sleep};
use tower::limit::ConcurrencyLimit;
use tower_stampede::{BufferLayer, Cache, Fallback, Mode};

use crate::support::{
    client::{
        Answer, ask, assert_nothing_is_left, behind, get, herd, layer, ms, same, settle, targets,
        until,
    },
    origin::{Gate, Origin, failure, fresh, held, no_store, reply},
};

// ===== timeouts and limits =====

#[tokio::test(start_paused = true)]
async fn a_waiter_leaves_at_its_own_wait_timeout() {
    let cache = Cache::in_memory();
    let (origin, _gate) = held();
    let service = behind(
        &layer(&cache)
            .wait_timeout(ms(100))
            .fallback(Fallback::Reject),
        &origin,
    );
    let began = Instant::now();

    let answers = same(&service, 10, "/report").answers().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 503 && answer.header("retry-after") == "1")
    );
    assert!(began.elapsed() < ms(110), "took {:?}", began.elapsed());
    assert_eq!(origin.builds(), 1);
    assert_eq!(cache.stats().waiters, 0);
}

#[tokio::test(start_paused = true)]
async fn waiters_that_time_out_share_one_extra_build() {
    let cache = Cache::in_memory();
    let gate = Gate::closed();
    let stuck = gate.clone();
    let origin = Origin::new(move |call| {
        let gate = stuck.clone();
        async move {
            match call.number {
                1 => gate.pass().await,
                _ => sleep(ms(50)).await,
            }
            fresh(format!("build {}", call.number))
        }
    });
    let service = behind(
        &layer(&cache)
            .wait_timeout(ms(100))
            .fallback(Fallback::Build),
        &origin,
    );
    let began = Instant::now();
    let herd = same(&service, 100, "/report");
    sleep(ms(160)).await;

    assert_eq!(origin.builds(), 2);
    let during = ask(&service, get("/report")).await;
    assert!(
        during.status_line().contains("hit"),
        "the extra build is stored"
    );
    gate.open();
    let answers = herd.answers().await;

    assert_eq!(
        answers[0].text(),
        "build 1",
        "the starter waits for its own"
    );
    assert!(
        answers
            .iter()
            .skip(1)
            .all(|answer| answer.text() == "build 2")
    );
    assert!(began.elapsed() < ms(200));
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_entry_answers_those_whose_wait_timed_out_where_the_layer_says_so() {
    for (fallback, expected) in [(Fallback::Stale, 200), (Fallback::Reject, 503)] {
        let cache = Cache::in_memory();
        let (origin, gate) = held();
        let layer = layer(&cache)
            .wait_timeout(ms(100))
            .stale_if_error(Duration::from_secs(600))
            .fallback([fallback, Fallback::Reject]);
        let service = behind(&layer, &origin);
        gate.let_pass(1);
        ask(&service, get("/report")).await;
        sleep(Duration::from_secs(61)).await;

        let answers = same(&service, 10, "/report").answers().await;

        assert!(
            answers.iter().all(|answer| answer.status == expected),
            "{fallback:?}"
        );
        assert_eq!(origin.builds(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_build_that_hangs_is_dropped_and_its_key_is_free_again() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        if call.number == 1 {
            pending::<()>().await;
        }
        fresh("healed")
    });
    let layer = layer(&cache)
        .build_timeout(ms(500))
        .wait_timeout(Duration::from_secs(5));
    let service = behind(&layer, &origin);
    let began = Instant::now();

    let answers = same(&service, 20, "/report").answers().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 503 && answer.header("retry-after") == "1")
    );
    assert!(began.elapsed() < ms(510));
    assert_nothing_is_left(&cache).await;
    origin.idle().await;
    sleep(ms(1100)).await;
    assert_eq!(ask(&service, get("/report")).await.text(), "healed");
}

#[tokio::test(start_paused = true)]
async fn heads_whose_wait_timed_out_do_not_answer_gets() {
    let cache = Cache::in_memory();
    let gate = Gate::closed();
    let stuck = gate.clone();
    let origin = Origin::new(move |call| {
        let gate = stuck.clone();
        async move {
            match call.number {
                1 | 2 => gate.pass().await,
                _ => sleep(ms(50)).await,
            }
            let text = if call.parts.method == http::Method::HEAD {
                ""
            } else {
                "body"
            };
            fresh(text)
        }
    });
    let service = behind(&layer(&cache).wait_timeout(ms(100)), &origin);
    let requests = ["HEAD", "GET", "HEAD", "GET"].map(|method| {
        let mut request = get("/report");
        *request.method_mut() = method.parse().unwrap();
        request
    });

    let herd = herd(&service, requests);
    origin.called(4).await;
    settle().await;
    sleep(ms(60)).await;
    gate.open();
    let answers = herd.answers().await;

    assert_eq!((answers[1].text(), answers[3].text()), ("body", "body"));
    assert_eq!((answers[0].text(), answers[2].text()), ("", ""));
}

#[tokio::test(start_paused = true)]
async fn readiness_counts_as_building() {
    let cache = Cache::in_memory();
    let (origin, _gate) = held();
    let limited = ConcurrencyLimit::new(origin.clone(), 1);
    let layer = layer(&cache).build_timeout(ms(500));
    let service = tower::Layer::layer(&layer, limited);
    let _first = herd(&service, [get("/first")]);
    origin.called(1).await;
    let began = Instant::now();

    let second = ask(&service, get("/second")).await;

    assert_eq!(second.status, 503);
    assert!(began.elapsed() <= ms(510));
}

#[tokio::test(start_paused = true)]
async fn waiters_over_the_limit_fall_back_at_once() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(
        &layer(&cache).max_waiters(10).fallback(Fallback::Reject),
        &origin,
    );
    let began = Instant::now();

    let mut herd = same(&service, 10, "/report");
    until(&cache, |stats| stats.waiters == 10).await;
    (0..1000).for_each(|_| herd.join(&service, get("/report")));
    until(&cache, |stats| stats.timed_out == 1000).await;
    gate.open();
    let answers = herd.answers().await;

    assert_eq!(
        answers.iter().filter(|answer| answer.status == 200).count(),
        10
    );
    assert_eq!(
        answers.iter().filter(|answer| answer.status == 503).count(),
        1000
    );
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_waiters_of_the_whole_cache_are_limited_too_and_no_key_is_starved_by_those_of_others() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(
        &layer(&cache)
            .max_waiters_in_all(5)
            .fallback(Fallback::Reject),
        &origin,
    );

    let crowd = same(&service, 100, "/popular");
    until(&cache, |stats| stats.timed_out == 95).await;
    let others = herd(&service, (0..10).map(|page| get(&format!("/page/{page}"))));
    origin.called(11).await;
    gate.open();
    let (crowd, others) = (crowd.answers().await, others.answers().await);

    let answered = |answers: &[Answer]| answers.iter().filter(|one| one.status == 200).count();
    assert_eq!((answered(&crowd), answered(&others)), (5, 10));
    assert_eq!(origin.builds(), 11);
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn for_ever_is_a_time_like_any_other() {
    let cache = Cache::builder()
        .failure_memo(Duration::MAX)
        .hit_for_miss(Duration::MAX)
        .build()
        .unwrap();
    let origin = Origin::new(|call| async move {
        match call.parts.uri.path() {
            "/failing" => failure(500, "out of order"),
            "/private" => no_store("yours"),
            _ => reply(&[], "ours"),
        }
    });
    let for_ever = BufferLayer::new(cache)
        .ttl(Duration::MAX)
        .ttl_for(StatusCode::NOT_FOUND, Duration::MAX)
        .jitter(0.0)
        .stale_while_revalidate(Duration::MAX)
        .stale_if_error(Duration::MAX)
        .keep_for_validation(Duration::MAX)
        .heuristic_freshness(Duration::MAX)
        .wait_timeout(Duration::MAX)
        .build_timeout(Duration::MAX)
        .stale_after(Duration::MAX)
        .adaptive_timeouts(Duration::MAX..=Duration::MAX);
    let service = behind(&for_ever, &origin);

    for (path, builds) in [("/report", 1), ("/failing", 1), ("/private", 2)] {
        assert_eq!(
            targets(&service, &origin, &[path, path]).await,
            builds,
            "{path}"
        );
    }
    // Enough for the timeouts to be derived.
    let reports: Vec<_> = (0..10)
        .map(|number| format!("/report?page={number}"))
        .collect();
    let reports: Vec<_> = reports.iter().map(String::as_str).collect();
    assert_eq!(targets(&service, &origin, &reports).await, 10);
}

// ===== what is not stored =====

#[tokio::test(start_paused = true)]
async fn coalescing_without_storing_shares_builds_and_keeps_nothing() {
    for (mode, response, detail) in [
        (Mode::Coalesce, "max-age=60", "coalesce-only"),
        (Mode::Coalesce, "", "coalesce-only"),
        (Mode::Cache, "", "no-freshness"),
    ] {
        let cache = Cache::in_memory();
        let origin = Origin::new(move |call| async move {
            sleep(ms(100)).await;
            reply(
                &[("cache-control", response)],
                format!("build {}", call.number),
            )
        });
        let service = behind(&layer(&cache).mode(mode), &origin);

        let answers = same(&service, 50, "/report").answers().await;
        let later = ask(&service, get("/report")).await;

        assert!(later.status_line().ends_with(&format!("; detail={detail}")));
        assert!(
            answers.iter().all(|answer| answer.text() == "build 1"),
            "{mode:?}"
        );
        assert_eq!(later.text(), "build 2", "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn coalescing_without_storing_still_asks_what_may_be_shared() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(ms(100)).await;
        reply(&[("set-cookie", &format!("sid={}", call.number))], "mine")
    });
    let service = behind(&layer(&cache).mode(Mode::Coalesce), &origin);

    let mut cookies: Vec<_> = same(&service, 20, "/report")
        .answers()
        .await
        .iter()
        .map(|answer| answer.header("set-cookie").to_owned())
        .collect();

    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_with_a_lifetime_of_zero() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(ms(100)).await;
        reply(&[], format!("build {}", call.number))
    });
    let service = behind(&layer(&cache).ttl(Duration::ZERO), &origin);

    let answers = same(&service, 50, "/report").answers().await;
    let later = ask(&service, get("/report")).await;

    assert!(answers.iter().all(|answer| answer.text() == "build 1"));
    assert_eq!(later.text(), "build 2");
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_is_off_leaves_everything_alone() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async { fresh("mine") });
    let service = behind(&layer(&cache).mode(Mode::Bypass), &origin);

    let answers = same(&service, 5, "/report").answers().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.status_line() == "stampede; fwd=bypass; detail=off")
    );
    assert_eq!(origin.builds(), 5);
}
