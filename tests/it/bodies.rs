//! Bodies: only what is complete is stored, and it is shared while it is produced.

use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;
use tower_stampede::Cache;

use crate::support::{
    client::{
        Answer, Ended, Outcome, ask, assert_nothing_is_left, behind, get, layer, same, settle,
        until,
    },
    origin::{Call, Frames, Origin, frames, fresh, head},
};

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

fn of_any_length(_: &Call) -> Response<()> {
    head(StatusCode::OK, &[("cache-control", "max-age=60")])
}

/// A response that declares a length of 100 bytes.
fn of_100(_: &Call) -> Response<()> {
    head(StatusCode::OK, &[FRESH, ("content-length", "100")])
}

/// An origin whose first body comes by `feed`, and all later ones in one piece.
fn first_by(
    feed: impl Fn(Frames) + Send + Sync + 'static,
    first: fn(&Call) -> Response<()>,
) -> Origin {
    Origin::new(move |call| {
        let response = if call.number == 1 {
            let (frames, body) = frames();
            feed(frames);
            first(&call).map(|()| body)
        } else {
            fresh(format!("build {}", call.number))
        };
        async { response }
    })
}

// ===== only what is complete =====

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_not_stored() {
    let endings: [(&str, fn(Frames), fn(&Call) -> Response<()>); 5] = [
        ("error", Frames::fail, of_any_length),
        ("panic", Frames::panic, of_any_length),
        ("short", |frames| frames.data(vec![b'x'; 60]), of_100),
        ("long", |frames| frames.data(vec![b'x'; 101]), of_100),
        ("empty", Frames::end, of_100),
    ];
    for (name, feed, first) in endings {
        let cache = Cache::in_memory();
        let origin = first_by(feed, first);
        let service = behind(&layer(&cache), &origin);

        let outcomes = same(&service, 1, "/report").outcomes().await;
        match &outcomes[0] {
            Outcome::Answer(answer) => {
                assert_eq!(answer.end, Ended::Broken, "{name}")
            }
            other => assert!(other.is_panic() && name == "panic", "{name}: {other:?}"),
        }

        sleep(Duration::from_millis(1100)).await;
        assert_eq!(
            ask(&service, get("/report")).await.text(),
            "build 2",
            "{name}"
        );
        assert_nothing_is_left(&cache).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_for_a_body_that_breaks_off_get_a_plain_failure() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::fresh_streams();
    let service = behind(&layer(&cache), &origin);
    let clients = same(&service, 10, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("first");
    settle().await;

    frames.fail();
    let answers = clients.answers().await;

    assert_eq!(
        (answers[0].status.as_u16(), answers[0].end),
        (200, Ended::Broken)
    );
    assert!(
        answers
            .iter()
            .skip(1)
            .all(|answer| answer.status == 500 && answer.end == Ended::Whole)
    );
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn waiters_who_already_read_a_body_see_it_break_off() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::streaming(of_100);
    let service = behind(&layer(&cache), &origin);
    let clients = same(&service, 10, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("first");
    settle().await;

    frames.end();
    let answers = clients.answers().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.end == Ended::Broken && answer.text() == "first")
    );
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_in_mid_body_does_not_truncate_what_is_stored() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::fresh_streams();
    let service = behind(&layer(&cache), &origin);
    let client = same(&service, 1, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("first, ");
    settle().await;

    client.leave(0);
    settle().await;
    frames.data("second");
    frames.end();
    until(&cache, |stats| stats.flights == 0).await;

    let answer = ask(&service, get("/report")).await;
    assert!(answer.status_line().contains("hit"));
    assert_eq!(answer.text(), "first, second");
}

// ===== while it is produced =====

#[tokio::test(start_paused = true)]
async fn the_first_byte_reaches_the_starter_as_soon_as_it_is_there() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        let (frames, body) = frames();
        tokio::spawn(async move {
            for number in 0..10 {
                sleep(Duration::from_millis(100)).await;
                frames.data(format!("frame {number}\n"));
            }
        });
        head(StatusCode::OK, &[FRESH]).map(|()| body)
    });
    let service = behind(&layer(&cache), &origin);
    let began = Instant::now();

    let response = service
        .clone()
        .oneshot(get("/report"))
        .await
        .expect("the head is there");
    assert_eq!(began.elapsed(), Duration::ZERO);
    let mut body = response.into_body();
    let first = body.frame().await.expect("a frame").expect("it is whole");

    assert_eq!(first.into_data().unwrap(), "frame 0\n");
    assert!(began.elapsed() < Duration::from_millis(110));
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!(rest.len(), 72);
    assert!(began.elapsed() < Duration::from_millis(1010));
}

#[tokio::test(start_paused = true)]
async fn waiters_read_along_where_the_length_is_known_and_small() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::streaming(of_100);
    let service = behind(&layer(&cache), &origin);
    let mut clients: Vec<_> = (0..5)
        .map(|_| tokio_test::task::spawn(service.clone().oneshot(get("/report"))))
        .collect();
    clients
        .iter_mut()
        .for_each(|client| assert!(client.poll().is_pending()));
    let frames = streams.recv().await.expect("a build has begun");
    frames.data(vec![b'x'; 60]);
    settle().await;

    let bodies: Vec<_> = clients
        .iter_mut()
        .map(|client| match client.poll() {
            std::task::Poll::Ready(response) => response.expect("it is answered").into_body(),
            std::task::Poll::Pending => panic!("the head is there"),
        })
        .collect();
    frames.data(vec![b'x'; 40]);
    frames.end();

    for body in bodies {
        assert_eq!(
            body.collect().await.expect("it is whole").to_bytes().len(),
            100
        );
    }
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_comes_while_a_body_that_must_be_validated_is_sent_gets_one_of_their_own() {
    for cache_control in ["no-cache", "max-age=0", "private=\"x\", no-cache"] {
        let cache = Cache::in_memory();
        let (origin, mut streams) = Origin::streaming(move |_| {
            let fields = [
                ("cache-control", cache_control),
                ("etag", "\"a\""),
                ("content-length", "4"),
            ];
            head(StatusCode::OK, &fields)
        });
        let service = behind(&layer(&cache), &origin);
        let before = same(&service, 5, "/report");
        let first = streams.recv().await.expect("a build has begun");
        first.data("ol");
        settle().await;

        let after = same(&service, 5, "/report");
        let second = streams.recv().await.expect("another build has begun");
        first.data("d1");
        first.end();
        second.data("new2");
        second.end();

        for answer in before.answers().await {
            assert_eq!(answer.text(), "old1", "{cache_control}");
        }
        for answer in after.answers().await {
            assert_eq!(answer.text(), "new2", "{cache_control}");
        }
        assert_eq!(origin.builds(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_body_of_unknown_length_wait_for_its_end() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::fresh_streams();
    let service = behind(&layer(&cache), &origin);
    let clients = same(&service, 11, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("first, ");
    settle().await;
    assert_eq!(cache.stats().waiters, 10, "only the starter has its head");

    frames.data("second");
    frames.end();
    let answers = clients.answers().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.text() == "first, second")
    );
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_up_nobody() {
    let cache = Cache::in_memory();
    let (origin, mut streams) =
        Origin::streaming(|_| head(StatusCode::OK, &[FRESH, ("content-length", "50000")]));
    let service = behind(&layer(&cache).max_body(100_000), &origin);
    let slow = tokio_test::task::spawn(service.clone().oneshot(get("/report")));
    let mut slow = slow;
    assert!(slow.poll().is_pending());
    let followers = same(&service, 10, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    settle().await;

    (0..5).for_each(|_| frames.data(vec![b'x'; 10_000]));
    frames.end();
    let answers = followers.answers().await;

    assert!(answers.iter().all(|answer| answer.body.len() == 50_000));
    assert!(cache.stats().building_bytes <= 50_000);
    assert!(
        ask(&service, get("/report"))
            .await
            .status_line()
            .contains("hit")
    );
    let response = slow.await.expect("it is answered");
    assert_eq!(Answer::read(response).await.body.len(), 50_000);
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_longer_than_the_build_may_goes_on_for_its_own_request() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::fresh_streams();
    let service = behind(
        &layer(&cache).build_timeout(Duration::from_secs(1)),
        &origin,
    );
    let clients = same(&service, 3, "/report");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("first, ");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(cache.stats().flights, 0, "the key is free");

    frames.data("second");
    frames.end();
    let answers = clients.answers().await;

    assert_eq!(
        (answers[0].text(), answers[0].end),
        ("first, second", Ended::Whole)
    );
    assert!(answers.iter().skip(1).all(|answer| answer.status == 503));
}
