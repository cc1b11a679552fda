use http::{
    HeaderName, HeaderValue,
    header::{CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, EXPIRES, SET_COOKIE},
};

use super::*;

const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const NEW: &str = "Mon, 07 Nov 1994 08:49:37 GMT";

fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, line) in lines {
        headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    headers
}

fn freshened(stored: &[(HeaderName, &str)], not_modified: &[(HeaderName, &str)]) -> HeaderMap {
    freshen(&headers(stored), &headers(not_modified)).expect("the 304 is about the entry")
}

#[test]
fn a_build_carries_the_stored_validators() {
    for (stored, tag, modified, expected) in [
        (
            &[(ETAG, "W/\"a\"")][..],
            Some("W/\"a\""),
            None,
            Validation::Conditional,
        ),
        (&[(ETAG, "a")], Some("a"), None, Validation::Conditional),
        (
            &[(LAST_MODIFIED, OLD)],
            None,
            Some(OLD),
            Validation::Conditional,
        ),
        (
            &[(ETAG, "\"a\""), (LAST_MODIFIED, OLD)],
            Some("\"a\""),
            Some(OLD),
            Validation::Conditional,
        ),
        (
            &[(LAST_MODIFIED, "junk")],
            None,
            None,
            Validation::Unconditional,
        ),
        (&[], None, None, Validation::Unconditional),
    ] {
        let mut build = HeaderMap::new();

        assert_eq!(
            condition(&mut build, &headers(stored), |_| false),
            expected,
            "{stored:?}"
        );
        let found = |name| build.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(
            (found(IF_NONE_MATCH), found(IF_MODIFIED_SINCE)),
            (tag, modified)
        );
    }
}

#[test]
fn a_tag_of_our_own_is_not_the_origins_to_compare() {
    let ours = headers(&[(ETAG, "\"ours\""), (LAST_MODIFIED, OLD)]);
    let mut build = HeaderMap::new();

    let validation = condition(&mut build, &ours, |tag| tag == "\"ours\"");

    assert_eq!(validation, Validation::Conditional);
    assert!(!build.contains_key(IF_NONE_MATCH));
    assert_eq!(build[IF_MODIFIED_SINCE], OLD);
}

#[test]
fn a_304_updates_only_the_response_it_is_about() {
    for (stored, not_modified, expected) in [
        (&[(ETAG, "\"a\"")][..], &[(ETAG, "\"a\"")][..], true),
        (&[(ETAG, "\"a\"")], &[(ETAG, "\"b\"")], false),
        (&[(ETAG, "W/\"a\"")], &[(ETAG, "\"a\"")], false),
        (&[(ETAG, "\"a\"")], &[(ETAG, "W/\"a\"")], true),
        (&[(ETAG, "W/\"a\"")], &[(ETAG, "W/\"a\"")], true),
        (&[(ETAG, "W/\"a\"")], &[(ETAG, "W/\"b\"")], false),
        (&[(LAST_MODIFIED, OLD)], &[(ETAG, "\"a\"")], false),
        (&[(LAST_MODIFIED, OLD)], &[(LAST_MODIFIED, OLD)], true),
        (&[(LAST_MODIFIED, OLD)], &[(LAST_MODIFIED, NEW)], false),
        (&[(LAST_MODIFIED, OLD)], &[], true),
        (&[(ETAG, "\"a\"")], &[], true),
    ] {
        let found = freshen(&headers(stored), &headers(not_modified)).is_some();

        assert_eq!(found, expected, "{stored:?} by {not_modified:?}");
    }
}

#[test]
fn a_304_replaces_what_it_says_and_keeps_the_rest() {
    let field = HeaderName::from_static("x-list");
    let fresh = freshened(
        &[
            (CACHE_CONTROL, "max-age=1"),
            (CONTENT_TYPE, "text/plain"),
            (field.clone(), "1"),
            (field.clone(), "2"),
        ],
        &[
            (CACHE_CONTROL, "max-age=2"),
            (field.clone(), "3"),
            (field.clone(), "4"),
            (EXPIRES, NEW),
            (SET_COOKIE, "a=b"),
        ],
    );

    assert_eq!(fresh[CACHE_CONTROL], "max-age=2");
    assert_eq!(fresh[CONTENT_TYPE], "text/plain");
    assert_eq!(fresh[EXPIRES], NEW);
    assert_eq!(fresh[SET_COOKIE], "a=b");
    assert_eq!(fresh.get_all(field).iter().collect::<Vec<_>>(), ["3", "4"]);
}

#[test]
fn the_length_and_the_fields_of_a_connection_are_not_updated() {
    let fresh = freshened(
        &[(CONTENT_LENGTH, "5"), (CONTENT_ENCODING, "gzip")],
        &[
            (CONTENT_LENGTH, "0"),
            (CONNECTION, "x-hop"),
            (HeaderName::from_static("x-hop"), "1"),
            (HeaderName::from_static("keep-alive"), "timeout=5"),
        ],
    );

    assert_eq!(
        fresh,
        headers(&[(CONTENT_LENGTH, "5"), (CONTENT_ENCODING, "gzip")])
    );
}

#[test]
fn age_and_date_are_the_304s() {
    let stored = [(AGE, "30"), (DATE, OLD)];

    assert_eq!(freshened(&stored, &[]), HeaderMap::new());
    let stated = [(AGE, "1"), (DATE, NEW)];
    assert_eq!(freshened(&stored, &stated), headers(&stated));
}
