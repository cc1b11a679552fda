//! Stale entries: confirmed by the origin, or served while it is down.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;

use crate::http_support::{Down, Site, layer, request, response};

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
    tokio::time::sleep(Duration::from_millis(1)).await;

    assert_eq!(stale.outcome(), "stampede; hit; ttl=-1");
    assert_eq!(site.last_seen()["x-request-id"], "7");
    assert_eq!(site.last_seen()["if-none-match"], "\"a\"");
    assert_eq!(site.get("/", &[]).await.outcome(), "stampede; hit; ttl=29");
}
