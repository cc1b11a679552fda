//! The options that change what is stored, and for how long.

use std::time::Duration;

use http::{Method, StatusCode, header::HeaderName};
use tower_stampede::{BufferLayer, RequestDirectives};

use crate::http_support::{Answer, Site, layer, request, response};
use crate::support::{
    client::{ask, behind, herd, with},
    origin::{Origin, reply},
};

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

fn site(layer: &BufferLayer, status: u16, headers: &'static [(&str, &str)]) -> Site {
    Site::new(layer, move |_, _| Ok(response(status, headers, "body")))
}

/// How many builds two requests in a row take.
async fn builds_of_two(site: &Site, headers: &[(&str, &str)]) -> usize {
    site.get("/", headers).await;
    site.get("/", headers).await;
    site.builds()
}

#[tokio::test(start_paused = true)]
async fn a_status_has_the_lifetime_that_the_layer_gives_it() {
    let lenient = layer().ttl_for(StatusCode::NOT_FOUND, Duration::from_secs(5));
    let kept = site(&lenient, 404, &[]);
    let strict = site(&layer().ttl(Duration::from_secs(5)), 404, &[]);
    let never = site(
        &layer()
            .ttl(Duration::from_secs(5))
            .ttl_for(StatusCode::OK, Duration::ZERO),
        200,
        &[],
    );

    assert_eq!(builds_of_two(&kept, &[]).await, 1);
    assert_eq!(builds_of_two(&strict, &[]).await, 2);
    assert_eq!(builds_of_two(&never, &[]).await, 2);

    tokio::time::advance(Duration::from_secs(6)).await;
    kept.get("/", &[]).await;
    assert_eq!(kept.builds(), 2);
}

#[tokio::test]
async fn a_field_meant_for_this_cache_decides_alone() {
    let named = layer().target_field(HeaderName::from_static("shop-cache-control"));
    let fields = &[
        ("cache-control", "no-store"),
        ("cdn-cache-control", "max-age=0"),
        ("shop-cache-control", "max-age=60"),
    ];

    assert_eq!(builds_of_two(&site(&named, 200, fields), &[]).await, 1);
    assert_eq!(builds_of_two(&site(&layer(), 200, fields), &[]).await, 2);
    let cdn = &[
        ("cache-control", "no-store"),
        ("cdn-cache-control", "max-age=60"),
    ];
    assert_eq!(builds_of_two(&site(&layer(), 200, cdn), &[]).await, 1);
    let broken = &[FRESH, ("cdn-cache-control", "max-age=\"0\", !")];
    assert_eq!(builds_of_two(&site(&layer(), 200, broken), &[]).await, 1);
}

#[tokio::test]
async fn requests_that_choose_the_same_of_what_there_is_share_a_variant() {
    let varying = &[FRESH, ("vary", "accept-language, accept-encoding")];
    let offering = layer()
        .normalize_accept_language(["de", "en"])
        .normalize_accept_encoding(["gzip"]);
    let (plain, reducing) = (site(&layer(), 200, varying), site(&offering, 200, varying));

    for (languages, codings) in [("en, de", "gzip, br"), ("DE, fr;q=0.5", "zstd, gzip;q=0.5")] {
        let fields = [("accept-language", languages), ("accept-encoding", codings)];
        plain.get("/", &fields).await;
        reducing.get("/", &fields).await;
    }

    assert_eq!((plain.builds(), reducing.builds()), (2, 1));
    assert_eq!(reducing.last_seen()["accept-language"], "de");
    assert_eq!(reducing.last_seen()["accept-encoding"], "gzip");
}

#[tokio::test]
async fn a_lifetime_is_guessed_only_where_the_layer_says_so() {
    let modified = &[("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")];
    let guessing = layer().heuristic_freshness(Duration::from_secs(60));

    let guessed = site(&guessing, 200, modified);
    assert_eq!(builds_of_two(&guessed, &[]).await, 1);
    assert_eq!(
        guessed.get("/", &[]).await.outcome(),
        "stampede; hit; ttl=59"
    );
    assert_eq!(builds_of_two(&site(&layer(), 200, modified), &[]).await, 2);
}

#[tokio::test]
async fn a_cookie_that_is_set_keeps_a_response_from_being_stored_unless_allowed() {
    let setting = &[FRESH, ("set-cookie", "id=1")];
    let strict = site(&layer(), 200, setting);
    let stripping = site(&layer().allow_set_cookie_stripped(), 200, setting);
    let keeping = site(&layer().allow_set_cookie(), 200, setting);

    assert_eq!(builds_of_two(&strict, &[]).await, 2);
    let first = stripping.get("/", &[]).await;
    let second = stripping.get("/", &[]).await;
    assert_eq!(
        (first.field("set-cookie"), second.field("set-cookie")),
        ("id=1", "")
    );
    assert_eq!(stripping.builds(), 1);
    assert_eq!(builds_of_two(&keeping, &[]).await, 1);
    assert_eq!(keeping.get("/", &[]).await.field("set-cookie"), "id=1");
}

#[tokio::test]
async fn a_field_of_each_responses_own_is_neither_stored_nor_shared() {
    let stripping = layer().strip_header(HeaderName::from_static("x-request-id"));
    let site = Site::new(&stripping, |_, _| {
        Ok(response(
            200,
            &[FRESH, ("x-request-id", "7"), ("x-kept", "1")],
            "page",
        ))
    });

    let first = site.get("/", &[]).await;
    let second = site.get("/", &[]).await;

    let fields =
        |answer: &Answer<_>| ["x-request-id", "x-kept"].map(|name| answer.field(name).to_owned());
    assert_eq!(fields(&first), ["7", "1"]);
    assert_eq!(fields(&second), ["", "1"]);
    assert_eq!(site.builds(), 1);
}

#[tokio::test]
async fn errors_are_not_stored_by_default_and_the_next_request_tries_again() {
    for status in [400, 404, 410, 429, 500, 503] {
        let site = Site::new(&layer().ttl(Duration::from_secs(60)), move |build, _| {
            Ok(match build {
                1 => response(status, &[("retry-after", "1")], "no"),
                _ => response(200, &[], "yes"),
            })
        });

        let first = site.get("/", &[]).await;
        let second = site.get("/", &[]).await;

        assert_eq!(first.status.as_u16(), status);
        assert_eq!(first.field("retry-after"), "1");
        assert_eq!(&second.body[..], b"yes", "{status}");
    }
}

#[tokio::test]
async fn a_nonce_keeps_a_response_from_being_stored_unless_allowed() {
    let nonce = &[FRESH, ("content-security-policy", "script-src 'nonce-abc'")];

    assert_eq!(builds_of_two(&site(&layer(), 200, nonce), &[]).await, 2);
    assert_eq!(
        builds_of_two(&site(&layer().allow_csp_nonce(), 200, nonce), &[]).await,
        1
    );
}

#[tokio::test]
async fn an_error_with_a_lifetime_of_its_own_is_stored_only_if_allowed() {
    let lenient = || layer().allow_error_statuses();

    assert_eq!(builds_of_two(&site(&layer(), 503, &[FRESH]), &[]).await, 2);
    assert_eq!(
        builds_of_two(&site(&lenient(), 503, &[FRESH]), &[]).await,
        1
    );
    assert_eq!(
        builds_of_two(&site(&lenient(), 599, &[FRESH]), &[]).await,
        1
    );
    assert_eq!(builds_of_two(&site(&lenient(), 503, &[]), &[]).await, 2);
}

#[tokio::test]
async fn what_a_request_asks_of_freshness_is_ignored_by_default() {
    for directive in [
        "no-cache",
        "no-store",
        "max-age=0",
        "only-if-cached",
        "min-fresh=100",
    ] {
        let site = site(&layer(), 200, &[FRESH]);
        assert_eq!(
            builds_of_two(&site, &[("cache-control", directive)]).await,
            1,
            "{directive}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_refuses_the_entry_has_it_built_anew() {
    for (directive, builds) in [
        ("no-cache", 2),
        ("max-age=5", 2),
        ("max-age=0", 2),
        ("max-age=20", 1),
        ("min-fresh=55", 2),
        ("min-fresh=20", 1),
        ("no-transform", 1),
    ] {
        let honest = layer().request_directives(RequestDirectives::Honour);
        let site = site(&honest, 200, &[FRESH]);
        site.get("/", &[]).await;
        tokio::time::advance(Duration::from_secs(10)).await;

        let answer = site.get("/", &[("cache-control", directive)]).await;

        assert_eq!(site.builds(), builds, "{directive}");
        if builds == 2 {
            assert_eq!(answer.outcome(), "stampede; fwd=request; stored; ttl=60");
            assert_eq!(
                site.get("/", &[]).await.field("age"),
                "0",
                "it is the new one that is kept"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_herd_that_refuses_the_entry_shares_one_build() {
    let origin = Origin::new(|call| async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        reply(&[FRESH], format!("build {}", call.number))
    });
    let honest = layer().request_directives(RequestDirectives::Honour);
    let service = behind(&honest, &origin);
    ask(&service, with("/", &[])).await;
    let refusing = || with("/", &[("cache-control", "no-cache")]);

    let answers = herd(&service, (0..1000).map(|_| refusing()))
        .answers()
        .await;

    assert!(answers.iter().all(|answer| answer.text() == "build 2"));
    assert_eq!(origin.builds(), 2);
}

#[tokio::test]
async fn pragma_counts_where_there_is_no_cache_control() {
    let site = site(
        &layer().request_directives(RequestDirectives::Honour),
        200,
        &[FRESH],
    );

    assert_eq!(builds_of_two(&site, &[("pragma", "no-cache")]).await, 2);
}

#[tokio::test]
async fn a_request_with_no_store_neither_stores_nor_takes() {
    let site = site(
        &layer().request_directives(RequestDirectives::Honour),
        200,
        &[FRESH],
    );

    let answer = site.get("/", &[("cache-control", "no-store")]).await;
    site.get("/", &[]).await;

    assert_eq!(
        answer.outcome(),
        "stampede; fwd=bypass; detail=request-no-store"
    );
    assert_eq!(site.builds(), 2);
}

#[tokio::test]
async fn a_request_for_an_entry_or_nothing_never_builds() {
    let site = site(
        &layer().request_directives(RequestDirectives::Honour),
        200,
        &[FRESH],
    );

    let cold = site.get("/", &[("cache-control", "only-if-cached")]).await;
    site.get("/", &[]).await;
    let warm = site.get("/", &[("cache-control", "only-if-cached")]).await;

    assert_eq!(
        (cold.status.as_u16(), cold.outcome()),
        (504, "stampede; detail=only-if-cached")
    );
    assert_eq!((warm.status.as_u16(), site.builds()), (200, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stale_entry_is_taken_on_request_but_never_past_the_servers_limit() {
    let honest = layer()
        .request_directives(RequestDirectives::Honour)
        .stale_if_error(Duration::from_secs(30));
    let site = site(
        &honest,
        200,
        &[("cache-control", "max-age=10"), ("etag", "\"a\"")],
    );
    let stale = &[("cache-control", "max-stale")];
    site.get("/", &[]).await;

    tokio::time::advance(Duration::from_secs(20)).await;
    let within = site.get("/", stale).await;
    let narrower = site.get("/", &[("cache-control", "max-stale=5")]).await;
    assert_eq!(within.outcome(), "stampede; hit; ttl=-10");
    assert_eq!(narrower.outcome(), "stampede; fwd=stale; stored; ttl=10");

    tokio::time::advance(Duration::from_secs(50)).await;
    let beyond = site.get("/", stale).await;
    assert_eq!(beyond.outcome(), "stampede; fwd=stale; stored; ttl=10");
}

#[tokio::test]
async fn an_unsafe_request_that_succeeds_purges_its_target_and_what_it_names() {
    let site = Site::new(&layer(), |_, request| {
        Ok(match (request.method(), request.uri().path()) {
            (&Method::GET, _) => response(200, &[FRESH], "page"),
            (_, "/broken") => response(500, &[], ""),
            _ => response(
                201,
                &[
                    ("location", "/made"),
                    ("content-location", "http://other.example/page"),
                ],
                "",
            ),
        })
    });
    let pages = ["/page", "/page?q=1", "/made", "/other", "/broken"];
    for page in pages {
        site.get(page, &[]).await;
    }
    let warm = site.builds();

    for path in ["/page", "/broken"] {
        site.ask(request(Method::POST, path, &[])).await;
    }
    site.ask(request(Method::OPTIONS, "/other", &[])).await;
    let after = site.builds();
    assert_eq!(after, warm + 3);

    let mut rebuilt = Vec::new();
    for page in pages {
        let before = site.builds();
        site.get(page, &[]).await;
        if site.builds() > before {
            rebuilt.push(page);
        }
    }
    assert_eq!(rebuilt, ["/page", "/page?q=1", "/made"]);
}

// ===== Cache-Status =====

#[tokio::test(start_paused = true)]
async fn the_key_is_shown_on_request_and_as_a_digest_alone() {
    let plain = site(&layer(), 200, &[FRESH]);
    let showing = site(&layer().show_key(), 200, &[FRESH]);
    assert!(!plain.get("/secret", &[]).await.outcome().contains("key"));

    let miss = showing.get("/secret?token=1", &[]).await;
    let hit = showing.get("/secret?token=1", &[]).await;
    let other = showing.get("/secret?token=2", &[]).await;

    let key = |outcome: &str| {
        let (_, key) = outcome.split_once("; key=\"").unwrap();
        key.strip_suffix('"').unwrap().to_owned()
    };
    let digest = key(miss.outcome());
    assert_eq!(digest.len(), 32);
    assert!(digest.bytes().all(|digit| digit.is_ascii_hexdigit()));
    assert_eq!(
        hit.outcome(),
        format!("stampede; hit; ttl=60; key=\"{digest}\"")
    );
    assert_ne!(key(other.outcome()), digest);
}

#[tokio::test(start_paused = true)]
async fn what_a_cache_nearer_to_the_origin_said_comes_first() {
    let fields = &[
        FRESH,
        ("cache-status", "Origin; hit; ttl=100"),
        ("cache-status", "Edge; fwd=miss"),
    ];
    let site = site(&layer(), 200, fields);

    for ours in [
        "stampede; fwd=uri-miss; stored; ttl=60",
        "stampede; hit; ttl=60",
    ] {
        let answer = site.get("/", &[]).await;
        let all: Vec<_> = answer.headers.get_all("cache-status").iter().collect();
        assert_eq!(all, ["Origin; hit; ttl=100", "Edge; fwd=miss", ours]);
    }
}
