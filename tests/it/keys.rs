//! What identifies a response, and who may have one that was made for somebody else.

use std::time::Duration;

use axum::{Router, body::Body as AxumBody, extract::OriginalUri, routing};
use http::{HeaderName, Method, Request, Version, header};
use http_body_util::Full;
use tokio::time::sleep;
use tower::Layer as _;
use tower_stampede::{BufferLayer, Cache, Keyed, QueryKey};

use crate::support::{
    client::{Answer, Layered, ask, behind, get, herd, same, until, with},
    origin::{Call, Origin, failure, fresh, reply},
};

fn minute(cache: &Cache) -> BufferLayer {
    BufferLayer::new(cache.clone()).ttl(Duration::from_secs(60))
}

/// A minute of freshness from the layer, over an origin that tells one build from another.
fn numbered(layer: impl FnOnce(BufferLayer) -> BufferLayer) -> (Layered, Origin) {
    let origin = Origin::new(|call| async move { reply(&[], format!("build {}", call.number)) });
    (behind(&layer(minute(&Cache::in_memory())), &origin), origin)
}

/// How many builds these requests need, one after the other.
async fn builds<'a>(
    service: &Layered,
    origin: &Origin,
    requests: impl IntoIterator<Item = (&'a str, &'a [(&'a str, &'a str)])>,
) -> usize {
    let before = origin.builds();
    for (target, headers) in requests {
        ask(service, with(target, headers)).await;
    }
    origin.builds() - before
}

async fn targets(service: &Layered, origin: &Origin, requests: &[&str]) -> usize {
    builds(
        service,
        origin,
        requests.iter().map(|target| (*target, &[][..])),
    )
    .await
}

// ===== what may be shared =====

#[tokio::test(start_paused = true)]
async fn a_response_with_set_cookie_is_never_replayed() {
    let origin = Origin::new(|call| async move {
        let cookie = format!("sid={}", call.number);
        reply(
            &[
                ("cache-control", "public, max-age=60"),
                ("set-cookie", &cookie),
            ],
            "hello",
        )
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let one = ask(&service, get("/")).await;
    let other = ask(&service, get("/")).await;

    assert_eq!(one.header("set-cookie"), "sid=1");
    assert_eq!(other.header("set-cookie"), "sid=2");
}

#[tokio::test(start_paused = true)]
async fn waiters_never_get_the_starters_cookie() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        let cookie = format!("sid={}", call.number);
        reply(
            &[
                ("cache-control", "public, max-age=60"),
                ("set-cookie", &cookie),
            ],
            "hello",
        )
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let mut cookies: Vec<_> = same(&service, 20, "/")
        .answers()
        .await
        .iter()
        .map(|answer| answer.header("set-cookie").to_owned())
        .collect();

    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_failure_with_a_cookie_is_shared_without_it() {
    let origin = Origin::new(|_| async {
        sleep(Duration::from_millis(100)).await;
        let mut response = failure(500, "for one pair of eyes");
        response
            .headers_mut()
            .insert("set-cookie", "sid=1".parse().unwrap());
        response
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let answers = same(&service, 20, "/").answers().await;

    assert!(answers.iter().all(|answer| answer.status == 500));
    let with_cookie = answers
        .iter()
        .filter(|answer| !answer.header("set-cookie").is_empty());
    assert_eq!(with_cookie.count(), 1);
    let personal = answers
        .iter()
        .filter(|answer| answer.text() == "for one pair of eyes");
    assert_eq!(personal.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_varies_is_not_shown_to_other_variants() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        let user = call.header("x-user");
        let mut response = failure(500, format!("sorry, {user}"));
        response
            .headers_mut()
            .insert("vary", "x-user".parse().unwrap());
        response
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let requests = ["ann", "ann", "bob"].map(|user| with("/", &[("x-user", user)]));
    let answers = herd(&service, requests).answers().await;

    assert_eq!(answers[0].text(), "sorry, ann");
    assert_eq!(answers[1].text(), "sorry, ann");
    assert_eq!(answers[2].status, 500);
    assert!(!answers[2].text().contains("ann"), "{}", answers[2].text());
}

#[tokio::test(start_paused = true)]
async fn a_policy_with_a_nonce_is_not_stored() {
    let origin = Origin::new(|call| async move {
        let policy = format!("script-src 'nonce-{}'", call.number);
        reply(
            &[
                ("cache-control", "max-age=60"),
                ("content-security-policy", &policy),
            ],
            "page",
        )
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    ask(&service, get("/")).await;
    let second = ask(&service, get("/")).await;

    assert_eq!(
        second.header("content-security-policy"),
        "script-src 'nonce-2'"
    );
}

// ===== credentials =====

#[tokio::test(start_paused = true)]
async fn requests_with_credentials_bypass() {
    for (name, value, detail) in [
        ("authorization", "Bearer a", "authorization"),
        ("cookie", "session=a", "cookie"),
    ] {
        let (service, origin) = numbered(|layer| layer);

        let first = ask(&service, with("/dashboard", &[(name, value)])).await;
        let anonymous = ask(&service, get("/dashboard")).await;
        let again = ask(&service, with("/dashboard", &[(name, value)])).await;

        assert_eq!(
            first.status_line(),
            format!("stampede; fwd=bypass; detail={detail}")
        );
        assert_eq!(anonymous.text(), "build 2");
        assert_eq!(again.text(), "build 3", "nor is it looked up");
        assert_eq!(origin.builds(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_credentials_are_not_coalesced() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        sleep(Duration::from_millis(100)).await;
        fresh("page")
    });
    let service = behind(&minute(&cache), &origin);

    herd(
        &service,
        (0..10).map(|_| with("/", &[("cookie", "session=a")])),
    )
    .answers()
    .await;

    assert_eq!(origin.peak(), 10);
}

#[tokio::test(start_paused = true)]
async fn with_authorization_allowed_the_table_of_the_rfc_decides() {
    for (response, stored) in [
        ("max-age=60", false),
        ("max-age=60, public", true),
        ("s-maxage=60", true),
        ("max-age=60, must-revalidate", true),
        ("max-age=60, private", false),
    ] {
        let cache = Cache::in_memory();
        let origin = Origin::new(move |call| async move {
            reply(
                &[("cache-control", response)],
                format!("build {}", call.number),
            )
        });
        let service = behind(&minute(&cache).allow_authorization(), &origin);
        let request = || with("/", &[("authorization", "Bearer a")]);

        ask(&service, request()).await;
        let second = ask(&service, request()).await;

        assert_eq!(second.status_line().contains("hit"), stored, "{response}");
        assert_eq!(origin.builds(), if stored { 1 } else { 2 }, "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_not_allowed_in_gets_its_own_refusal() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        match call.header("authorization").as_str() {
            "" => failure(401, "who?"),
            _ => fresh("secret"),
        }
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let admin = ask(&service, with("/", &[("authorization", "Bearer admin")])).await;
    let both = herd(
        &service,
        [with("/", &[("authorization", "Bearer admin")]), get("/")],
    )
    .answers()
    .await;

    assert_eq!(admin.text(), "secret");
    assert_eq!((both[0].text(), both[1].text()), ("secret", "who?"));
    assert_eq!(both[1].status, 401);
}

#[tokio::test(start_paused = true)]
async fn an_identity_in_the_key_admits_credentials_and_keeps_them_apart() {
    let (service, origin) = numbered(|layer| {
        layer.key_with(|request, key| match request.headers.get("authorization") {
            Some(token) => {
                key.part(token.as_bytes());
                Keyed::Credentials
            }
            None => Keyed::Yes,
        })
    });
    let as_user = |user| [("authorization", user)];

    let (ann, bob) = (as_user("ann"), as_user("bob"));
    let count = builds(
        &service,
        &origin,
        [
            ("/", &ann[..]),
            ("/", &bob),
            ("/", &ann),
            ("/", &bob),
            ("/", &[]),
        ],
    )
    .await;

    assert_eq!(count, 3);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_keyed_as_headers_are_admitted() {
    for name in [header::AUTHORIZATION, header::COOKIE] {
        let (service, origin) = numbered(|layer| layer.vary_by_header(name.clone()));
        let as_user = |user| [(name.as_str(), user)];

        let (ann, bob) = (as_user("ann=1"), as_user("bob=1"));
        let count = builds(
            &service,
            &origin,
            [("/", &ann[..]), ("/", &bob), ("/", &ann), ("/", &bob)],
        )
        .await;

        assert_eq!(count, 2, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_keyed_cookie_admits_requests_and_the_others_never_reach_the_build() {
    let origin = Origin::new(|call| async move { reply(&[], call.header("cookie")) });
    let service = behind(
        &minute(&Cache::in_memory()).vary_by_cookie("theme"),
        &origin,
    );

    let dark = ask(&service, with("/", &[("cookie", "id=1; theme=dark")])).await;
    let light = ask(&service, with("/", &[("cookie", "theme=light; id=2")])).await;
    let other = ask(&service, with("/", &[("cookie", "theme=dark; id=3")])).await;
    let none = ask(&service, get("/")).await;

    assert_eq!((dark.text(), light.text()), ("theme=dark", "theme=light"));
    assert_eq!((other.text(), none.text()), ("theme=dark", ""));
    assert_eq!(origin.builds(), 3);
}

#[tokio::test(start_paused = true)]
async fn ignored_cookies_are_left_on_the_request() {
    let origin = Origin::new(|call| async move { reply(&[], call.header("cookie")) });
    let service = behind(
        &minute(&Cache::in_memory()).allow_ignored_cookies(),
        &origin,
    );

    let first = ask(&service, with("/", &[("cookie", "id=1")])).await;
    let second = ask(&service, with("/", &[("cookie", "id=2")])).await;

    assert_eq!((first.text(), second.text()), ("id=1", "id=1"));
}

// ===== the URI =====

#[tokio::test(start_paused = true)]
async fn what_differs_in_bytes_is_different() {
    for pair in [
        ["/?a=1", "/?a=2"],
        ["/?a=1%26b=2", "/?a=1&b=2"],
        ["/a%2Fb", "/a/b"],
        ["/a%00b", "/ab"],
        ["/?id=2&id=1", "/?id=1&id=2"],
        ["/a", "/a?"],
        ["/a", "/a/"],
        ["/a", "/A"],
        ["/?a", "/?a="],
        ["http://a.example/", "http://b.example/"],
        ["http://a.example/", "http://a.example:8080/"],
    ] {
        let (service, origin) = numbered(|layer| layer);
        assert_eq!(targets(&service, &origin, &pair).await, 2, "{pair:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_differs_in_the_form_of_the_authority_only_is_the_same() {
    let (service, origin) = numbered(|layer| layer);
    let in_target = ["http://shop.example/", "http://SHOP.example:80/"];

    let count = targets(&service, &origin, &in_target).await;
    let mut in_host = with("/", &[("host", "Shop.Example:80")]);
    *in_host.uri_mut() = "/".parse().unwrap();
    let by_host = ask(&service, in_host).await;
    let mut http2 = get("http://shop.example/");
    *http2.version_mut() = Version::HTTP_2;
    let by_http2 = ask(&service, http2).await;

    assert_eq!(count, 1);
    assert_eq!((by_host.text(), by_http2.text()), ("build 1", "build 1"));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_none_bypasses() {
    let (service, _origin) = numbered(|layer| layer);
    let mut twice = with("/", &[("host", "a.example"), ("host", "b.example")]);
    let mut strange = with("/", &[("host", "a.example/b")]);
    for request in [&mut twice, &mut strange] {
        *request.uri_mut() = "/".parse().unwrap();
    }

    for request in [twice, strange] {
        let answer = ask(&service, request).await;
        assert_eq!(
            answer.status_line(),
            "stampede; fwd=bypass; detail=authority"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_forwarding_headers_change_is_not_shown_to_those_without_them() {
    for (name, value) in [
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-proto", "http"),
        ("forwarded", "for=10.0.0.1;host=evil.example"),
    ] {
        let origin = Origin::new(move |call| async move { reply(&[], call.header(name)) });
        let service = behind(&minute(&Cache::in_memory()), &origin);

        ask(&service, with("/", &[(name, value)])).await;
        let victim = ask(&service, get("/")).await;

        assert_eq!(victim.text(), "", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_address_of_a_client_behind_a_proxy_is_not_in_the_key() {
    let (service, origin) = numbered(|layer| layer);

    let count = builds(
        &service,
        &origin,
        [
            (
                "/",
                &[
                    ("x-forwarded-for", "10.0.0.1"),
                    ("forwarded", "for=10.0.0.1"),
                ][..],
            ),
            (
                "/",
                &[
                    ("x-forwarded-for", "10.0.0.2"),
                    ("forwarded", "for=10.0.0.2"),
                ],
            ),
        ],
    )
    .await;

    assert_eq!(count, 1);
}

#[tokio::test(start_paused = true)]
async fn nested_routers_do_not_collide() {
    let cache = Cache::in_memory();
    let layer = minute(&cache);
    let echo = || routing::get(|OriginalUri(uri): OriginalUri| async move { uri.to_string() });
    let inner = || Router::new().route("/{id}", echo()).layer(layer.clone());
    let app = Router::new()
        .nest("/users", inner())
        .nest("/orders", inner())
        .nest_service("/service", inner())
        .nest("/deep", Router::new().nest("/users", inner()));

    let mut answers = Vec::new();
    for path in [
        "/users/1",
        "/orders/1",
        "/service/1",
        "/deep/users/1",
        "/users/1",
    ] {
        let request = Request::get(path).body(AxumBody::empty()).unwrap();
        answers.push(ask(&app, request).await);
    }

    let texts: Vec<_> = answers.iter().map(Answer::text).collect();
    assert_eq!(
        texts,
        [
            "/users/1",
            "/orders/1",
            "/service/1",
            "/deep/users/1",
            "/users/1"
        ]
    );
    assert!(answers[4].status_line().contains("hit"));
}

#[tokio::test(start_paused = true)]
async fn the_query_is_keyed_as_the_layer_says() {
    let cases: [(QueryKey, &[&str], usize); 5] = [
        (QueryKey::Raw, &["/?a=1&b=2", "/?b=2&a=1"], 2),
        (QueryKey::Sorted, &["/?a=1&b=2", "/?b=2&a=1"], 1),
        (QueryKey::Sorted, &["/?id=2&id=1", "/?id=1&id=2"], 2),
        (QueryKey::Ignore, &["/?a=1", "/?a=2", "/"], 1),
        (
            QueryKey::Only(vec!["a".to_owned()]),
            &["/?a=1", "/?a=1&utm=x", "/?%61=1", "/?a=2"],
            3,
        ),
    ];
    for (query, requests, expected) in cases {
        let (service, origin) = numbered(|layer| layer.query(query.clone()));
        assert_eq!(
            targets(&service, &origin, requests).await,
            expected,
            "{query:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_without_some_parameters_keeps_the_others() {
    let (service, origin) = numbered(|layer| layer.query(QueryKey::Except(vec!["utm".to_owned()])));

    assert_eq!(
        targets(
            &service,
            &origin,
            &["/?a=1&utm=x", "/?a=1&utm=y", "/?utm=z&a=1", "/?a=2"]
        )
        .await,
        2
    );
}

// ===== the route's own key =====

#[tokio::test(start_paused = true)]
async fn own_parts_are_kept_apart() {
    let (service, origin) = numbered(|layer| {
        layer.replace_key_with(|request, key| {
            for value in request.headers.get_all("x-part") {
                key.part(value.as_bytes());
            }
            Keyed::Yes
        })
    });

    let count = builds(
        &service,
        &origin,
        [
            ("/", &[("x-part", "user:1"), ("x-part", "2")][..]),
            ("/", &[("x-part", "user:12"), ("x-part", "")]),
            ("/", &[("x-part", "user:12")]),
            ("/elsewhere", &[("x-part", "user:12")]),
        ],
    )
    .await;

    assert_eq!(count, 3);
}

#[tokio::test(start_paused = true)]
async fn without_a_key_a_request_is_neither_stored_nor_coalesced() {
    let keyless: [(fn(BufferLayer) -> BufferLayer, &str); 3] = [
        (|layer| layer.key_with(|_, _| Keyed::Bypass), "no-key"),
        (
            |layer| layer.replace_key_with(|_, _| Keyed::Yes),
            "key-empty",
        ),
        (
            |layer| {
                layer.key_with(|_, key| {
                    key.part(vec![b'x'; 10_000]);
                    Keyed::Yes
                })
            },
            "key-length",
        ),
    ];
    for (options, detail) in keyless {
        let cache = Cache::in_memory();
        let origin = Origin::new(|_| async {
            sleep(Duration::from_millis(100)).await;
            fresh("mine")
        });
        let service = behind(&options(minute(&cache)), &origin);

        let answers = herd(&service, [get("/a"), get("/b"), get("/a")])
            .answers()
            .await;

        assert_eq!(origin.peak(), 3, "{detail}");
        for answer in answers {
            assert_eq!(
                answer.status_line(),
                format!("stampede; fwd=bypass; detail={detail}")
            );
        }
    }
}

// ===== methods and content =====

#[tokio::test(start_paused = true)]
async fn only_gets_and_heads_take_part() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        fresh(call.parts.method.to_string())
    });
    let service = behind(&minute(&cache), &origin);
    let request = |method: &Method| {
        let mut request = get("/");
        *request.method_mut() = method.clone();
        request
    };
    ask(&service, get("/")).await;

    for name in [
        "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY",
    ] {
        let method = Method::from_bytes(name.as_bytes()).unwrap();
        let before = origin.builds();
        let answers = herd(&service, [request(&method), request(&method)])
            .answers()
            .await;
        assert_eq!(origin.builds() - before, 2, "{name}");
        assert!(
            answers
                .iter()
                .all(|answer| answer.status_line() == "stampede; fwd=method"),
            "{name}"
        );
    }
    // The unsafe ones have invalidated the entry (RFC 9111 section 4.4).
    assert_eq!(ask(&service, get("/")).await.text(), "GET");
}

#[tokio::test(start_paused = true)]
async fn other_safe_methods_leave_entries_alone() {
    let (service, origin) = numbered(|layer| layer);
    ask(&service, get("/")).await;

    for name in ["OPTIONS", "TRACE", "QUERY"] {
        let mut request = get("/");
        *request.method_mut() = Method::from_bytes(name.as_bytes()).unwrap();
        ask(&service, request).await;
        let answer = ask(&service, get("/")).await;
        assert_eq!(answer.text(), "build 1", "{name}");
    }

    assert_eq!(origin.builds(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_get_with_content_bypasses() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call: Call| async move { fresh(format!("build {}", call.number)) });
    let service = minute(&cache).layer(origin.clone());
    let request = |content: &'static str| {
        Request::get("http://shop.example/")
            .body(Full::<bytes::Bytes>::from(content))
            .unwrap()
    };

    let with_content = ask(&service, request("{\"changes\": \"the output\"}")).await;
    let plain = ask(&service, request("")).await;
    let with_content_again = ask(&service, request("{}")).await;

    assert_eq!(
        with_content.status_line(),
        "stampede; fwd=bypass; detail=content"
    );
    assert_eq!(plain.text(), "build 2");
    assert_eq!(with_content_again.text(), "build 3");
}

// ===== Vary =====

#[tokio::test(start_paused = true)]
async fn variants_live_side_by_side() {
    let origin = Origin::new(|call| async move {
        reply(
            &[("cache-control", "public"), ("vary", "Accept-Language")],
            call.header("accept-language"),
        )
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    for _ in 0..10 {
        for language in ["de", "fr"] {
            let answer = ask(&service, with("/", &[("accept-language", language)])).await;
            assert_eq!(answer.text(), language);
        }
    }

    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_another_variant_starts_over() {
    for stored in ["max-age=60", ""] {
        let cache = Cache::in_memory();
        let origin = Origin::new(move |call| async move {
            sleep(Duration::from_millis(100)).await;
            reply(
                &[("cache-control", stored), ("vary", "accept-language")],
                call.header("accept-language"),
            )
        });
        let service = behind(&BufferLayer::new(cache.clone()), &origin);
        let languages = |at: usize| if at.is_multiple_of(2) { "de" } else { "fr" };

        let requests = (0..40).map(|at| with("/", &[("accept-language", languages(at))]));
        let answers = herd(&service, requests).answers().await;

        for (at, answer) in answers.iter().enumerate() {
            assert_eq!(answer.text(), languages(at));
        }
        assert_eq!(
            origin.builds(),
            2,
            "one build for each variant, with {stored:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_form_of_vary_is_read() {
    let cases: [(&[&str], [&[(&str, &str)]; 2], usize); 5] = [
        (&["*"], [&[], &[]], 2),
        (&["accept, x-y"], [&[("x-y", "1")], &[("x-y", "2")]], 2),
        (&["accept", "x-y"], [&[("x-y", "1")], &[("x-y", "2")]], 2),
        (
            &["ACCEPT , x-y"],
            [&[("accept", "a, b")], &[("accept", "a,b")]],
            1,
        ),
        (&["accept"], [&[("x-y", "1")], &[("x-y", "2")]], 1),
    ];
    for (vary, requests, expected) in cases {
        let origin = Origin::new(move |_| async move {
            let lines: Vec<_> = vary.iter().map(|line| ("vary", *line)).collect();
            reply(&lines, "variant")
        });
        let service = behind(&minute(&Cache::in_memory()), &origin);
        let count = builds(&service, &origin, requests.map(|headers| ("/", headers))).await;
        assert_eq!(count, expected, "{vary:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn variants_are_bounded() {
    let origin = Origin::new(|call| async move { reply(&[("vary", "x-id")], call.header("x-id")) });
    let cache = Cache::in_memory();
    let service = behind(&minute(&cache), &origin);

    for round in 0..2 {
        for id in 0..100 {
            let answer = ask(&service, with("/", &[("x-id", &id.to_string())])).await;
            assert_eq!(answer.text(), id.to_string(), "{round}");
        }
    }

    assert_eq!(origin.builds(), 200 - 16);
}

#[tokio::test(start_paused = true)]
async fn a_keyed_header_tells_requests_apart_before_any_response() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        fresh(call.header("x-single-flight"))
    });
    let layer = minute(&cache).vary_by_header(HeaderName::from_static("x-single-flight"));
    let service = behind(&layer, &origin);

    let attack = herd(&service, [with("/", &[("x-single-flight", "1")]), get("/")]);
    until(&cache, |stats| stats.flights == 2).await;
    let answers = attack.answers().await;

    assert_eq!((answers[0].text(), answers[1].text()), ("1", ""));
}

#[tokio::test(start_paused = true)]
async fn a_predicate_keeps_a_strange_answer_out() {
    let origin = Origin::new(|call| async move {
        match call.header("x-middleware-prefetch").as_str() {
            "1" => reply(&[("content-length", "0")], ""),
            _ => reply(&[("content-length", "4")], "page"),
        }
    });
    let layer = minute(&Cache::in_memory()).cache_if(|response| {
        response
            .headers
            .get("content-length")
            .is_none_or(|length| length != "0")
    });
    let service = behind(&layer, &origin);

    let prefetch = ask(&service, with("/", &[("x-middleware-prefetch", "1")])).await;
    let page = ask(&service, get("/")).await;

    assert_eq!((prefetch.text(), page.text()), ("", "page"));
}

#[tokio::test(start_paused = true)]
async fn two_caches_share_nothing() {
    let origin = Origin::new(|call| async move { fresh(format!("build {}", call.number)) });
    let one = behind(&minute(&Cache::in_memory()), &origin);
    let other = behind(&minute(&Cache::in_memory()), &origin);

    assert_eq!(ask(&one, get("/")).await.text(), "build 1");
    assert_eq!(ask(&other, get("/")).await.text(), "build 2");
}
