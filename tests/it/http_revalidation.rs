//! Stale entries: confirmed by the origin, or served while it is down.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tokio::time::sleep;
use tower::ServiceExt as _;
use tower_stampede::{BufferLayer, Cache};

use crate::{
    http_support::{Down, Site, layer, request, response},
    support::{
        client::{ask, behind, settle, with},
        origin::{Origin, failure, reply},
    },
};

const BRIEF: (&str, &str) = ("cache-control", "max-age=10");
const TAG: (&str, &str) = ("etag", "\"a\"");

/// The first build makes the page; later ones confirm it if they are asked to.
fn confirming(
    first: &'static [(&str, &str)],
    later: &'static [(&str, &str)],
) -> impl Fn(usize, &Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Down>
+ Clone
+ Send
+ Sync
+ 'static {
    move |build, request| {
        Ok(match request.headers().get("if-none-match") {
            Some(_) => response(304, later, ""),
            None => response(200, first, &format!("build {build}")),
        })
    }
}

async fn advance(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_304_renews_the_stale_entry_and_never_replaces_it() {
    let site = Site::new(
        &layer(),
        confirming(
            &[BRIEF, TAG, ("x-kept", "old"), ("x-changed", "old")],
            &[("cache-control", "max-age=20"), TAG, ("x-changed", "new")],
        ),
    );
    site.get("/", &[]).await;
    advance(11).await;

    let confirmed = site.get("/", &[]).await;
    advance(15).await;
    let hit = site.get("/", &[]).await;

    assert_eq!(
        confirmed.outcome(),
        "stampede; fwd=stale; fwd-status=304; stored; ttl=20"
    );
    for answer in [&confirmed, &hit] {
        assert_eq!(
            (answer.status.as_u16(), &answer.body[..]),
            (200, &b"build 1"[..])
        );
        assert_eq!(
            (answer.field("x-kept"), answer.field("x-changed")),
            ("old", "new")
        );
    }
    assert_eq!(
        (hit.outcome(), hit.field("age")),
        ("stampede; hit; ttl=5", "15")
    );
    assert_eq!(site.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_the_page_gets_its_own_304_of_a_renewed_entry() {
    let site = Site::new(&layer(), confirming(&[BRIEF, TAG], &[BRIEF, TAG]));
    site.get("/", &[]).await;
    advance(11).await;

    let answer = site.get("/", &[("if-none-match", "\"a\"")]).await;

    assert_eq!((answer.status.as_u16(), answer.body.len()), (304, 0));
    assert_eq!(site.get("/", &[]).await.outcome(), "stampede; hit; ttl=10");
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_must_be_validated_before_each_use_is() {
    let site = Site::new(
        &layer(),
        confirming(
            &[("cache-control", "no-cache"), TAG],
            &[("cache-control", "no-cache"), TAG],
        ),
    );

    for _ in 0..3 {
        assert_eq!(&site.get("/", &[]).await.body[..], b"build 1");
    }

    assert_eq!(site.builds(), 3);
    assert_eq!(site.last_seen()["if-none-match"], "\"a\"");
}

#[tokio::test(start_paused = true)]
async fn a_changed_page_replaces_the_stale_entry() {
    let site = Site::new(&layer(), |build, _| {
        let tag = format!("\"{build}\"");
        Ok(response(
            200,
            &[BRIEF, ("etag", &tag)],
            &format!("build {build}"),
        ))
    });
    site.get("/", &[]).await;
    advance(11).await;

    let second = site.get("/", &[]).await;

    assert_eq!(&second.body[..], b"build 2");
    assert_eq!(site.last_seen()["if-none-match"], "\"1\"");
    assert_eq!(&site.get("/", &[]).await.body[..], b"build 2");
}

#[tokio::test(start_paused = true)]
async fn a_304_that_means_another_page_updates_nothing() {
    let site = Site::new(
        &layer(),
        confirming(
            &[BRIEF, TAG],
            &[("cache-control", "max-age=1000"), ("etag", "\"b\"")],
        ),
    );
    site.get("/", &[]).await;
    advance(11).await;

    let answer = site.get("/", &[]).await;

    assert_eq!(
        (answer.status.as_u16(), answer.field("etag")),
        (200, "\"a\"")
    );
    assert_eq!(
        answer.outcome(),
        "stampede; fwd=stale; fwd-status=304; detail=validator"
    );
    site.get("/", &[]).await;
    assert_eq!(site.builds(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_entry_without_a_validator_or_a_window_for_it_is_built_anew() {
    let forgetful = layer().keep_for_validation(Duration::ZERO);
    for (layer, first, expected) in [
        (layer(), &[BRIEF][..], "stampede; fwd=stale; stored; ttl=10"),
        (
            layer(),
            &[BRIEF, TAG],
            "stampede; fwd=stale; fwd-status=304; stored; ttl=10",
        ),
        (
            forgetful,
            &[BRIEF, TAG],
            "stampede; fwd=stale; stored; ttl=10",
        ),
    ] {
        let first: Vec<_> = first.to_vec();
        let site = Site::new(&layer, move |_, request| {
            Ok(match request.headers().get("if-none-match") {
                Some(_) => response(304, &[BRIEF, TAG], ""),
                None => response(200, &first, "page"),
            })
        });
        site.get("/", &[]).await;
        advance(11).await;
        assert_eq!(site.get("/", &[]).await.outcome(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_is_down_leaves_the_stale_entry_in_its_place() {
    for (cache_control, down, served) in [
        ("max-age=10, stale-if-error=60", 503, true),
        ("max-age=10, stale-if-error=60", 0, true),
        ("max-age=10", 503, false),
        ("max-age=10, stale-if-error=60, must-revalidate", 503, false),
        (
            "max-age=10, stale-if-error=60, proxy-revalidate",
            502,
            false,
        ),
        ("s-maxage=10, stale-if-error=60", 504, false),
        ("no-cache, stale-if-error=60", 503, false),
    ] {
        let site = Site::new(&layer(), move |build, _| match (build, down) {
            (1, _) => Ok(response(
                200,
                &[("cache-control", cache_control), TAG],
                "page",
            )),
            (_, 0) => Err(Down),
            (_, status) => Ok(response(status, &[], "down")),
        });
        site.get("/", &[]).await;
        advance(11).await;

        let (status, outcome) = match site.try_ask(request(Method::GET, "/", &[])).await {
            Ok(answer) => (answer.status.as_u16(), answer.outcome().to_owned()),
            Err(Down) => (0, String::new()),
        };

        assert_eq!(
            status,
            if served { 200 } else { down },
            "{cache_control} {down}"
        );
        if served {
            let answered = if down == 0 { "" } else { "; fwd-status=503" };
            assert_eq!(
                outcome,
                format!("stampede; fwd=stale{answered}; ttl=-1; detail=stale-if-error")
            );
        }
        assert_eq!(site.builds(), 2, "{cache_control}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_in_the_background_is_conditional_and_carries_the_requests_fields() {
    let site = Site::new(
        &layer(),
        confirming(
            &[
                ("cache-control", "max-age=10, stale-while-revalidate=60"),
                TAG,
            ],
            &[("cache-control", "max-age=30"), TAG],
        ),
    );
    site.get("/", &[]).await;
    advance(11).await;

    let stale = site.get("/", &[("x-request-id", "7")]).await;
    while site.builds() < 2 {
        tokio::task::yield_now().await;
    }
    sleep(Duration::from_millis(1)).await;

    assert_eq!(stale.outcome(), "stampede; hit; ttl=-1");
    assert_eq!(site.last_seen()["x-request-id"], "7");
    assert_eq!(site.last_seen()["if-none-match"], "\"a\"");
    assert_eq!(site.get("/", &[]).await.outcome(), "stampede; hit; ttl=29");
}

// ===== an origin that stays down =====

/// A page of ten seconds from the first build; all later ones fail.
fn failing_after_the_first() -> Origin {
    Origin::new(|call| async move {
        sleep(Duration::from_millis(10)).await;
        match call.number {
            1 => reply(&[("cache-control", "max-age=10")], "page"),
            _ => failure(503, "down"),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_minute_of_failed_builds_costs_a_few_ever_more_rarely_and_never_the_stale_page() {
    let hour = Duration::from_secs(3600);
    for stale in [
        BufferLayer::new(Cache::in_memory()).stale_if_error(hour),
        BufferLayer::new(Cache::in_memory()).stale_while_revalidate(hour),
    ] {
        let origin = failing_after_the_first();
        let service = behind(&stale, &origin);
        ask(&service, with("/", &[])).await;
        sleep(Duration::from_secs(11)).await;

        for _ in 0..60 * 20 {
            sleep(Duration::from_millis(50)).await;
            let answer = ask(&service, with("/", &[])).await;
            assert_eq!((answer.status.as_u16(), answer.text()), (200, "page"));
        }

        let attempts = origin.builds() - 1;
        // After 0, 1, 3, 7, 15 and 31 seconds.
        assert!((5..=7).contains(&attempts), "{attempts}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_goes_on_though_its_client_has_gone() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        let fields = [("cache-control", "max-age=10, stale-while-revalidate=60")];
        reply(&fields, format!("build {}", call.number))
    });
    let service = behind(&layer(), &origin);
    ask(&service, with("/", &[])).await;
    advance(11).await;

    drop(service.clone().oneshot(with("/", &[])).await);
    sleep(Duration::from_millis(200)).await;
    let next = ask(&service, with("/", &[])).await;

    assert_eq!(next.text(), "build 2");
    assert!(next.status_line().starts_with("stampede; hit; ttl="));
}

#[test]
fn a_runtime_that_ends_in_the_middle_of_a_refresh_takes_nothing_with_it() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        if call.number == 2 {
            std::future::pending::<()>().await;
        }
        let fields = [("cache-control", "max-age=0, stale-while-revalidate=60")];
        reply(&fields, format!("build {}", call.number))
    });
    let service = behind(&BufferLayer::new(cache), &origin);
    let run = |requests: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut last = String::new();
            for _ in 0..requests {
                last = ask(&service, with("/", &[])).await.text().to_owned();
                settle().await;
            }
            last
        })
    };

    assert_eq!(run(2), "build 1");
    assert_eq!(origin.builds(), 2);
    let later = run(2);

    assert_eq!(later, "build 3");
}
