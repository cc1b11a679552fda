//! Answers from an entry: conditions, ranges, and what gets through to the origin.

use http::Method;

use crate::http_support::{Site, layer, request, response};

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

fn site() -> Site {
    Site::new(&layer(), |_, _| {
        Ok(response(
            200,
            &[
                FRESH,
                ("etag", "\"a\""),
                ("content-type", "text/plain"),
                ("content-length", "10"),
            ],
            "0123456789",
        ))
    })
}

#[tokio::test]
async fn a_condition_is_answered_from_the_entry() {
    let site = site();
    site.get("/", &[]).await;

    let same = site.get("/", &[("if-none-match", "W/\"a\"")]).await;
    let other = site.get("/", &[("if-none-match", "\"b\"")]).await;

    assert_eq!((same.status.as_u16(), same.body.len()), (304, 0));
    assert_eq!(
        (same.field("etag"), same.field("cache-control")),
        ("\"a\"", "max-age=60")
    );
    assert_eq!(
        (same.field("content-length"), same.field("content-type")),
        ("", "")
    );
    assert!(same.headers.contains_key("date") && same.headers.contains_key("age"));
    assert_eq!(
        (other.status.as_u16(), &other.body[..]),
        (200, &b"0123456789"[..])
    );
    assert_eq!(site.builds(), 1);
}

#[tokio::test]
async fn a_condition_on_a_cold_key_builds_the_whole_and_is_answered_from_it() {
    let site = site();

    let first = site.get("/", &[("if-none-match", "\"a\"")]).await;
    let second = site.get("/", &[]).await;

    assert_eq!(first.status.as_u16(), 304);
    assert_eq!(first.outcome(), "stampede; fwd=uri-miss; stored; ttl=60");
    assert!(!site.last_seen().contains_key("if-none-match"));
    assert_eq!(
        (second.status.as_u16(), &second.body[..]),
        (200, &b"0123456789"[..])
    );
    assert_eq!(site.builds(), 1);
}

#[tokio::test]
async fn a_condition_that_only_the_origin_may_evaluate_bypasses() {
    let site = site();
    site.get("/", &[]).await;

    let answer = site.get("/", &[("if-match", "\"a\"")]).await;

    assert_eq!(answer.outcome(), "stampede; fwd=bypass; detail=condition");
    assert_eq!(site.last_seen()["if-match"], "\"a\"");
}

#[tokio::test]
async fn ranges_are_cut_from_the_entry() {
    let site = site();
    site.get("/", &[]).await;

    for (range, body, content_range) in [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
    ] {
        let part = site.get("/", &[("range", range)]).await;
        assert_eq!(
            (part.status.as_u16(), &part.body[..]),
            (206, body.as_bytes()),
            "{range}"
        );
        assert_eq!(part.field("content-range"), content_range);
        assert_eq!(part.field("content-length"), body.len().to_string());
    }
    let beyond = site.get("/", &[("range", "bytes=20-")]).await;
    assert_eq!(
        (beyond.status.as_u16(), beyond.field("content-range")),
        (416, "bytes */10")
    );
    assert_eq!(
        (beyond.body.len(), beyond.field("content-length")),
        (0, "0")
    );
    assert_eq!(site.builds(), 1);
}

#[tokio::test]
async fn several_ranges_come_as_parts_with_a_boundary() {
    let site = site();
    site.get("/", &[]).await;

    let parts = site.get("/", &[("range", "bytes=0-1,8-9")]).await;

    assert_eq!(parts.status.as_u16(), 206);
    let boundary = parts
        .field("content-type")
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let text = String::from_utf8(parts.body.to_vec()).unwrap();
    assert_eq!(text.matches(boundary).count(), 3);
    assert!(text.contains("Content-Range: bytes 0-1/10\r\n\r\n01\r\n"));
    assert_eq!(parts.field("content-length"), parts.body.len().to_string());
}

#[tokio::test]
async fn a_range_counts_only_after_the_condition_and_only_for_get() {
    let site = site();
    site.get("/", &[]).await;

    let unchanged = site
        .get("/", &[("range", "bytes=0-1"), ("if-none-match", "\"a\"")])
        .await;
    let outdated = site
        .get("/", &[("range", "bytes=0-1"), ("if-range", "\"old\"")])
        .await;
    let head = site
        .ask(request(Method::HEAD, "/", &[("range", "bytes=0-1")]))
        .await;

    assert_eq!(unchanged.status.as_u16(), 304);
    assert_eq!((outdated.status.as_u16(), outdated.body.len()), (200, 10));
    assert_eq!(
        (
            head.status.as_u16(),
            head.field("content-length"),
            head.body.len()
        ),
        (200, "10", 0)
    );
}

#[tokio::test]
async fn a_range_on_a_cold_key_passes_through_and_fills_nothing() {
    let site = Site::new(&layer(), |_, request| {
        Ok(match request.headers().get("range") {
            Some(_) => response(206, &[FRESH, ("content-range", "bytes 0-1/10")], "01"),
            None => response(200, &[FRESH], "0123456789"),
        })
    });

    let part = site.get("/", &[("range", "bytes=0-1")]).await;
    let whole = site.get("/", &[]).await;

    assert_eq!((part.status.as_u16(), &part.body[..]), (206, &b"01"[..]));
    assert_eq!(part.outcome(), "stampede; fwd=uri-miss; detail=range");
    assert_eq!((whole.status.as_u16(), whole.body.len()), (200, 10));
    assert_eq!(site.builds(), 2);
}

#[tokio::test]
async fn a_range_on_a_cold_key_builds_the_whole_where_the_layer_says_so() {
    let site = Site::new(&layer().fill_on_range(), |_, _| {
        Ok(response(200, &[FRESH], "0123456789"))
    });

    let part = site.get("/", &[("range", "bytes=0-1")]).await;
    let whole = site.get("/", &[]).await;

    assert_eq!((part.status.as_u16(), &part.body[..]), (206, &b"01"[..]));
    assert_eq!((whole.status.as_u16(), whole.body.len()), (200, 10));
    assert_eq!(site.builds(), 1);
    assert!(!site.last_seen().contains_key("range"));
}

#[tokio::test]
async fn an_uncacheable_response_to_a_stripped_condition_is_still_compared() {
    let site = Site::new(&layer(), |_, _| {
        Ok(response(
            200,
            &[("cache-control", "no-store"), ("etag", "\"a\"")],
            "secret",
        ))
    });

    let answer = site.get("/", &[("if-none-match", "\"a\"")]).await;

    assert_eq!((answer.status.as_u16(), answer.body.len()), (304, 0));
    assert_eq!(answer.outcome(), "stampede; fwd=uri-miss; detail=no-store");
}
