//! Bodies over the limit, and bodies that pass as they are.

use std::{sync::atomic::Ordering, time::Duration};

use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;
use tower_stampede::Cache;

use crate::support::{
    client::{
        Ended, ask, assert_nothing_is_left, behind, get, herd, layer, same, settle, until, with,
    },
    origin::{Origin, frames, fresh, head, reply},
};

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

// ===== over the limit =====

#[tokio::test(start_paused = true)]
async fn every_byte_over_the_limit_reaches_the_one_who_asked() {
    for (declared, size, stored) in [
        (None, 1000, true),
        (None, 1001, false),
        (Some("1001"), 1001, false),
    ] {
        let cache = Cache::in_memory();
        let (origin, mut streams) = Origin::streaming(move |_| {
            let mut fields = vec![FRESH];
            fields.extend(declared.map(|length| ("content-length", length)));
            head(StatusCode::OK, &fields)
        });
        let service = behind(&layer(&cache).max_body(1000), &origin);
        let client = same(&service, 1, "/report");
        let frames = streams.recv().await.expect("a build has begun");
        for at in 0..size {
            frames.data(vec![u8::try_from(at % 251).unwrap()]);
            if at % 100 == 0 {
                settle().await;
            }
        }
        frames.trailers("x-checksum", "abc");
        frames.end();

        let answers = client.answers().await;

        let expected: Vec<_> = (0..size)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect();
        assert_eq!(answers[0].body, expected);
        assert_eq!(answers[0].end, Ended::Whole);
        let trailers = answers[0].trailers.as_ref().expect("trailers are kept");
        assert_eq!(trailers["x-checksum"], "abc");
        let mut again = tokio_test::task::spawn(service.clone().oneshot(get("/report")));
        assert_eq!(again.poll().is_ready(), stored, "{declared:?} {size}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_body_that_turns_out_too_large_get_their_own() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        let (frames, body) = frames();
        (0..20).for_each(|_| frames.data(format!("{:02}", call.number).repeat(50)));
        head(StatusCode::OK, &[FRESH]).map(|()| body)
    });
    let service = behind(&layer(&cache).max_body(1000), &origin);
    let began = Instant::now();

    let answers = same(&service, 20, "/report").answers().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.body.len() == 2000 && answer.end == Ended::Whole)
    );
    assert!(answers.iter().all(|answer| {
        answer
            .text()
            .as_bytes()
            .chunks(2)
            .all(|pair| pair == &answer.body[..2])
    }));
    assert!(
        began.elapsed() <= Duration::from_millis(210),
        "took {:?}",
        began.elapsed()
    );
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn an_endless_body_costs_no_more_memory_than_the_limit() {
    let cache = Cache::in_memory();
    let (origin, taken) = Origin::endless("max-age=60", 1000);
    let service = behind(&layer(&cache).max_body(10_000), &origin);
    let response = service
        .clone()
        .oneshot(get("/report"))
        .await
        .expect("the head is there");
    settle().await;
    assert!(
        taken.load(Ordering::SeqCst) <= 11_000,
        "it is read frame by frame"
    );

    let mut body = response.into_body();
    let mut read = 0;
    while read < 1_000_000 {
        let frame = body
            .frame()
            .await
            .expect("it is endless")
            .expect("it is whole");
        read += frame.into_data().unwrap().len();
        assert!(cache.stats().building_bytes <= 11_000);
    }

    drop(body);
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn bodies_being_built_are_bounded_together() {
    let cache = Cache::builder().building_capacity(5000).build().unwrap();
    let (origin, mut streams) = Origin::fresh_streams();
    let service = behind(&layer(&cache), &origin);
    let clients = herd(&service, (0..10).map(|page| get(&format!("/page/{page}"))));
    let mut frames = Vec::new();
    while frames.len() < 10 {
        frames.push(streams.recv().await.expect("builds have begun"));
    }

    for _ in 0..10 {
        frames
            .iter()
            .for_each(|frames| frames.data(vec![b'x'; 100]));
        settle().await;
        assert!(cache.stats().building_bytes <= 5000);
    }
    drop(frames);
    let answers = clients.answers().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.body.len() == 1000 && answer.end == Ended::Whole)
    );
    assert_nothing_is_left(&cache).await;
}

// ===== trailers, streams, bytes =====

#[tokio::test(start_paused = true)]
async fn trailers_reach_waiters_and_hits() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::fresh_streams();
    let service = behind(&layer(&cache), &origin);
    let clients = same(&service, 3, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("body");
    frames.trailers("x-checksum", "abc");
    frames.end();

    let mut answers = clients.answers().await;
    answers.push(ask(&service, get("/report")).await);

    assert_eq!(origin.builds(), 1);
    for answer in answers {
        assert_eq!(answer.text(), "body");
        assert_eq!(
            answer.trailers.expect("trailers are kept")["x-checksum"],
            "abc"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_stream_is_passed_on_event_by_event_and_shared_with_nobody() {
    for media in [
        "text/event-stream",
        "multipart/x-mixed-replace; boundary=x",
        "application/x-ndjson",
    ] {
        let cache = Cache::in_memory();
        let (origin, mut streams) =
            Origin::streaming(move |_| head(StatusCode::OK, &[FRESH, ("content-type", media)]));
        let service = behind(&layer(&cache), &origin);
        let response = service
            .clone()
            .oneshot(get("/events"))
            .await
            .expect("the head is there");
        let frames = streams.recv().await.expect("a build has begun");
        let second = same(&service, 1, "/events");
        let others = streams.recv().await.expect("it does not wait");

        frames.data("data: 1\n\n");
        let mut body = response.into_body();
        let event = body.frame().await.expect("an event").expect("it is whole");

        assert_eq!(event.into_data().unwrap(), "data: 1\n\n", "{media}");
        others.end();
        second.answers().await;
        until(&cache, |stats| {
            stats.waiters == 0 && stats.building_bytes == 0
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_may_not_be_stored_is_not_read_by_the_layer() {
    let cache = Cache::in_memory();
    let (origin, taken) = Origin::endless("no-store", 1000);
    let service = behind(&layer(&cache), &origin);

    let response = service
        .clone()
        .oneshot(get("/download"))
        .await
        .expect("the head is there");
    settle().await;

    assert_eq!(taken.load(Ordering::SeqCst), 0);
    drop(response);
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn every_byte_of_a_field_and_a_body_is_kept() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        let mut response = reply(&[FRESH], (0..=255).collect::<Vec<u8>>());
        let name = http::HeaderValue::from_bytes(b"attachment; filename=\"na\xefve.txt\"").unwrap();
        response.headers_mut().insert("content-disposition", name);
        response
            .headers_mut()
            .append("x-many", "one".parse().unwrap());
        response
            .headers_mut()
            .append("x-many", "two".parse().unwrap());
        response
    });
    let service = behind(&layer(&cache), &origin);

    let miss = ask(&service, get("/file")).await;
    let hit = ask(&service, get("/file")).await;

    assert_eq!(origin.builds(), 1);
    for answer in [miss, hit] {
        assert_eq!(answer.body, (0..=255).collect::<Vec<u8>>());
        assert_eq!(
            answer.headers["content-disposition"].as_bytes(),
            b"attachment; filename=\"na\xefve.txt\""
        );
        let many: Vec<_> = answer.headers.get_all("x-many").iter().collect();
        assert_eq!(many, ["one", "two"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_is_answered_from_the_entry_of_a_get() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async { fresh("nine byte") });
    let service = behind(&layer(&cache), &origin);
    ask(&service, get("/report")).await;
    let mut request = with("/report", &[]);
    *request.method_mut() = http::Method::HEAD;

    let answer = ask(&service, request).await;

    assert_eq!(answer.header("content-length"), "9");
    assert_eq!(answer.text(), "");
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_requests_status_is_not_another_ones() {
    for status in [100, 103, 206, 304] {
        let cache = Cache::in_memory();
        let origin = Origin::new(move |call| async move {
            sleep(Duration::from_millis(100)).await;
            let status = StatusCode::from_u16(status).unwrap();
            let mut response = fresh(format!("{}", call.number));
            *response.status_mut() = status;
            response
        });
        let service = behind(&layer(&cache), &origin);

        let answers = same(&service, 5, "/").answers().await;

        assert_eq!(origin.builds(), 5, "{status}");
        assert!(answers.iter().all(|answer| answer.status == status));
    }
}
