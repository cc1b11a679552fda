use http::header::{ACCEPT, CACHE_CONTROL, SET_COOKIE, TRAILER, VIA};
use std::time::Duration;

use super::*;
use crate::http::storable::{Cookies, Judgement, RequestFacts, Rules, judge};

fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, line) in lines {
        headers.append(*name, HeaderValue::from_bytes(line).unwrap());
    }
    headers
}

fn stored(lines: &[(&'static str, &[u8])]) -> HeaderMap {
    for_storing(&headers(lines), &Withheld::default())
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    headers.keys().map(HeaderName::as_str).collect()
}

#[test]
fn fields_of_the_connection_are_not_stored() {
    let kept = stored(&[
        ("Connection", b"a, B"),
        ("connection", b"c"),
        ("a", b"1"),
        ("b", b"2"),
        ("c", b"3"),
        ("d", b"4"),
        ("keep-alive", b"timeout=5"),
        ("proxy-connection", b"x"),
        ("te", b"trailers"),
        ("transfer-encoding", b"chunked"),
        ("upgrade", b"h2c"),
        ("proxy-authenticate", b"Basic"),
        ("proxy-authentication-info", b"x"),
        ("proxy-authorization", b"x"),
        ("trailer", b"x-sum"),
        ("via", b"1.1 up"),
    ]);

    assert_eq!(names(&kept), ["d", TRAILER.as_str(), VIA.as_str()]);
}

#[test]
fn a_request_hides_what_its_connection_names_and_what_is_there() {
    for (connection, hides) in [
        (&b"close"[..], false),
        (b"keep-alive, Upgrade, TE, HTTP2-Settings", false),
        (b"x-absent", false),
        (b"x-tenant", true),
        (b"close , X-TENANT", true),
        (b"host", true),
        (b"\xff, @", false),
    ] {
        let request = headers(&[
            ("connection", connection),
            ("host", b"shop"),
            ("te", b"trailers"),
            ("upgrade", b"h2c"),
            ("x-tenant", b"1"),
        ]);
        assert_eq!(hides_fields(&request), hides, "{connection:?}");
    }
}

#[test]
fn all_else_is_kept_byte_for_byte_and_in_order() {
    let lines: &[(&'static str, &[u8])] = &[
        ("x-b", b"1"),
        ("content-disposition", b"attachment; filename=\xe9.txt"),
        ("x-b", b""),
        ("cache-control", b"max-age=1"),
        ("x-b", b"1"),
    ];

    assert_eq!(stored(lines), headers(lines));
    let kept: Vec<_> = stored(lines).get_all("x-b").iter().cloned().collect();
    assert_eq!(kept, ["1", "", "1"]);
}

#[test]
fn withheld_fields_are_not_stored() {
    let mut response = http::Response::new(()).into_parts().0;
    response.headers = headers(&[
        (
            "cache-control",
            b"max-age=60, no-cache=\"a\", private=\"B, c\"",
        ),
        ("a", b"1"),
        ("b", b"2"),
        ("c", b"3"),
        ("d", b"4"),
        ("set-cookie", b"s=1"),
    ]);
    let rules = Rules {
        cookies: Cookies::Strip,
        ..Rules::default()
    };

    let now = SystemTime::UNIX_EPOCH;
    let Judgement::Store(_, withheld) = judge(&RequestFacts::default(), &response, &rules, now)
    else {
        panic!("the response is storable");
    };

    assert!(withheld.contains(&SET_COOKIE));
    let kept = for_storing(&response.headers, &withheld);
    assert_eq!(names(&kept), [CACHE_CONTROL.as_str(), "d"]);
}

#[test]
fn a_build_is_neither_partial_nor_conditional() {
    let mut request = headers(&[
        ("range", b"bytes=0-1"),
        ("if-range", b"\"x\""),
        ("if-match", b"\"x\""),
        ("if-none-match", b"\"x\""),
        ("if-none-match", b"\"y\""),
        ("if-modified-since", b"x"),
        ("if-unmodified-since", b"x"),
        ("accept", b"*/*"),
    ]);

    for_build(&mut request);

    assert_eq!(names(&request), [ACCEPT.as_str()]);
}

#[test]
fn only_a_missing_date_is_filled_in() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let mut missing = HeaderMap::new();
    let mut junk = headers(&[("date", b"foo")]);

    date(&mut missing, now);
    date(&mut junk, now);

    assert_eq!(missing[DATE], "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(junk[DATE], "foo");
}
