use http::{HeaderValue, header::CACHE_CONTROL};

use super::*;
use crate::http::storable::Ttl;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + 20_000 * DAY
}

fn at(offset: i64) -> String {
    let shift = Duration::from_secs(offset.unsigned_abs());
    httpdate::fmt_http_date(if offset < 0 {
        now() - shift
    } else {
        now() + shift
    })
}

fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, line) in lines {
        headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    headers
}

fn evaluate(lines: &[(HeaderName, &str)], rules: &Rules) -> Freshness {
    let headers = headers(lines);
    let policy = Policy::of_response(&headers, &rules.targets);
    Freshness::of_response(
        (StatusCode::OK, &headers),
        &policy,
        rules,
        (Duration::ZERO, now()),
    )
}

fn strict(lines: &[(HeaderName, &str)]) -> Freshness {
    evaluate(lines, &Rules::default())
}

fn layered() -> Rules {
    Rules {
        ttl: Ttl {
            default: Some(HOUR),
            by_status: Vec::new(),
        },
        stale_while_revalidate: MINUTE,
        stale_if_error: HOUR,
        ..Rules::default()
    }
}

#[test]
fn the_most_specific_statement_decides() {
    let all = [
        (
            HeaderName::from_static("cdn-cache-control"),
            "max-age=1".to_owned(),
            Source::MaxAge,
            1,
        ),
        (
            CACHE_CONTROL,
            "s-maxage=2, max-age=3".to_owned(),
            Source::SharedMaxAge,
            2,
        ),
        (CACHE_CONTROL, "max-age=3".to_owned(), Source::MaxAge, 3),
        (EXPIRES, at(4), Source::Expires, 4),
    ];

    for from in 0..all.len() {
        let lines: Vec<_> = all[from..]
            .iter()
            .filter(|line| line.0 != CACHE_CONTROL || line.1 == all[from.clamp(1, 2)].1)
            .map(|(name, line, ..)| (name.clone(), &**line))
            .collect();
        let freshness = evaluate(&lines, &layered());

        assert_eq!(freshness.source, all[from].2, "{lines:?}");
        assert_eq!(freshness.lifetime.as_secs(), all[from].3, "{lines:?}");
    }
    assert_eq!(evaluate(&[], &layered()).source, Source::Route);
    assert_eq!(strict(&[]).source, Source::Unstated);
}

#[test]
fn a_target_without_a_lifetime_hides_expires_but_not_the_layers_rule() {
    let expires = at(60);
    let lines = [
        (HeaderName::from_static("cdn-cache-control"), "public"),
        (EXPIRES, &*expires),
        (CACHE_CONTROL, "max-age=9"),
    ];

    assert_eq!(strict(&lines).source, Source::Unstated);
    assert_eq!(evaluate(&lines, &layered()).source, Source::Route);
}

#[test]
fn an_unreadable_lifetime_is_none_at_all() {
    for lines in [
        &[(CACHE_CONTROL, "max-age=x"), (EXPIRES, &*at(60))][..],
        &[(CACHE_CONTROL, "max-age=60, max-age=61")],
        &[(CACHE_CONTROL, "s-maxage=x, max-age=60")],
        &[(EXPIRES, "0")],
        &[(EXPIRES, "")],
        &[(EXPIRES, "Thu, 18 Aug 2050 02:01:18 UTC")],
        &[(EXPIRES, "Thu, 18 Aug 2050 2:01:18 GMT")],
        &[
            (EXPIRES, "Thu, 18 Aug 2050 02:01:18 GMT"),
            (EXPIRES, "Thu, 18 Aug 2050 02:01:19 GMT"),
        ],
    ] {
        let freshness = evaluate(lines, &layered());

        assert_eq!(freshness.lifetime, Duration::ZERO, "{lines:?}");
        assert_ne!(freshness.source, Source::Route, "{lines:?}");
    }
}

#[test]
fn expires_counts_from_date() {
    for (expires, date, expected) in [
        (at(60), Some(at(0)), 60),
        (at(0), Some(at(0)), 0),
        (at(-60), Some(at(0)), 0),
        (at(300), Some(at(400)), 0),
        (at(20), Some(at(10)), 10),
        (at(60), None, 60),
        (at(60), Some("foo".to_owned()), 60),
    ] {
        let mut lines = vec![(EXPIRES, &*expires)];
        lines.extend(date.as_deref().map(|date| (DATE, date)));

        assert_eq!(strict(&lines).lifetime.as_secs(), expected, "{lines:?}");
    }
}

#[test]
fn the_obsolete_forms_of_a_date_are_read() {
    let [preferred, asctime, rfc850] = [
        "Thu, 18 Aug 2050 02:01:18 GMT",
        "Thu Aug 18 02:01:18 2050",
        "Thursday, 18-Aug-50 02:01:18 GMT",
    ]
    .map(|expires| strict(&[(EXPIRES, expires)]).lifetime);

    assert!(preferred > 20 * 365 * DAY);
    assert_eq!([asctime, rfc850], [preferred; 2]);
}

#[test]
fn a_date_is_read_whatever_its_case_and_its_day_of_the_week() {
    let expected = http_date(b"Thu, 18 Aug 2050 02:01:18 GMT").unwrap();

    for text in [
        "tHU, 18 Aug 2050 02:01:18 GMT",
        "Thu, 18 aUG 2050 02:01:18 gmt",
        "Mon, 18 Aug 2050 02:01:18 GMT",
        "Mon Aug 18 02:01:18 2050",
        "MONDAY, 18-AUG-50 02:01:18 GMT",
    ] {
        assert_eq!(http_date(text.as_bytes()), Some(expected), "{text}");
    }
    for junk in [
        "",
        "0",
        "18 Aug 2050 02:01:18 GMT",
        "Foo, 18 Aug 2050 02:01:18 GMT",
        "Monday, 18 Aug 2050 02:01:18 GMT",
        "Thu, 18 Aug 2050 02:01:18 AEST",
        "Thu, 31 Feb 2050 02:01:18 GMT",
    ] {
        assert_eq!(http_date(junk.as_bytes()), None, "{junk}");
    }
}

#[test]
fn a_response_is_as_old_as_its_age_and_its_date_say() {
    let table: &[(&[&str], i64, u64)] = &[
        (&[], 0, 0),
        (&[], -7200, 7200),
        (&[], 60, 0),
        (&["30"], 0, 30),
        (&["30"], -60, 60),
        (&["90"], -60, 90),
        (&["15"], 10, 15),
        (&["7200,0"], 0, 7200),
        (&["7200", "0"], 0, 7200),
        (&["0,7200"], 0, 0),
        (&["0", "7200"], 0, 0),
        (&["abc"], 0, 0),
        (&["-7200"], 0, 0),
        (&["7200.0"], 0, 0),
        (&["7200;foo=bar"], 0, 0),
        (&[""], 0, 0),
        (&["99999999999999999999"], 0, MAX_DELTA.as_secs()),
    ];
    for (age, date, expected) in table {
        let date = at(*date);
        let mut lines = vec![(DATE, &*date)];
        lines.extend(age.iter().map(|line| (AGE, *line)));

        assert_eq!(strict(&lines).initial_age.as_secs(), *expected, "{lines:?}");
    }
    assert_eq!(strict(&[(DATE, "foo")]).initial_age, Duration::ZERO);
    assert_eq!(strict(&[]).initial_age, Duration::ZERO);
}

#[test]
fn the_way_from_an_upstream_cache_counts_and_a_build_does_not() {
    let rules = Rules::default();
    let aged = |lines: &[(HeaderName, &str)]| {
        let headers = headers(lines);
        let policy = Policy::of_response(&headers, &[]);
        let clock = (MINUTE, now());
        Freshness::of_response((StatusCode::OK, &headers), &policy, &rules, clock).initial_age
    };

    assert_eq!(aged(&[(AGE, "30")]).as_secs(), 90);
    assert_eq!(aged(&[]), Duration::ZERO);
}

#[test]
fn remaining_life_is_what_the_age_leaves() {
    let young = strict(&[(CACHE_CONTROL, "max-age=60"), (AGE, "20")]);
    let old = strict(&[
        (CACHE_CONTROL, "max-age=60, stale-if-error=50"),
        (AGE, "80"),
    ]);

    assert_eq!(young.remaining().as_secs(), 40);
    assert_eq!(old.remaining(), Duration::ZERO);
    assert_eq!(old.usable().as_secs(), 30);
}

#[test]
fn heuristics_are_off_unless_asked_for() {
    let permissive = Rules {
        heuristic: Heuristic::LastModified { cap: DAY },
        ..Rules::default()
    };
    let modified = |offset: i64| [(LAST_MODIFIED, at(offset))];
    let evaluate = |status: u16, offset: i64, rules: &Rules, control: &str| {
        let [(name, value)] = modified(offset);
        let headers = headers(&[(name, &*value), (CACHE_CONTROL, control)]);
        let policy = Policy::of_response(&headers, &[]);
        let status = StatusCode::from_u16(status).unwrap();
        let clock = (Duration::ZERO, now());
        let freshness = Freshness::of_response((status, &headers), &policy, rules, clock);
        (freshness.source, freshness.lifetime.as_secs())
    };

    for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
        let found = evaluate(status, -86_400, &permissive, "");
        assert_eq!(found, (Source::Heuristic, 8640), "{status}");
    }
    for status in [201, 202, 302, 403, 500, 502, 503, 504, 599] {
        assert_eq!(
            evaluate(status, -86_400, &permissive, "").0,
            Source::Unstated,
            "{status}"
        );
    }
    assert_eq!(
        evaluate(599, -100, &permissive, "public"),
        (Source::Heuristic, 10)
    );
    assert_eq!(
        evaluate(200, -864_000_000, &permissive, ""),
        (Source::Heuristic, 86_400)
    );
    assert_eq!(evaluate(200, 60, &permissive, "").0, Source::Unstated);
    assert_eq!(
        evaluate(200, -60, &permissive, "max-age=5"),
        (Source::MaxAge, 5)
    );
    assert_eq!(
        evaluate(200, -86_400, &Rules::default(), "").0,
        Source::Unstated
    );
}

#[test]
fn stale_windows_are_the_responses_own_or_the_layers() {
    let windows = |control: &str| {
        let freshness = evaluate(&[(CACHE_CONTROL, control)], &layered());
        let (swr, sie) = (freshness.stale_while_revalidate, freshness.stale_if_error);
        (swr.as_secs(), sie.as_secs(), freshness.revalidation)
    };

    for (control, expected) in [
        ("max-age=1", (60, 3600, Revalidation::WhenStale)),
        (
            "max-age=1, stale-while-revalidate=5",
            (5, 3600, Revalidation::WhenStale),
        ),
        (
            "max-age=1, stale-if-error=0",
            (60, 0, Revalidation::WhenStale),
        ),
        (
            "max-age=1, stale-if-error=x",
            (60, 0, Revalidation::WhenStale),
        ),
        (
            "max-age=1, no-cache=\"a\"",
            (60, 3600, Revalidation::WhenStale),
        ),
        (
            "max-age=1, must-revalidate",
            (0, 0, Revalidation::NeverStale),
        ),
        (
            "max-age=1, proxy-revalidate, stale-if-error=9",
            (0, 0, Revalidation::NeverStale),
        ),
        (
            "s-maxage=1, stale-while-revalidate=9",
            (0, 0, Revalidation::NeverStale),
        ),
        (
            "max-age=1, no-cache, stale-if-error=9",
            (0, 0, Revalidation::Always),
        ),
        ("no-cache, must-revalidate", (0, 0, Revalidation::Always)),
    ] {
        assert_eq!(windows(control), expected, "{control}");
    }
}

#[test]
fn request_directives_narrow_what_is_taken() {
    let accepts = |control: &str, age: u64, state: State| {
        let request = headers(&[(CACHE_CONTROL, control)]);
        let directives = RequestDirectives::of_request(&request);
        directives.accept(Duration::from_secs(age), state, MINUTE)
    };
    let fresh = State::FreshFor(Duration::from_secs(10));
    let stale = |seconds| State::StaleSince(Duration::from_secs(seconds));

    for (control, age, state, expected) in [
        ("", 5, fresh, true),
        ("no-cache", 5, fresh, false),
        ("max-age=5", 5, fresh, true),
        ("max-age=4", 5, fresh, false),
        ("max-age=0", 1, fresh, false),
        ("min-fresh=10", 5, fresh, true),
        ("min-fresh=11", 5, fresh, false),
        ("", 5, stale(1), false),
        ("max-stale", 5, stale(60), true),
        ("max-stale", 5, stale(61), false),
        ("max-stale=9", 5, stale(9), true),
        ("max-stale=9", 5, stale(10), false),
        ("max-stale, min-fresh=1", 5, stale(1), false),
    ] {
        assert_eq!(
            accepts(control, age, state),
            expected,
            "{control} {state:?}"
        );
    }
}
