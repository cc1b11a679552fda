use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, EXPIRES, VARY},
};

use super::*;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn response(status: u16, lines: &[(HeaderName, &'static str)]) -> Parts {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, line) in lines {
        response
            .headers_mut()
            .append(name, HeaderValue::from_static(line));
    }
    response.into_parts().0
}

fn permissive() -> Rules {
    Rules {
        heuristic: Heuristic::LastModified {
            cap: Duration::from_secs(86_400),
        },
        statuses: Statuses::Permissive,
        ..Rules::default()
    }
}

/// What happens, in one word, or the reason why not.
fn outcome(request: RequestFacts, response: &Parts, rules: &Rules) -> &'static str {
    match judge(&request, response, rules, now()) {
        Judgement::Store(..) => "store",
        Judgement::Share(why, _) => why.as_str(),
        Judgement::Refuse(reason) => reason.as_str(),
        Judgement::Fail(None) => "fail",
        Judgement::Fail(Some(reason)) => match reason {
            Reason::NoStore => "fail, no-store",
            Reason::SetCookie => "fail, set-cookie",
            Reason::Status => "fail, status",
            _ => "fail, other",
        },
    }
}

fn plain(status: u16, lines: &[(HeaderName, &'static str)], rules: &Rules) -> &'static str {
    outcome(RequestFacts::default(), &response(status, lines), rules)
}

#[test]
fn a_lifetime_or_a_validator_is_needed_to_store() {
    let table: &[(&[(HeaderName, &str)], &str)] = &[
        (&[], "no-freshness"),
        (&[(CACHE_CONTROL, "public")], "no-freshness"),
        (&[(ETAG, "\"x\"")], "no-freshness"),
        (&[(CACHE_CONTROL, "max-age=60")], "store"),
        (&[(CACHE_CONTROL, "max-age=0")], "stale"),
        (&[(CACHE_CONTROL, "max-age=x")], "stale"),
        (&[(EXPIRES, "0")], "stale"),
        (
            &[(CACHE_CONTROL, "max-age=0, stale-while-revalidate=5")],
            "store",
        ),
        (&[(CACHE_CONTROL, "max-age=0"), (ETAG, "\"x\"")], "store"),
    ];

    for (lines, expected) in table {
        assert_eq!(plain(200, lines, &Rules::default()), *expected, "{lines:?}");
    }
}

#[test]
fn what_a_response_forbids_is_not_done() {
    let table: &[(&[(HeaderName, &str)], &str)] = &[
        (&[(CACHE_CONTROL, "no-store")], "no-store"),
        (&[(CACHE_CONTROL, "max-age=60, No-Store")], "no-store"),
        (&[(CACHE_CONTROL, "private, max-age=60")], "private"),
        (&[(CACHE_CONTROL, "private=\"a\", max-age=60")], "store"),
        (&[(CACHE_CONTROL, "no-cache")], "no-cache"),
        (&[(CACHE_CONTROL, "no-cache, max-age=60")], "no-cache"),
        (&[(CACHE_CONTROL, "no-cache"), (ETAG, "\"x\"")], "store"),
        (
            &[
                (CACHE_CONTROL, "no-cache"),
                (LAST_MODIFIED, "Sun, 06 Nov 1994 08:49:37 GMT"),
            ],
            "store",
        ),
        (
            &[(CACHE_CONTROL, "no-cache"), (LAST_MODIFIED, "yesterday")],
            "no-cache",
        ),
        (&[(CACHE_CONTROL, "no-cache=\"a\", max-age=60")], "store"),
        (
            &[(CACHE_CONTROL, "max-age=60"), (SET_COOKIE, "a=b")],
            "set-cookie",
        ),
        (&[(SET_COOKIE, "a=b")], "set-cookie"),
        (&[(CACHE_CONTROL, "max-age=60"), (VARY, "accept")], "store"),
        (
            &[(CACHE_CONTROL, "max-age=60"), (VARY, "accept, *")],
            "vary-star",
        ),
        (
            &[
                (CACHE_CONTROL, "max-age=60"),
                (CONTENT_TYPE, "text/event-stream"),
            ],
            "streaming",
        ),
        (
            &[(CONTENT_SECURITY_POLICY, "script-src 'nonce-x'")],
            "csp-nonce",
        ),
        (
            &[
                (CACHE_CONTROL, "max-age=60"),
                (CONTENT_RANGE, "bytes 0-1/2"),
            ],
            "partial",
        ),
        (
            &[(CACHE_CONTROL, "max-age=60, must-understand, no-store")],
            "store",
        ),
    ];

    for (lines, expected) in table {
        assert_eq!(plain(200, lines, &Rules::default()), *expected, "{lines:?}");
    }
}

#[test]
fn a_readable_target_overrules_cache_control() {
    let target = HeaderName::from_static("cdn-cache-control");
    let rules = Rules::default();

    let opened = [(CACHE_CONTROL, "no-store"), (target.clone(), "max-age=60")];
    let closed = [(CACHE_CONTROL, "max-age=60"), (target.clone(), "no-store")];
    let ignored = [(CACHE_CONTROL, "no-store"), (target, "max-age=\"60\"")];

    assert_eq!(plain(200, &opened, &rules), "store");
    assert_eq!(plain(200, &closed, &rules), "no-store");
    assert_eq!(plain(200, &ignored, &rules), "no-store");
}

#[test]
fn the_layers_ttl_applies_to_its_statuses_alone() {
    let mut rules = Rules::default();
    rules.ttl.default = Some(Duration::from_secs(60));
    rules.ttl.by_status = vec![
        (StatusCode::NOT_FOUND, Duration::from_secs(5)),
        (StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(5)),
        (StatusCode::UNAUTHORIZED, Duration::from_secs(5)),
    ];

    for (status, expected) in [
        (200, "store"),
        (203, "store"),
        (301, "store"),
        (308, "store"),
        (404, "store"),
        (401, "store"),
        (410, "no-freshness"),
        (302, "no-freshness"),
        (204, "no-freshness"),
        (403, "status"),
        (500, "fail"),
        (503, "fail"),
    ] {
        assert_eq!(plain(status, &[], &rules), expected, "{status}");
    }
    assert_eq!(plain(200, &[(CACHE_CONTROL, "max-age=0")], &rules), "stale");
    assert_eq!(
        plain(200, &[(CACHE_CONTROL, "no-cache")], &rules),
        "no-cache"
    );
}

#[test]
fn statuses_by_policy() {
    let fresh = &[(CACHE_CONTROL, "max-age=60")];
    for (status, strictly, permissively) in [
        (100, "informational", "informational"),
        (101, "informational", "informational"),
        (201, "store", "store"),
        (206, "partial", "partial"),
        (299, "store", "store"),
        (302, "store", "store"),
        (304, "not-modified", "not-modified"),
        (400, "store", "store"),
        (404, "store", "store"),
        (416, "partial", "partial"),
        (429, "status", "status"),
        (499, "store", "store"),
        (500, "fail", "store"),
        (503, "fail", "store"),
        (511, "fail, status", "fail, status"),
        (599, "fail", "store"),
    ] {
        assert_eq!(
            plain(status, fresh, &Rules::default()),
            strictly,
            "{status}"
        );
        assert_eq!(
            plain(status, fresh, &permissive()),
            permissively,
            "{status}"
        );
    }
    let ranged = [(CACHE_CONTROL, "max-age=60"), (CONTENT_RANGE, "x")];
    assert_eq!(plain(200, &ranged, &permissive()), "store");
}

#[test]
fn without_freshness_an_error_is_shared_as_a_failure_and_a_personal_answer_not_at_all() {
    for rules in [Rules::default(), permissive()] {
        for (status, expected) in [
            (401, "status"),
            (403, "status"),
            (404, "no-freshness"),
            (500, "fail"),
            (501, "fail"),
            (503, "fail"),
        ] {
            assert_eq!(plain(status, &[], &rules), expected, "{status}");
        }
        let secret = [(CACHE_CONTROL, "no-store")];
        assert_eq!(plain(500, &secret, &rules), "fail, no-store");
        assert_eq!(
            plain(500, &[(SET_COOKIE, "a=b")], &rules),
            "fail, set-cookie"
        );
    }
}

#[test]
fn heuristics_store_what_was_modified_long_ago() {
    let old = &[(LAST_MODIFIED, "Sun, 06 Nov 1994 08:49:37 GMT")];

    assert_eq!(plain(200, old, &Rules::default()), "no-freshness");
    assert_eq!(plain(200, old, &permissive()), "store");
    assert_eq!(plain(501, old, &permissive()), "store");
    assert_eq!(plain(201, old, &permissive()), "no-freshness");
    assert_eq!(plain(503, old, &permissive()), "fail");
}

#[test]
fn must_understand_refuses_unknown_statuses() {
    let line = &[(CACHE_CONTROL, "max-age=60, must-understand")];

    assert_eq!(plain(200, line, &permissive()), "store");
    assert_eq!(plain(299, line, &permissive()), "must-understand");
    assert_eq!(plain(499, line, &permissive()), "must-understand");
    assert_eq!(plain(599, line, &permissive()), "fail, other");
}

#[test]
fn authorization_needs_an_explicit_permission_unless_it_is_in_the_key() {
    for (control, expected) in [
        ("max-age=60", "authorization"),
        ("max-age=60, public", "store"),
        ("max-age=60, must-revalidate", "store"),
        ("s-maxage=60", "store"),
        ("s-maxage=x", "authorization"),
        ("max-age=60, proxy-revalidate", "authorization"),
        ("max-age=60, private", "private"),
        ("public", "no-freshness"),
        ("", "authorization"),
    ] {
        let response = response(200, &[(CACHE_CONTROL, control)]);
        let with = |authorization| RequestFacts {
            authorization,
            ..RequestFacts::default()
        };
        let rules = Rules::default();

        let unkeyed = outcome(with(Authorization::Unkeyed), &response, &rules);
        let keyed = outcome(with(Authorization::Keyed), &response, &rules);
        let absent = outcome(with(Authorization::Absent), &response, &rules);

        assert_eq!(unkeyed, expected, "{control}");
        assert_eq!(keyed, absent, "{control}");
    }
}

#[test]
fn cookies_and_nonces_are_let_through_only_when_allowed() {
    let lines = &[
        (CACHE_CONTROL, "max-age=60"),
        (SET_COOKIE, "a=b"),
        (CONTENT_SECURITY_POLICY, "script-src 'nonce-x'"),
    ];
    let with = |cookies, nonces| Rules {
        cookies,
        nonces,
        ..Rules::default()
    };

    for (rules, expected) in [
        (with(Cookies::Refuse, Nonces::Allow), "set-cookie"),
        (with(Cookies::Strip, Nonces::Refuse), "csp-nonce"),
        (with(Cookies::Strip, Nonces::Allow), "store"),
        (with(Cookies::Keep, Nonces::Allow), "store"),
    ] {
        assert_eq!(plain(200, lines, &rules), expected, "{rules:?}");
    }
    let withheld = |cookies| {
        let rules = with(cookies, Nonces::Allow);
        match judge(
            &RequestFacts::default(),
            &response(200, lines),
            &rules,
            now(),
        ) {
            Judgement::Store(_, withheld) => withheld.contains(&SET_COOKIE),
            other => panic!("{other:?}"),
        }
    };
    assert!(withheld(Cookies::Strip));
    assert!(!withheld(Cookies::Keep));
}

#[test]
fn only_what_declares_itself_uncacheable_is_learnt() {
    for reason in [
        Reason::NoStore,
        Reason::Private,
        Reason::SetCookie,
        Reason::VaryStar,
    ] {
        assert_eq!(reason.lesson(), Lesson::Uncacheable);
    }
    for reason in [
        Reason::Status,
        Reason::Authorization,
        Reason::NotModified,
        Reason::Partial,
    ] {
        assert_eq!(reason.lesson(), Lesson::Nothing);
    }
}
