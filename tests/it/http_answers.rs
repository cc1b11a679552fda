//! Answers from an entry: conditions, ranges, and what gets through to the origin.

use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::sleep;

use crate::{
    http_support::{Site, layer, request, response},
    support::{
        client::{Answer, ask, behind, herd, same, with},
        origin::{Origin, head, reply, whole},
    },
};

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

// ===== HEAD =====

#[tokio::test]
async fn a_head_on_a_cold_key_fills_nothing_unless_the_layer_says_so() {
    for (layer, builds) in [(layer(), 2), (layer().fill_on_head(), 1)] {
        let site = Site::new(&layer, |_, request| {
            let body = if request.method() == Method::HEAD {
                ""
            } else {
                "0123456789"
            };
            Ok(response(200, &[FRESH, ("etag", "\"a\"")], body))
        });

        let head = site.ask(request(Method::HEAD, "/", &[])).await;
        let unchanged = site
            .ask(request(Method::HEAD, "/", &[("if-none-match", "\"a\"")]))
            .await;
        let page = site.get("/", &[]).await;

        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
        assert_eq!(head.field("etag"), "\"a\"");
        assert_eq!(unchanged.status.as_u16(), 304);
        assert_eq!(&page.body[..], b"0123456789");
        let last = site.builds();
        assert_eq!(last, if builds == 1 { 1 } else { 3 });
        assert_eq!(page.outcome().contains("hit"), builds == 1);
    }
}

#[tokio::test]
async fn a_head_that_fills_gets_the_fields_of_the_page_whatever_becomes_of_it() {
    for (fields, outcome) in [
        (&[FRESH][..], "stampede; fwd=uri-miss; stored; ttl=60"),
        (
            &[("cache-control", "no-store")],
            "stampede; fwd=uri-miss; detail=no-store",
        ),
        (&[], "stampede; fwd=uri-miss; detail=no-freshness"),
    ] {
        let site = Site::new(&layer().fill_on_head(), move |_, request| {
            assert_eq!(request.method(), Method::GET);
            let length = ("content-length", "10");
            Ok(response(200, &[fields, &[length]].concat(), "0123456789"))
        });

        let head = site.ask(request(Method::HEAD, "/", &[])).await;

        assert_eq!((head.body.len(), head.field("content-length")), (0, "10"));
        assert_eq!(head.outcome(), outcome);
    }
}

// ===== entity tags of our own =====

#[tokio::test]
async fn what_is_stored_without_a_tag_gets_one_on_request() {
    let page = |_, _: &_| Ok(response(200, &[FRESH], "0123456789"));
    let plain = Site::new(&layer(), page);
    let tagging = Site::new(&layer().generate_etag(), page);

    let first = tagging.get("/", &[]).await;
    let tag = first.field("etag");
    let hit = tagging.get("/", &[]).await;
    let unchanged = tagging.get("/", &[("if-none-match", tag)]).await;
    let part = tagging
        .get("/", &[("range", "bytes=2-3"), ("if-range", tag)])
        .await;

    assert!(tag.starts_with('"'), "{tag}");
    assert_eq!(hit.field("etag"), tag);
    assert_eq!((unchanged.status.as_u16(), unchanged.body.len()), (304, 0));
    assert_eq!((part.status.as_u16(), &part.body[..]), (206, &b"23"[..]));
    assert_eq!(tagging.builds(), 1);
    assert_eq!(plain.get("/", &[]).await.field("etag"), "");
    assert_eq!(plain.get("/", &[]).await.field("etag"), "");
}

#[tokio::test]
async fn a_tag_is_made_only_where_there_is_none_and_what_it_is_of_is_stored() {
    for (status, fields, expected) in [
        (200, &[FRESH, ("etag", "W/\"a\"")][..], "W/\"a\""),
        (200, &[("cache-control", "no-store")], ""),
        (200, &[], ""),
        (404, &[FRESH], ""),
        (200, &[FRESH, ("content-type", "text/event-stream")], ""),
    ] {
        let site = Site::new(&layer().generate_etag(), move |_, _| {
            Ok(response(status, fields, "0123456789"))
        });

        for _ in 0..2 {
            assert_eq!(
                site.get("/", &[]).await.field("etag"),
                expected,
                "{fields:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_page_has_the_same_tag_when_it_is_built_again() {
    let site = Site::new(&layer().generate_etag(), |build, _| {
        let body = if build < 3 { "old" } else { "new" };
        Ok(response(200, &[("cache-control", "max-age=10")], body))
    });
    let first = site.get("/", &[]).await;
    let tag = first.field("etag");

    let mut statuses = Vec::new();
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(11)).await;
        let answer = site.get("/", &[("if-none-match", tag)]).await;
        assert!(!site.last_seen().contains_key("if-none-match"));
        statuses.push(answer.status.as_u16());
    }

    assert_eq!(statuses, [304, 200]);
    assert_eq!(site.builds(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_origin_is_asked_by_its_own_date_and_not_by_our_tag() {
    let modified = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    let brief = ("cache-control", "max-age=10");
    let site = Site::new(&layer().generate_etag(), move |_, request| {
        Ok(match request.headers().get("if-modified-since") {
            Some(_) => response(304, &[brief, modified], ""),
            None => response(200, &[brief, modified], "page"),
        })
    });
    let first = site.get("/", &[]).await;
    tokio::time::advance(Duration::from_secs(11)).await;

    let confirmed = site.get("/", &[]).await;

    assert!(!site.last_seen().contains_key("if-none-match"));
    assert_eq!(
        confirmed.outcome(),
        "stampede; fwd=stale; fwd-status=304; stored; ttl=10"
    );
    assert_eq!(confirmed.field("etag"), first.field("etag"));
    assert_eq!(&confirmed.body[..], b"page");
}

// ===== what belongs to one request alone =====

#[tokio::test(start_paused = true)]
async fn a_304_that_nobody_asked_for_is_its_own_requests_alone() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        if call.number == 1 {
            head(StatusCode::NOT_MODIFIED, &[FRESH, ("etag", "\"x\"")]).map(|()| whole(""))
        } else {
            reply(&[FRESH], "page")
        }
    });
    let service = behind(&layer(), &origin);

    let requests = [
        with("/", &[("if-none-match", "\"x\"")]),
        with("/", &[]),
        with("/", &[]),
    ];
    let answers = herd(&service, requests).answers().await;
    let later = ask(&service, with("/", &[])).await;

    assert_eq!(answers[0].status, 304);
    for answer in answers.iter().skip(1).chain([&later]) {
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "page"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_interim_status_is_neither_stored_nor_shared() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        if call.number == 1 {
            head(StatusCode::EARLY_HINTS, &[FRESH]).map(|()| whole(""))
        } else {
            reply(&[FRESH], "page")
        }
    });
    let service = behind(&layer(), &origin);

    let answers = same(&service, 3, "/").answers().await;
    let later = ask(&service, with("/", &[])).await;

    let statuses: Vec<_> = answers
        .iter()
        .map(|answer| answer.status.as_u16())
        .collect();
    assert_eq!(
        (statuses, later.status.as_u16()),
        (vec![103, 200, 200], 200)
    );
}

#[tokio::test(start_paused = true)]
async fn different_ranges_on_a_cold_key_do_not_wait_for_each_other() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        let mut part = reply(&[FRESH], call.header("range"));
        *part.status_mut() = StatusCode::PARTIAL_CONTENT;
        part
    });
    let service = behind(&layer(), &origin);
    let ranges: Vec<_> = (0..10).map(|at| format!("bytes={at}-{at}")).collect();

    let requests = ranges.iter().map(|range| with("/", &[("range", range)]));
    let answers = herd(&service, requests).answers().await;

    let parts: Vec<_> = answers
        .iter()
        .map(|answer| answer.text().to_owned())
        .collect();
    assert_eq!((parts, origin.peak()), (ranges, 10));
}

#[tokio::test(start_paused = true)]
async fn waiters_use_a_response_that_must_be_validated_and_nobody_later_does() {
    for cache_control in ["no-cache", "max-age=0", "max-age=0, must-revalidate"] {
        let origin = Origin::new(move |call| async move {
            sleep(Duration::from_millis(100)).await;
            let fields = [("cache-control", cache_control), ("etag", "\"a\"")];
            reply(&fields, format!("build {}", call.number))
        });
        let service = behind(&layer(), &origin);

        let answers = same(&service, 50, "/").answers().await;
        let later = ask(&service, with("/", &[])).await;

        assert!(answers.iter().all(|answer| answer.text() == "build 1"));
        assert_eq!(later.text(), "build 2", "{cache_control}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_methods_take_no_part_in_what_gets_wait_for() {
    for method in ["OPTIONS", "CONNECT", "TRACE"] {
        let origin = Origin::new(|call| async move {
            sleep(Duration::from_millis(100)).await;
            reply(&[FRESH], call.parts.method.to_string())
        });
        let service = behind(&layer(), &origin);
        let mut other = with("/", &[]);
        *other.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();

        let answers = herd(&service, [other, with("/", &[]), with("/", &[])])
            .answers()
            .await;

        let texts: Vec<_> = answers.iter().map(Answer::text).collect();
        assert_eq!(texts, [method, "GET", "GET"]);
        assert_eq!(origin.builds(), 2);
    }
}

#[tokio::test]
async fn a_tunnel_keeps_what_the_server_has_tied_to_its_request() {
    #[derive(Clone, Debug, PartialEq)]
    struct Tied(&'static str);

    let origin = Origin::new(|call| async move {
        assert_eq!(call.parts.extensions.get(), Some(&Tied("upgrade")));
        reply(&[], "tunnel")
    });
    let service = behind(&layer(), &origin);
    for (method, fields) in [
        (Method::CONNECT, &[][..]),
        (
            Method::GET,
            &[("connection", "upgrade"), ("upgrade", "websocket")],
        ),
    ] {
        let mut request = with("/chat", fields);
        *request.method_mut() = method;
        request.extensions_mut().insert(Tied("upgrade"));

        assert_eq!(ask(&service, request).await.text(), "tunnel");
    }
    assert_eq!(origin.builds(), 2);
}
