use http::{
    HeaderValue,
    header::{CACHE_CONTROL, EXPIRES, VARY},
};
use proptest::prelude::*;

use super::*;

const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const OLD_850: &str = "Sunday, 06-Nov-94 08:49:37 GMT";
const NEW: &str = "Mon, 07 Nov 1994 08:49:37 GMT";

fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, line) in lines {
        headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    headers
}

fn is_unmodified(request: &[(HeaderName, &str)], stored: &[(HeaderName, &str)]) -> bool {
    let stored = headers(stored);
    evaluate(&headers(request), (StatusCode::OK, &stored)) == Outcome::NotModified
}

#[test]
fn if_none_match_compares_weakly_against_each_tag() {
    for (known, stored, expected) in [
        ("\"a\"", "\"a\"", true),
        ("\"a\"", "\"b\"", false),
        ("W/\"a\"", "\"a\"", true),
        ("\"a\"", "W/\"a\"", true),
        ("W/\"a\"", "W/\"a\"", true),
        ("w/\"a\"", "\"a\"", false),
        ("\"a\", \"b\", \"c\"", "\"a\"", true),
        ("\"a\",\"b\",\"c\"", "\"b\"", true),
        ("\"a\", W/\"b\" , \"c\"", "\"c\"", true),
        (",, \"a\" ,", "\"a\"", true),
        ("\"x, \\\", \"a\"", "\"a\"", true),
        ("\"x, a\"", "\"a\"", false),
        ("\"a,b\"", "\"a,b\"", true),
        ("*", "\"a\"", true),
        ("*, \"b\"", "\"a\"", false),
        ("\"*\"", "\"a\"", false),
        ("\"\u{fc}\"", "\"\u{fc}\"", true),
        ("a", "a", true),
        ("a, b", "b", true),
        ("a", "\"a\"", false),
        ("\"a", "\"a\"", false),
        ("", "\"a\"", false),
    ] {
        let found = is_unmodified(&[(IF_NONE_MATCH, known)], &[(ETAG, stored)]);

        assert_eq!(found, expected, "{known} against {stored}");
    }
}

#[test]
fn tags_may_come_in_several_lines() {
    let lines = [(IF_NONE_MATCH, "\"a\""), (IF_NONE_MATCH, "\"b\"")];

    assert!(is_unmodified(&lines, &[(ETAG, "\"b\"")]));
}

#[test]
fn without_a_tag_only_a_star_matches() {
    assert!(is_unmodified(&[(IF_NONE_MATCH, "*")], &[]));
    assert!(!is_unmodified(&[(IF_NONE_MATCH, "\"a\"")], &[]));
}

#[test]
fn if_modified_since_compares_dates() {
    for (since, stored, expected) in [
        (OLD, &[(LAST_MODIFIED, OLD)][..], true),
        (OLD_850, &[(LAST_MODIFIED, OLD)], true),
        (NEW, &[(LAST_MODIFIED, OLD)], true),
        (OLD, &[(LAST_MODIFIED, NEW)], false),
        (OLD, &[(LAST_MODIFIED, "junk"), (DATE, OLD)], false),
        (NEW, &[(DATE, OLD)], true),
        (OLD, &[(DATE, NEW)], false),
        (OLD, &[], false),
        ("junk", &[(LAST_MODIFIED, OLD)], false),
    ] {
        let found = is_unmodified(&[(IF_MODIFIED_SINCE, since)], stored);

        assert_eq!(found, expected, "{since} against {stored:?}");
    }
    let twice = [(IF_MODIFIED_SINCE, NEW), (IF_MODIFIED_SINCE, NEW)];
    assert!(!is_unmodified(&twice, &[(LAST_MODIFIED, OLD)]));
}

#[test]
fn a_tag_takes_precedence_over_a_date() {
    let stored = [(ETAG, "\"a\""), (LAST_MODIFIED, OLD)];

    let changed = [(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, NEW)];
    assert!(!is_unmodified(&changed, &stored));
    let same = [(IF_NONE_MATCH, "\"a\""), (IF_MODIFIED_SINCE, "junk")];
    assert!(is_unmodified(&same, &stored));
    let untagged = [(LAST_MODIFIED, OLD)];
    assert!(!is_unmodified(&changed, &untagged));
}

#[test]
fn conditions_count_only_for_a_success() {
    let stored = headers(&[(ETAG, "\"a\"")]);
    let request = headers(&[(IF_NONE_MATCH, "\"a\"")]);

    for status in [StatusCode::NOT_FOUND, StatusCode::MOVED_PERMANENTLY] {
        assert_eq!(evaluate(&request, (status, &stored)), Outcome::Proceed);
    }
}

#[test]
fn other_conditions_are_the_origins() {
    assert!(is_for_origin(&headers(&[(IF_MATCH, "*")])));
    assert!(is_for_origin(&headers(&[(IF_UNMODIFIED_SINCE, OLD)])));
    assert!(!is_for_origin(&headers(&[
        (IF_NONE_MATCH, "*"),
        (IF_MODIFIED_SINCE, OLD)
    ])));
}

#[test]
fn a_304_keeps_all_but_the_metadata_of_the_body() {
    let mut response = headers(&[
        (ETAG, "\"a\""),
        (DATE, OLD),
        (VARY, "accept"),
        (CACHE_CONTROL, "max-age=60"),
        (EXPIRES, NEW),
        (LAST_MODIFIED, OLD),
        (CONTENT_TYPE, "text/plain"),
        (CONTENT_LENGTH, "5"),
        (CONTENT_ENCODING, "gzip"),
        (HeaderName::from_static("x-frame-options"), "deny"),
    ]);

    into_not_modified(&mut response);

    let mut left: Vec<_> = response.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(
        left,
        [
            "cache-control",
            "date",
            "etag",
            "expires",
            "last-modified",
            "vary",
            "x-frame-options"
        ]
    );
}

proptest! {
    #[test]
    fn a_listed_tag_is_found_wherever_it_stands(
        tags in proptest::collection::vec("(W/)?\"[a-c, \\\\*/W]{0,4}\"", 1..5),
        pick in any::<proptest::sample::Index>(),
        separator in "[ \t]?,[ ,]{0,2}",
    ) {
        let list = tags.join(&separator);

        let tag: &String = pick.get(&tags);

        prop_assert!(is_unmodified(&[(IF_NONE_MATCH, &list)], &[(ETAG, tag)]));
        prop_assert!(!is_unmodified(&[(IF_NONE_MATCH, &list)], &[(ETAG, "\"d\"")]));
    }

    #[test]
    fn any_list_is_read_to_its_end(list in "[W/\"a, *\\\\]{0,24}") {
        prop_assert!(EntityTags(list.as_bytes()).count() <= list.len());
    }
}
