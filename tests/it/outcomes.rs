//! What each answer says of itself in `Cache-Status`.

use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::sleep;
use tower_stampede::{BufferLayer, Cache, Fallback, Target};

use crate::support::{
    client::{Answer, ask, behind, get, same, settle, with},
    origin::{Gate, Origin, failure, fresh, head, held, reply},
};

#[tokio::test(start_paused = true)]
async fn every_answer_says_where_it_comes_from() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        sleep(Duration::from_millis(10)).await;
        reply(
            &[("cache-control", "max-age=60, stale-while-revalidate=60")],
            "body",
        )
    });
    let service = behind(&BufferLayer::new(cache.clone()), &origin);

    let herd = same(&service, 2, "/").answers().await;
    sleep(Duration::from_secs(10)).await;
    let hit = ask(&service, get("/")).await;
    sleep(Duration::from_secs(55)).await;
    let stale = ask(&service, get("/")).await;
    let mut post = get("/");
    *post.method_mut() = Method::POST;
    let post = ask(&service, post).await;
    let bypass = ask(&service, with("/", &[("cookie", "a=b")])).await;

    assert_eq!(
        herd[0].status_line(),
        "stampede; fwd=uri-miss; stored; ttl=60"
    );
    assert_eq!(herd[1].status_line(), "stampede; fwd=uri-miss; collapsed");
    assert_eq!(hit.status_line(), "stampede; hit; ttl=50");
    assert_eq!(hit.header("age"), "10");
    assert!(
        stale.status_line().starts_with("stampede; hit; ttl=-"),
        "{}",
        stale.status_line()
    );
    assert_eq!(post.status_line(), "stampede; fwd=method");
    assert_eq!(bypass.status_line(), "stampede; fwd=bypass; detail=cookie");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_not_stored_says_why() {
    let responses: [(&str, &str, &str); 5] = [
        ("cache-control", "no-store", "no-store"),
        ("cache-control", "private", "private"),
        ("set-cookie", "a=b", "set-cookie"),
        ("vary", "*", "vary-star"),
        ("x-nothing", "of note", "no-freshness"),
    ];
    for (name, value, detail) in responses {
        let origin = Origin::new(move |_| async move { reply(&[(name, value)], "body") });
        let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);

        let answer = ask(&service, get("/")).await;

        assert_eq!(
            answer.status_line(),
            format!("stampede; fwd=uri-miss; detail={detail}")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_and_a_failure_say_so() {
    let cache = Cache::in_memory();
    let gate = Gate::closed();
    let origin = Origin::new(move |call| {
        let gate = gate.clone();
        async move {
            if call.parts.uri.path() == "/stuck" {
                gate.pass().await;
            }
            failure(500, "broken")
        }
    });
    let layer = BufferLayer::new(cache.clone())
        .wait_timeout(Duration::from_millis(10))
        .build_timeout(Duration::from_millis(50));
    let rejecting = behind(&layer.clone().fallback(Fallback::Reject), &origin);
    let patient = behind(&layer, &origin);

    let rejected = ask(&rejecting, get("/stuck")).await;
    let failed = ask(&patient, get("/broken")).await;
    let remembered = ask(&patient, get("/broken")).await;
    let timed_out = ask(&patient, get("/stuck?again")).await;

    assert_eq!(
        rejected.status_line(),
        "stampede; fwd=uri-miss; detail=wait-timeout"
    );
    assert_eq!(
        failed.status_line(),
        "stampede; fwd=uri-miss; detail=failed"
    );
    assert_eq!(
        remembered.status_line(),
        "stampede; fwd=uri-miss; collapsed; detail=failed"
    );
    assert_eq!(timed_out.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        timed_out.status_line(),
        "stampede; fwd=uri-miss; detail=build-timeout"
    );
}

#[tokio::test(start_paused = true)]
async fn one_variant_too_many_is_not_said_to_be_stored() {
    let origin = Origin::new(|call| async move {
        let fields = [("cache-control", "max-age=60"), ("vary", "x-kind")];
        reply(&fields, call.header("x-kind"))
    });
    let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);

    for kind in 0..18 {
        let kind = kind.to_string();
        let answer = ask(&service, with("/", &[("x-kind", &kind)])).await;
        let said = match kind.parse::<u32>() {
            Ok(0..16) => "stampede; fwd=uri-miss; stored; ttl=60",
            _ => "stampede; fwd=uri-miss; detail=variants",
        };
        let line = answer.status_line().replace("vary-miss", "uri-miss");
        assert_eq!(line, said, "{kind}");
    }
    let kept = ask(&service, with("/", &[("x-kind", "7")])).await;
    assert!(kept.status_line().contains("hit"));
}

/// Bodies whose length is known before the answer begins.
#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_the_cache_is_not_said_to_be_stored() {
    let cache = Cache::builder().capacity(1024 * 1024).build().unwrap();
    let whole = Origin::new(|call| async move {
        let large = call.parts.uri.path() == "/large";
        fresh(vec![b'x'; if large { 1_100_000 } else { 500_000 }])
    });
    let (streamed, mut streams) = Origin::streaming(|_| {
        let fields = [
            ("cache-control", "max-age=60"),
            ("content-length", "1100000"),
        ];
        head(StatusCode::OK, &fields)
    });
    let layer = BufferLayer::new(cache.clone()).max_body(2_000_000);
    let said = "stampede; fwd=uri-miss; detail=capacity";

    let service = behind(&layer, &whole);
    for _ in 0..2 {
        assert_eq!(ask(&service, get("/large")).await.status_line(), said);
    }
    let small = ask(&service, get("/small")).await;
    assert!(small.status_line().contains("stored"));
    let again = ask(&service, get("/small")).await;
    assert!(again.status_line().contains("hit"));

    let herd = same(&behind(&layer, &streamed), 1, "/streamed");
    let frames = streams.recv().await.expect("a build has begun");
    frames.data(vec![b'x'; 1_100_000]);
    settle().await;
    frames.end();
    assert_eq!(herd.answers().await[0].status_line(), said);
}

#[tokio::test(start_paused = true)]
async fn what_a_purge_has_overtaken_is_not_said_to_be_stored() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&BufferLayer::new(cache.clone()), &origin);
    let herd = same(&service, 2, "/");
    origin.called(1).await;

    cache.purge(Target::all()).await.unwrap();
    gate.open();

    let answers = herd.answers().await;
    let lines = answers.iter().map(Answer::status_line);
    assert_eq!(
        lines.collect::<Vec<_>>(),
        [
            "stampede; fwd=uri-miss; detail=overtaken",
            "stampede; fwd=uri-miss; collapsed"
        ]
    );
}
