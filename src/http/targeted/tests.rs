use http::{HeaderValue, header::CACHE_CONTROL};

use super::*;

const CDN: HeaderName = HeaderName::from_static("cdn-cache-control");
const MINE: HeaderName = HeaderName::from_static("mine-cache-control");

fn policy(lines: &[(HeaderName, &'static str)]) -> Policy {
    let mut headers = HeaderMap::new();
    for (name, line) in lines {
        headers.append(name, HeaderValue::from_static(line));
    }
    Policy::of_response(&headers, &[MINE, CDN])
}

fn secs(seconds: u64) -> Delta {
    Delta::Seconds(Duration::from_secs(seconds))
}

#[test]
fn the_first_readable_target_decides_alone() {
    let both = policy(&[
        (CACHE_CONTROL, "no-store, max-age=1"),
        (CDN, "max-age=2"),
        (MINE, "max-age=3"),
    ]);
    assert_eq!(both.origin, Origin::Targeted);
    assert_eq!(both.directives.max_age, secs(3));
    assert!(!both.directives.has(Flag::NoStore));

    let second = policy(&[(MINE, ""), (CDN, "max-age=2, no-store")]);
    assert_eq!(second.directives.max_age, secs(2));
    assert!(second.directives.has(Flag::NoStore));
}

#[test]
fn a_target_is_read_as_a_structured_dictionary() {
    for (line, expected) in [
        ("max-age=60", secs(60)),
        ("foobar, max-age=60", secs(60)),
        ("max-age=60;not-for-you", secs(60)),
        ("max-age=1, max-age=60", secs(60)),
        ("max-age=99999999999", Delta::Seconds(MAX_DELTA)),
        ("max-age=-1", Delta::Invalid),
        ("foobar", Delta::Absent),
    ] {
        let read = policy(&[(CDN, line), (CACHE_CONTROL, "max-age=5")]);
        assert_eq!(
            (read.origin, read.directives.max_age),
            (Origin::Targeted, expected),
            "{line}"
        );
    }
}

#[test]
fn what_does_not_parse_is_ignored() {
    for line in [
        "",
        " ",
        ",",
        "max-age=60,",
        "MaX-aGe=60",
        "max-age =60",
        "max-age= 60",
        "max-age=\"60\"",
        "max-age=60.5",
        "max-age=abc",
        "max-age",
        "max-age=(60)",
        "max-age=60, &&&",
        "max-age=60, x=",
        "no-store=1",
        "max-age=9999999999999999",
        "public=\"x\"",
        "max-age=60; x",
    ] {
        let read = policy(&[(CDN, line), (CACHE_CONTROL, "max-age=5")]);
        let expected = if line.ends_with("; x") {
            secs(60)
        } else {
            secs(5)
        };
        assert_eq!(read.directives.max_age, expected, "{line}");
    }
}

#[test]
fn several_lines_are_one_dictionary() {
    let read = policy(&[(CDN, "max-age=60"), (CDN, "no-cache=\"a, b\", private=c")]);

    assert_eq!(read.directives.max_age, secs(60));
    assert_eq!(read.directives.no_cache.fields(), ["a", "b"]);
    assert_eq!(read.directives.private.fields(), ["c"]);
}

#[test]
fn a_false_directive_is_absent_and_an_odd_list_covers_everything() {
    let read = policy(&[(CDN, "no-store=?0, no-cache=?0, private=(a b)")]);

    assert!(!read.directives.has(Flag::NoStore));
    assert_eq!(read.directives.no_cache, Scope::Absent);
    assert_eq!(read.directives.private, Scope::All);
}
