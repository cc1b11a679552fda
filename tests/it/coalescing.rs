//! One build for all who ask at the same time, however it ends and whoever goes away meanwhile.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use tokio::time::{Instant, sleep};
use tower::{ServiceExt as _, limit::ConcurrencyLimit};
use tower_stampede::{BufferLayer, Cache, Fallback, Mode, OnDisconnect};

use crate::support::{
    client::{Ended, ask, assert_nothing_is_left, behind, get, herd, same, settle, until, with},
    origin::{Gate, Origin, OriginError, endless, failure, fresh, head, no_store, reply},
};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn layer(cache: &Cache) -> BufferLayer {
    BufferLayer::new(cache.clone())
}

/// An origin that is held by a gate, and then gives a fresh response.
fn held() -> (Origin, Gate) {
    let gate = Gate::closed();
    let passed = gate.clone();
    let origin = Origin::new(move |call| {
        let gate = passed.clone();
        async move {
            gate.pass().await;
            fresh(format!("build {}", call.number))
        }
    });
    (origin, gate)
}

// ===== one build for all =====

#[tokio::test(start_paused = true)]
async fn a_herd_on_a_cold_key_is_answered_by_one_build() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache), &origin);

    let herd = same(&service, 1000, "/report");
    until(&cache, |stats| stats.waiters == 1000).await;
    gate.open();
    let answers = herd.answers().await;

    assert!(answers.iter().all(|answer| answer.text() == "build 1"));
    assert_eq!(origin.builds(), 1);
    let collapsed = answers
        .iter()
        .filter(|answer| answer.status_line().contains("collapsed"));
    assert_eq!(collapsed.count(), 999);
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn a_herd_on_an_expired_key_is_answered_by_one_build() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache), &origin);
    gate.let_pass(1);
    ask(&service, get("/report")).await;
    sleep(Duration::from_secs(61)).await;

    let herd = same(&service, 100, "/report");
    until(&cache, |stats| stats.waiters == 100).await;
    gate.open();
    let answers = herd.answers().await;

    assert!(answers.iter().all(|answer| answer.text() == "build 2"));
    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn different_keys_do_not_wait_for_each_other() {
    let cache = Cache::in_memory();
    let gate = Gate::closed();
    let stuck = gate.clone();
    let origin = Origin::new(move |call| {
        let gate = stuck.clone();
        async move {
            if call.parts.uri.path() == "/stuck" {
                gate.pass().await;
            }
            fresh("here")
        }
    });
    let service = behind(&layer(&cache), &origin);
    let stuck = same(&service, 10, "/stuck");
    until(&cache, |stats| stats.waiters == 10).await;

    let other = ask(&service, get("/other")).await;

    assert_eq!(other.text(), "here");
    gate.open();
    assert_eq!(stuck.answers().await.len(), 10);
    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_answered_in_the_moment_the_build_ends() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        sleep(ms(20)).await;
        fresh("done")
    });
    let service = behind(&layer(&cache), &origin);
    let began = Instant::now();

    same(&service, 200, "/report").answers().await;

    assert!(began.elapsed() < ms(25), "took {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn waiters_are_polled_a_few_times_only() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache), &origin);
    let mut starter = tokio_test::task::spawn(service.clone().oneshot(get("/report")));
    assert!(starter.poll().is_pending());
    let mut waiters: Vec<_> = (0..50)
        .map(|_| tokio_test::task::spawn(service.clone().oneshot(get("/report"))))
        .collect();
    waiters
        .iter_mut()
        .for_each(|waiter| assert!(waiter.poll().is_pending()));

    sleep(Duration::from_secs(2)).await;

    assert!(
        waiters.iter().all(|waiter| !waiter.is_woken()),
        "nothing has happened"
    );
    gate.open();
    origin.idle().await;
    settle().await;
    for waiter in &mut waiters {
        assert!(waiter.is_woken());
        assert!(waiter.poll().is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_looked_before_the_build_landed_does_not_build_again() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async { fresh("once") });
    let service = behind(&layer(&cache), &origin);
    // It has looked, and joins only when it is polled.
    let late = service.clone().oneshot(get("/report"));
    let mut late = tokio_test::task::spawn(late);
    let mut looked = service.clone();
    let looked = tower::Service::call(&mut looked, get("/report"));

    ask(&service, get("/report")).await;
    let looked = looked.await.expect("it is answered");

    assert_eq!(looked.status(), StatusCode::OK);
    assert_eq!(origin.builds(), 1);
    assert!(late.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_looked_before_a_variant_landed_does_not_build_again() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        reply(
            &[("cache-control", "max-age=60"), ("vary", "accept-language")],
            "once",
        )
    });
    let service = behind(&layer(&cache), &origin);
    let request = || with("/report", &[("accept-language", "de")]);
    let mut looked = service.clone();
    let looked = tower::Service::call(&mut looked, request());

    ask(&service, request()).await;
    let looked = looked.await.expect("it is answered");

    assert_eq!(looked.status(), StatusCode::OK);
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn heads_on_a_cold_key_share_one_build_among_themselves() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache), &origin);
    let heads = (0..20).map(|_| {
        let mut request = get("/report");
        *request.method_mut() = http::Method::HEAD;
        request
    });

    let heads = herd(&service, heads);
    until(&cache, |stats| stats.waiters == 20).await;
    gate.open();
    let answers = heads.answers().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.body.is_empty() || answer.text() == "build 1")
    );
    assert_eq!(origin.builds(), 1);
    assert_eq!(ask(&service, get("/report")).await.text(), "build 2");
}

// ===== clients that go away =====

#[tokio::test(start_paused = true)]
async fn a_starter_that_leaves_harms_nobody() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache), &origin);
    let herd = same(&service, 51, "/report");
    until(&cache, |stats| stats.waiters == 51).await;

    herd.leave(0);
    until(&cache, |stats| stats.waiters == 50).await;
    gate.open();
    let answers = herd.answers().await;

    assert_eq!(answers.len(), 50);
    assert!(
        answers
            .iter()
            .all(|answer| answer.text() == "build 1" && answer.end == Ended::Whole)
    );
    assert_eq!(ask(&service, get("/report")).await.text(), "build 1");
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_build_is_finished_and_stored_though_everybody_has_left() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache).on_disconnect(OnDisconnect::Finish), &origin);
    let herd = same(&service, 5, "/report");
    until(&cache, |stats| stats.waiters == 5).await;

    (0..5).for_each(|client| herd.leave(client));
    until(&cache, |stats| stats.waiters == 0).await;
    gate.open();
    until(&cache, |stats| stats.flights == 0).await;

    let answer = ask(&service, get("/report")).await;
    assert!(
        answer.status_line().contains("hit"),
        "{}",
        answer.status_line()
    );
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_build_that_may_be_cancelled_is_dropped_when_the_last_one_leaves() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache).on_disconnect(OnDisconnect::Cancel), &origin);
    let herd = same(&service, 3, "/report");
    until(&cache, |stats| stats.waiters == 3).await;

    herd.leave(0);
    herd.leave(1);
    settle().await;
    assert_eq!(cache.stats().flights, 1, "one is still there");
    herd.leave(2);
    origin.idle().await;

    assert_nothing_is_left(&cache).await;
    assert_eq!(origin.finished(), 0);
    gate.open();
    assert_eq!(ask(&service, get("/report")).await.text(), "build 2");
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_to_a_flight_that_is_being_cancelled_gets_one_of_its_own() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache).on_disconnect(OnDisconnect::Cancel), &origin);
    let mut first = tokio_test::task::spawn(service.clone().oneshot(get("/report")));
    assert!(first.poll().is_pending());
    origin.called(1).await;
    gate.open();

    drop(first);
    let answer = ask(&service, get("/report")).await;

    assert!(answer.text().starts_with("build "));
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn one_layer_finishes_its_builds_while_another_one_cancels_them() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let finishing = behind(&layer(&cache).on_disconnect(OnDisconnect::Finish), &origin);
    let cancelling = behind(&layer(&cache).on_disconnect(OnDisconnect::Cancel), &origin);
    let finish = same(&finishing, 1, "/finish");
    let cancel = same(&cancelling, 1, "/cancel");
    until(&cache, |stats| stats.waiters == 2).await;
    origin.called(2).await;

    finish.leave(0);
    cancel.leave(0);
    until(&cache, |stats| stats.flights == 1).await;
    gate.open();
    until(&cache, |stats| stats.flights == 0).await;

    assert_eq!(origin.finished(), 1);
    assert!(
        ask(&finishing, get("/finish"))
            .await
            .status_line()
            .contains("hit")
    );
}

#[tokio::test(start_paused = true)]
async fn three_hundred_starters_that_leave_in_turn_block_nobody() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache).on_disconnect(OnDisconnect::Cancel), &origin);
    for _ in 0..300 {
        let mut starter = tokio_test::task::spawn(service.clone().oneshot(get("/report")));
        assert!(starter.poll().is_pending());
        tokio::task::yield_now().await;
    }

    gate.open();
    let answer = ask(&service, get("/report")).await;

    assert_eq!(answer.status, StatusCode::OK);
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelling_layer_does_not_cut_the_body_of_its_only_reader() {
    let cache = Cache::in_memory();
    let (origin, mut streams) =
        Origin::streaming(|_| head(StatusCode::OK, &[("cache-control", "max-age=60")]));
    let service = behind(&layer(&cache).on_disconnect(OnDisconnect::Cancel), &origin);
    let reader = same(&service, 1, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("first, ");
    settle().await;

    frames.data("second");
    frames.end();
    let answers = reader.answers().await;

    assert_eq!(
        (answers[0].text(), answers[0].end),
        ("first, second", Ended::Whole)
    );
    assert!(
        ask(&service, get("/report"))
            .await
            .status_line()
            .contains("hit")
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelling_layer_drops_a_body_that_nobody_reads_any_more() {
    let cache = Cache::in_memory();
    let (origin, mut streams) =
        Origin::streaming(|_| head(StatusCode::OK, &[("cache-control", "max-age=60")]));
    let service = behind(&layer(&cache).on_disconnect(OnDisconnect::Cancel), &origin);
    let reader = same(&service, 1, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("first");
    settle().await;

    reader.leave(0);
    frames.dropped().await;

    assert_nothing_is_left(&cache).await;
}

// ===== three endings =====

#[tokio::test(start_paused = true)]
async fn an_error_goes_to_the_starter_and_500_to_the_others() {
    let cache = Cache::in_memory();
    let origin = Origin::fallible(|_| async {
        sleep(ms(100)).await;
        Err(OriginError::new("broken"))
    });
    let service = behind(&layer(&cache), &origin);
    let began = Instant::now();

    let outcomes = same(&service, 20, "/report").outcomes().await;

    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_error()).count(),
        1
    );
    assert!(outcomes[0].is_error(), "the first one started the build");
    assert!(
        outcomes
            .iter()
            .skip(1)
            .all(|outcome| outcome.status() == Some(500))
    );
    assert_eq!(origin.builds(), 1);
    assert!(began.elapsed() < ms(110), "nobody retries in turn");
}

#[tokio::test(start_paused = true)]
async fn a_panic_reaches_the_starter_and_500_the_others() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(ms(100)).await;
        assert!(call.number > 1, "the handler panicked");
        fresh("healed")
    });
    let service = behind(&layer(&cache), &origin);

    let outcomes = same(&service, 20, "/report").outcomes().await;

    assert!(outcomes[0].is_panic());
    assert!(
        outcomes
            .iter()
            .skip(1)
            .all(|outcome| outcome.status() == Some(500))
    );
    assert_eq!(origin.builds(), 1);
    sleep(ms(1100)).await;
    assert_eq!(ask(&service, get("/report")).await.text(), "healed");
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_error_is_shared_as_it_is_and_never_stored() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(ms(100)).await;
        let mut response = failure(503, format!("down {}", call.number));
        response
            .headers_mut()
            .insert("cache-control", "max-age=60".parse().unwrap());
        response
    });
    let service = behind(&layer(&cache).ttl(Duration::from_secs(60)), &origin);

    let answers = same(&service, 20, "/report").answers().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 503 && answer.text() == "down 1")
    );
    assert_eq!(origin.builds(), 1);
    sleep(ms(1100)).await;
    assert_eq!(ask(&service, get("/report")).await.text(), "down 2");
}

#[tokio::test(start_paused = true)]
async fn newcomers_share_a_failure_for_a_moment() {
    let cache = Cache::builder().failure_memo(ms(500)).build().unwrap();
    let origin = Origin::new(|call| async move { failure(500, format!("broken {}", call.number)) });
    let service = behind(&layer(&cache), &origin);

    ask(&service, get("/report")).await;
    let during = ask(&service, get("/report")).await;
    sleep(ms(501)).await;
    let after = ask(&service, get("/report")).await;

    assert_eq!((during.status.as_u16(), during.text()), (500, "broken 1"));
    assert_eq!(after.text(), "broken 2");
}

#[tokio::test(start_paused = true)]
async fn a_failed_head_says_nothing_of_gets() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        if call.parts.method == http::Method::HEAD {
            failure(501, "")
        } else {
            fresh("body")
        }
    });
    let service = behind(&layer(&cache), &origin);
    let mut request = get("/report");
    *request.method_mut() = http::Method::HEAD;

    let probed = ask(&service, request).await;
    let answer = ask(&service, get("/report")).await;

    assert_eq!(probed.status, 501);
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "body"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_takes_its_time_over_its_body_is_not_built_twice() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::streaming(|_| head(StatusCode::BAD_GATEWAY, &[]));
    let service = behind(&layer(&cache), &origin);
    let mut clients = same(&service, 2, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("half");
    settle().await;

    clients.join(&service, get("/report"));
    settle().await;
    frames.end();
    let outcomes = clients.outcomes().await;

    assert!(outcomes.iter().all(|outcome| outcome.status() == Some(502)));
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_too_large_to_share_is_still_a_failure() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        sleep(ms(100)).await;
        failure(500, vec![b'x'; 5000])
    });
    let service = behind(&layer(&cache).max_body(1000), &origin);

    let answers = same(&service, 20, "/report").answers().await;
    let newcomer = ask(&service, get("/report")).await;

    assert_eq!(answers[0].body.len(), 5000, "the starter gets its own");
    assert!(answers.iter().all(|answer| answer.status == 500));
    assert_eq!(newcomer.status, 500);
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_predicate_is_a_failed_build() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        sleep(ms(100)).await;
        fresh("body")
    });
    let service = behind(
        &layer(&cache).cache_if(|_| panic!("the predicate panicked")),
        &origin,
    );

    let outcomes = same(&service, 20, "/report").outcomes().await;

    assert!(outcomes[0].is_panic());
    assert!(
        outcomes
            .iter()
            .skip(1)
            .all(|outcome| outcome.status() == Some(500)),
        "{outcomes:?}"
    );
    assert_eq!(origin.builds(), 1);
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn a_predicate_that_says_no_lets_everybody_go_on_at_once() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(ms(100)).await;
        fresh(format!("build {}", call.number))
    });
    let service = behind(&layer(&cache).cache_if(|_| false), &origin);
    let began = Instant::now();

    let answers = same(&service, 20, "/report").answers().await;

    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(origin.builds(), 20);
    assert!(began.elapsed() <= ms(210));
}

#[tokio::test(start_paused = true)]
async fn an_uncacheable_response_sets_all_waiters_free_together() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(ms(100)).await;
        no_store(format!("build {}", call.number))
    });
    let service = behind(&layer(&cache), &origin);
    let began = Instant::now();

    let mut answers = same(&service, 50, "/report").answers().await;

    assert!(began.elapsed() <= ms(210), "took {:?}", began.elapsed());
    assert_eq!(origin.peak(), 49);
    answers.sort_by_key(|answer| answer.body.clone());
    answers.dedup_by_key(|answer| answer.body.clone());
    assert_eq!(answers.len(), 50, "each got its own");
}

#[tokio::test(start_paused = true)]
async fn waiters_are_free_when_the_head_declares_itself_uncacheable() {
    let cache = Cache::in_memory();
    let (origin, mut streams) =
        Origin::streaming(|_| head(StatusCode::OK, &[("cache-control", "private")]));
    let service = behind(&layer(&cache), &origin);
    let clients = same(&service, 31, "/report");
    let first = streams.recv().await.expect("a build has begun");

    origin.called(31).await;

    first.data("still going");
    assert!(!first.is_dropped());
    drop(first);
    streams.close();
    while streams.recv().await.is_some() {}
    assert!(
        clients
            .answers()
            .await
            .iter()
            .all(|answer| answer.status == 200)
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_what_is_known_to_be_uncacheable() {
    for mode in [Mode::Cache, Mode::Coalesce] {
        let cache = Cache::in_memory();
        let origin = Origin::new(|_| async {
            sleep(ms(100)).await;
            no_store("mine")
        });
        let service = behind(&layer(&cache).mode(mode), &origin);
        ask(&service, get("/report")).await;
        let began = Instant::now();

        same(&service, 50, "/report").answers().await;

        assert!(
            began.elapsed() <= ms(110),
            "{mode:?} took {:?}",
            began.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_storable_response_ends_the_time_of_not_waiting() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(ms(100)).await;
        if call.number == 1 {
            no_store("mine")
        } else {
            fresh(format!("build {}", call.number))
        }
    });
    let service = behind(&layer(&cache), &origin);
    ask(&service, get("/report")).await;

    ask(&service, get("/report")).await;
    let answer = ask(&service, get("/report")).await;
    sleep(Duration::from_secs(61)).await;
    same(&service, 20, "/report").answers().await;

    assert!(answer.status_line().contains("hit"));
    assert_eq!(origin.builds(), 3, "they waited for each other again");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_not_waiting_ends() {
    let cache = Cache::builder()
        .hit_for_miss(Duration::from_secs(5))
        .build()
        .unwrap();
    let origin = Origin::new(|call| async move {
        sleep(ms(100)).await;
        if call.number == 1 {
            no_store("mine")
        } else {
            fresh("ours")
        }
    });
    let service = behind(&layer(&cache), &origin);
    ask(&service, get("/report")).await;
    sleep(Duration::from_secs(6)).await;

    same(&service, 20, "/report").answers().await;

    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_waiters_does_not_count_where_nobody_waits() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        sleep(ms(100)).await;
        no_store("mine")
    });
    let service = behind(&layer(&cache).max_waiters(5), &origin);
    ask(&service, get("/report")).await;

    let answers = same(&service, 50, "/report").answers().await;

    assert!(answers.iter().all(|answer| answer.status == 200));
}

#[tokio::test(start_paused = true)]
async fn a_401_is_not_shared_and_teaches_nothing() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(ms(100)).await;
        if call.number <= 20 {
            failure(401, "who?")
        } else {
            fresh("ours")
        }
    });
    let service = behind(&layer(&cache), &origin);

    same(&service, 20, "/report").answers().await;
    assert_eq!(origin.builds(), 20);
    same(&service, 20, "/report").answers().await;

    assert_eq!(origin.builds(), 21);
}

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
async fn the_waiters_of_the_whole_cache_are_limited_too() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(
        &layer(&cache)
            .max_waiters_in_all(3)
            .fallback(Fallback::Reject),
        &origin,
    );

    let herd = herd(&service, (0..10).map(|page| get(&format!("/page/{page}"))));
    until(&cache, |stats| stats.timed_out == 7).await;
    gate.open();
    let answers = herd.answers().await;

    assert_eq!(
        answers.iter().filter(|answer| answer.status == 200).count(),
        3
    );
    assert_eq!(origin.builds(), 3);
    assert_eq!(ask(&service, get("/later")).await.status, 200);
}

// ===== what is not stored =====

#[tokio::test(start_paused = true)]
async fn coalescing_without_storing_shares_builds_and_keeps_nothing() {
    for (mode, response) in [(Mode::Coalesce, "max-age=60"), (Mode::Cache, "")] {
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
    let gate = Gate::closed();
    let stuck = gate.clone();
    let origin = Origin::new(move |call| {
        let gate = stuck.clone();
        async move {
            if call.parts.uri.path() == "/stuck" {
                gate.pass().await;
            }
            fresh("here")
        }
    });
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

// ===== bodies over the limit =====

#[tokio::test(start_paused = true)]
async fn waiters_of_a_response_that_is_declared_too_large_are_free_at_its_head() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::streaming(|_| {
        head(
            StatusCode::OK,
            &[("cache-control", "max-age=60"), ("content-length", "2000")],
        )
    });
    let service = behind(&layer(&cache).max_body(1000), &origin);
    let clients = same(&service, 20, "/report");
    let first = streams.recv().await.expect("a build has begun");

    origin.called(20).await;

    first.data(vec![b'x'; 2000]);
    first.end();
    streams.close();
    while let Some(frames) = streams.recv().await {
        frames.data(vec![b'x'; 2000]);
    }
    let answers = clients.answers().await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.body.len() == 2000 && answer.end == Ended::Whole)
    );
}

#[tokio::test(start_paused = true)]
async fn room_that_is_short_for_a_moment_does_not_keep_a_key_from_being_shared() {
    let cache = Cache::builder().building_capacity(1000).build().unwrap();
    let (slow, mut streams) =
        Origin::streaming(|_| head(StatusCode::OK, &[("cache-control", "max-age=60")]));
    let occupied = same(&behind(&layer(&cache), &slow), 1, "/slow");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data(vec![b'x'; 900]);
    settle().await;
    let origin = Origin::new(|_| async {
        sleep(ms(100)).await;
        fresh(vec![b'y'; 500])
    });
    let service = behind(&layer(&cache), &origin);
    assert_eq!(ask(&service, get("/report")).await.body.len(), 500);
    frames.end();
    occupied.answers().await;

    same(&service, 20, "/report").answers().await;

    assert_eq!(origin.builds(), 2, "they waited for each other");
}

#[tokio::test(start_paused = true)]
async fn an_endless_body_is_read_no_further_than_the_limit() {
    let cache = Cache::in_memory();
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let origin = Origin::new(move |_| {
        let body = endless(100, Arc::clone(&counted));
        async { head(StatusCode::OK, &[("cache-control", "max-age=60")]).map(|()| body) }
    });
    let service = behind(&layer(&cache).max_body(1000), &origin);

    let response = service
        .clone()
        .oneshot(get("/report"))
        .await
        .expect("the head is there");
    settle().await;

    assert!(taken.load(Ordering::SeqCst) <= 1100);
    assert!(cache.stats().building_bytes <= 1100);
    drop(response);
    assert_nothing_is_left(&cache).await;
}
