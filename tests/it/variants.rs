//! Responses that vary by the fields of a request.

use std::time::Duration;

use http::HeaderName;
use tokio::time::sleep;
use tower_stampede::{BufferLayer, Cache};

use crate::support::{
    client::{ask, behind, builds, get, herd, minute, until, with},
    origin::{Origin, fresh, reply},
};

// ===== Vary =====

#[tokio::test(start_paused = true)]
async fn variants_live_side_by_side() {
    let origin = Origin::new(|call| async move {
        reply(
            &[("cache-control", "public"), ("vary", "Accept-Language")],
            call.header("accept-language"),
        )
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    for _ in 0..10 {
        for language in ["de", "fr"] {
            let answer = ask(&service, with("/", &[("accept-language", language)])).await;
            assert_eq!(answer.text(), language);
        }
    }

    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_another_variant_starts_over() {
    for stored in ["max-age=60", ""] {
        let cache = Cache::in_memory();
        let origin = Origin::new(move |call| async move {
            sleep(Duration::from_millis(100)).await;
            reply(
                &[("cache-control", stored), ("vary", "accept-language")],
                call.header("accept-language"),
            )
        });
        let service = behind(&BufferLayer::new(cache.clone()), &origin);
        let languages = |at: usize| if at.is_multiple_of(2) { "de" } else { "fr" };

        let requests = (0..40).map(|at| with("/", &[("accept-language", languages(at))]));
        let answers = herd(&service, requests).answers().await;

        for (at, answer) in answers.iter().enumerate() {
            assert_eq!(answer.text(), languages(at));
        }
        assert_eq!(
            origin.builds(),
            2,
            "one build for each variant, with {stored:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_form_of_vary_is_read() {
    let cases: [(&[&str], [&[(&str, &str)]; 2], usize); 5] = [
        (&["*"], [&[], &[]], 2),
        (&["accept, x-y"], [&[("x-y", "1")], &[("x-y", "2")]], 2),
        (&["accept", "x-y"], [&[("x-y", "1")], &[("x-y", "2")]], 2),
        (
            &["ACCEPT , x-y"],
            [&[("accept", "a, b")], &[("accept", "a,b")]],
            1,
        ),
        (&["accept"], [&[("x-y", "1")], &[("x-y", "2")]], 1),
    ];
    for (vary, requests, expected) in cases {
        let origin = Origin::new(move |_| async move {
            let lines: Vec<_> = vary.iter().map(|line| ("vary", *line)).collect();
            reply(&lines, "variant")
        });
        let service = behind(&minute(&Cache::in_memory()), &origin);
        let count = builds(&service, &origin, requests.map(|headers| ("/", headers))).await;
        assert_eq!(count, expected, "{vary:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn variants_are_bounded() {
    let origin = Origin::new(|call| async move { reply(&[("vary", "x-id")], call.header("x-id")) });
    let cache = Cache::in_memory();
    let service = behind(&minute(&cache), &origin);

    for round in 0..2 {
        for id in 0..100 {
            let answer = ask(&service, with("/", &[("x-id", &id.to_string())])).await;
            assert_eq!(answer.text(), id.to_string(), "{round}");
        }
    }

    assert_eq!(origin.builds(), 200 - 16);
}

#[tokio::test(start_paused = true)]
async fn a_keyed_header_tells_requests_apart_before_any_response() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        fresh(call.header("x-single-flight"))
    });
    let layer = minute(&cache).vary_by_header(HeaderName::from_static("x-single-flight"));
    let service = behind(&layer, &origin);

    let attack = herd(&service, [with("/", &[("x-single-flight", "1")]), get("/")]);
    until(&cache, |stats| stats.flights == 2).await;
    let answers = attack.answers().await;

    assert_eq!((answers[0].text(), answers[1].text()), ("1", ""));
}

#[tokio::test(start_paused = true)]
async fn a_predicate_keeps_a_strange_answer_out() {
    let origin = Origin::new(|call| async move {
        match call.header("x-middleware-prefetch").as_str() {
            "1" => reply(&[("content-length", "0")], ""),
            _ => reply(&[("content-length", "4")], "page"),
        }
    });
    let layer = minute(&Cache::in_memory()).cache_if(|response| {
        response
            .headers
            .get("content-length")
            .is_none_or(|length| length != "0")
    });
    let service = behind(&layer, &origin);

    let prefetch = ask(&service, with("/", &[("x-middleware-prefetch", "1")])).await;
    let page = ask(&service, get("/")).await;

    assert_eq!((prefetch.text(), page.text()), ("", "page"));
}

#[tokio::test(start_paused = true)]
async fn two_caches_share_nothing() {
    let origin = Origin::new(|call| async move { fresh(format!("build {}", call.number)) });
    let one = behind(&minute(&Cache::in_memory()), &origin);
    let other = behind(&minute(&Cache::in_memory()), &origin);

    assert_eq!(ask(&one, get("/")).await.text(), "build 1");
    assert_eq!(ask(&other, get("/")).await.text(), "build 2");
}
