use proptest::prelude::*;

use super::*;

fn response(lines: &[&[u8]]) -> Directives {
    Directives::of_response(&headers(&CACHE_CONTROL, lines))
}

fn request(lines: &[&[u8]]) -> RequestDirectives {
    RequestDirectives::of_request(&headers(&CACHE_CONTROL, lines))
}

fn headers(name: &HeaderName, lines: &[&[u8]]) -> HeaderMap {
    lines
        .iter()
        .map(|line| (name.clone(), HeaderValue::from_bytes(line).unwrap()))
        .collect()
}

fn secs(seconds: u64) -> Delta {
    Delta::Seconds(Duration::from_secs(seconds))
}

#[test]
fn max_age_is_read_to_the_safe_side() {
    let table: &[(&[u8], Delta)] = &[
        (b"max-age=60", secs(60)),
        (b"MaX-aGe=60", secs(60)),
        (b"max-age=\"60\"", secs(60)),
        (b"max-age=\"6\\0\"", secs(60)),
        (b"max-age=003600", secs(3600)),
        (b"foobar, max-age=60", secs(60)),
        (b",, ,max-age=60 , ,", secs(60)),
        (b"max-age=99999999999", Delta::Seconds(MAX_DELTA)),
        (
            b"max-age=99999999999999999999999",
            Delta::Seconds(MAX_DELTA),
        ),
        (b"max-age=60, max-age=60", secs(60)),
        (b"max-age=60, max-age=\"60\"", secs(60)),
        (b"max-age=1, extension=\"max-age=3600\"", secs(1)),
        (b"extension=\"max-age=3600\", max-age=\"1\"", secs(1)),
        (b"extension=\"a\\\", max-age=3600\", max-age=1", secs(1)),
        (b"xmax-age=60", Delta::Absent),
        (b"", Delta::Absent),
        (b"max-age", Delta::Invalid),
        (b"max-age=", Delta::Invalid),
        (b"max-age=\"\"", Delta::Invalid),
        (b"max-age=-60", Delta::Invalid),
        (b"max-age=+60", Delta::Invalid),
        (b"max-age=60.0", Delta::Invalid),
        (b"max-age=60a", Delta::Invalid),
        (b"max-age=a60", Delta::Invalid),
        (b"max-age='60'", Delta::Invalid),
        (b"max-age =60", Delta::Invalid),
        (b"max-age= 60", Delta::Invalid),
        (b"max-age=\"60", Delta::Invalid),
        (b"max-age=\"60\"x", Delta::Invalid),
        (b"max-age=60, max-age=61", Delta::Invalid),
        (b"max-age=x, max-age=60", Delta::Invalid),
        (b"max-age=60;a=b", Delta::Invalid),
        (b"max-age=\xff60", Delta::Invalid),
    ];

    for (line, expected) in table {
        assert_eq!(response(&[line]).max_age, *expected, "{line:?}");
    }
}

#[test]
fn lines_are_read_as_one_list() {
    let directives = response(&[b"max-age=60", b"no-store", b"s-maxage=5"]);

    assert_eq!(directives.max_age, secs(60));
    assert_eq!(directives.s_maxage, secs(5));
    assert!(directives.has(Flag::NoStore));
    assert_eq!(
        response(&[b"max-age=60", b"max-age=30"]).max_age,
        Delta::Invalid
    );
}

#[test]
fn what_restricts_counts_with_an_argument_and_what_widens_does_not() {
    for (line, flag, expected) in [
        ("no-store", Flag::NoStore, true),
        ("No-StOrE", Flag::NoStore, true),
        ("no-store=x", Flag::NoStore, true),
        ("no-store=\"x", Flag::NoStore, true),
        ("x=\"a, no-store", Flag::NoStore, true),
        ("x=\"a, no-store\"", Flag::NoStore, false),
        ("must-revalidate=1", Flag::MustRevalidate, true),
        ("proxy-revalidate", Flag::ProxyRevalidate, true),
        ("public", Flag::Public, true),
        ("public=1", Flag::Public, false),
        ("must-understand", Flag::MustUnderstand, true),
        ("must-understand=1", Flag::MustUnderstand, false),
    ] {
        assert_eq!(response(&[line.as_bytes()]).has(flag), expected, "{line}");
    }
}

#[test]
fn field_names_narrow_no_cache_and_private_only_when_readable() {
    let fields = |names: &[&'static str]| {
        Scope::Fields(names.iter().copied().map(HeaderName::from_static).collect())
    };
    for (line, expected) in [
        ("no-cache", Scope::All),
        ("no-cache=\"\"", Scope::All),
        ("no-cache=", Scope::All),
        ("no-cache=\"a b\"", Scope::All),
        ("no-cache=\"a", Scope::All),
        ("no-cache=\"A, b\"", fields(&["a", "b"])),
        ("no-cache=a", fields(&["a"])),
        ("no-cache=\"a\", no-cache=\"b\"", fields(&["a", "b"])),
        ("no-cache=\"a\", no-cache", Scope::All),
        ("no-cache, no-cache=\"a\"", Scope::All),
        ("max-age=1", Scope::Absent),
    ] {
        assert_eq!(response(&[line.as_bytes()]).no_cache, expected, "{line}");
        let private = line.replace("no-cache", "private");
        assert_eq!(
            response(&[private.as_bytes()]).private,
            expected,
            "{private}"
        );
    }
}

#[test]
fn request_preferences_combine_to_the_stricter_one() {
    let directives = request(&[
        b"max-age=60, max-age=30, min-fresh=5",
        b"min-fresh=9, max-stale",
    ]);

    assert_eq!(directives.max_age, Some(Duration::from_secs(30)));
    assert_eq!(directives.min_fresh, Some(Duration::from_secs(9)));
    assert_eq!(directives.max_stale, Some(MAX_DELTA));
    let junk = request(&[b"max-age=x, max-stale=x, min-fresh=x"]);
    assert_eq!(junk.max_age, Some(Duration::ZERO));
    assert_eq!((junk.max_stale, junk.min_fresh), (None, None));
}

#[test]
fn pragma_counts_only_in_a_request_without_cache_control() {
    let pragma = headers(&PRAGMA, &[b"x, No-Cache"]);
    assert!(RequestDirectives::of_request(&pragma).has(RequestFlag::NoCache));
    assert_eq!(Directives::of_response(&pragma), Directives::default());

    let mut both = pragma;
    both.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
    assert!(!RequestDirectives::of_request(&both).has(RequestFlag::NoCache));
}

fn write(directives: &Directives) -> String {
    let mut members = Vec::new();
    for (name, delta) in [
        ("max-age", directives.max_age),
        ("s-maxage", directives.s_maxage),
        ("stale-while-revalidate", directives.stale_while_revalidate),
        ("stale-if-error", directives.stale_if_error),
    ] {
        match delta {
            Delta::Absent => {}
            Delta::Seconds(seconds) => members.push(format!("{name}={}", seconds.as_secs())),
            Delta::Invalid => members.push(format!("{name}=-1")),
        }
    }
    for (name, scope) in [
        ("no-cache", &directives.no_cache),
        ("private", &directives.private),
    ] {
        match scope {
            Scope::Absent => {}
            Scope::All => members.push(name.to_owned()),
            Scope::Fields(fields) => {
                let names: Vec<_> = fields.iter().map(HeaderName::as_str).collect();
                members.push(format!("{name}=\"{}\"", names.join(", ")));
            }
        }
    }
    for (name, flag) in [
        ("no-store", Flag::NoStore),
        ("public", Flag::Public),
        ("must-revalidate", Flag::MustRevalidate),
        ("proxy-revalidate", Flag::ProxyRevalidate),
        ("must-understand", Flag::MustUnderstand),
    ] {
        if directives.has(flag) {
            members.push(name.to_owned());
        }
    }
    members.join(", ")
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(line in "[\\x20-\\x7e\\x80-\\xff\\t]{0,80}") {
        let line = HeaderValue::from_bytes(line.as_bytes()).unwrap();
        let headers = HeaderMap::from_iter([(CACHE_CONTROL, line)]);
        drop(Directives::of_response(&headers));
        RequestDirectives::of_request(&headers);
    }

    #[test]
    fn writing_and_reading_again_agrees(
        line in "((max-age|s-maxage|stale-if-error|no-cache|private|public|no-store|must-revalidate|x)(=(\"[a-z0-9, =]{0,6}\"|[0-9]{0,4}|\"))?,? ?){0,6}"
    ) {
        let read = response(&[line.as_bytes()]);

        prop_assert_eq!(response(&[write(&read).as_bytes()]), read);
    }
}
