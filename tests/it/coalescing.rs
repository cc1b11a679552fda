//! One build for all who ask at the same time, and clients that go away meanwhile.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::StatusCode;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::ServiceExt as _;
use tower_stampede::{Cache, OnDisconnect};

use crate::support::{
    client::{
        Ended, ask, assert_nothing_is_left, attempt, behind, get, herd, layer, let_through, ms,
        same, settle, until, with,
    },
    origin::{Origin, fresh, held, held_then, no_store, reply, stuck_in_one_place},
};

// ===== one build for all =====

#[tokio::test(start_paused = true)]
async fn a_herd_on_a_cold_key_is_answered_by_one_build() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache), &origin);

    let answers = let_through((&cache, &service), &gate, 1000).await;

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

    let answers = let_through((&cache, &service), &gate, 100).await;

    assert!(answers.iter().all(|answer| answer.text() == "build 2"));
    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn different_keys_do_not_wait_for_each_other() {
    let cache = Cache::in_memory();
    let (origin, gate) = stuck_in_one_place();
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
async fn waiters_are_answered_in_the_order_in_which_they_came() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&layer(&cache), &origin);
    let answered = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = JoinSet::new();
    for number in 0..300 {
        let (service, answered) = (service.clone(), Arc::clone(&answered));
        waiting.spawn(async move {
            drop(attempt(service, get("/report")).await);
            answered.lock().unwrap().push(number);
        });
    }
    until(&cache, |stats| stats.waiters == 300).await;

    gate.open();

    waiting.join_all().await;
    let mut answered = answered.lock().unwrap().clone();
    // The starter hears of its own build directly.
    answered.retain(|number| *number != 0);
    assert_eq!(answered, (1..300).collect::<Vec<_>>());
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
    let (origin, mut streams) = Origin::fresh_streams();
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
    let (origin, mut streams) = Origin::fresh_streams();
    let service = behind(&layer(&cache).on_disconnect(OnDisconnect::Cancel), &origin);
    let reader = same(&service, 1, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("first");
    settle().await;

    reader.leave(0);
    frames.dropped().await;

    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelling_layer_drops_a_build_that_nobody_else_would_have_waited_for() {
    let cache = Cache::in_memory();
    let (origin, gate) = held_then(|_| no_store("yours"));
    let service = behind(&layer(&cache).on_disconnect(OnDisconnect::Cancel), &origin);
    gate.let_pass(1);
    ask(&service, get("/report")).await;

    let only = same(&service, 1, "/report");
    origin.called(2).await;
    only.leave(0);
    origin.idle().await;

    assert_eq!((origin.builds(), origin.finished()), (2, 1));
    assert_nothing_is_left(&cache).await;
}
