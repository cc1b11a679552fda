//! How a build ends, and what those who waited for it get.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep};
use tower_stampede::{Cache, Mode};

use crate::support::{
    client::{Ended, ask, assert_nothing_is_left, behind, get, layer, ms, same, settle},
    origin::{Origin, OriginError, failure, fresh, head, no_store},
};

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
