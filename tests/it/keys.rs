//! What identifies a response.

use std::time::Duration;

use http::{HeaderName, Method, Request, Uri, Version};
use http_body_util::Full;
use tokio::time::sleep;
use tower::Layer as _;
use tower_stampede::{BufferLayer, Cache, Keyed, QueryKey};

use crate::support::{
    client::{Answer, ask, behind, builds, get, herd, minute, numbered, targets, with},
    origin::{Call, Origin, fresh, held_then, reply},
};

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

#[derive(Clone)]
struct AsSent(Uri);

#[tokio::test(start_paused = true)]
async fn a_router_that_cuts_prefixes_off_says_where_it_keeps_the_uri() {
    let (service, _origin) = numbered(|layer| {
        layer.original_uri(|request| request.extensions.get::<AsSent>().map(|AsSent(uri)| uri))
    });
    let cut = |sent: &'static str| {
        let mut request = get("/7");
        request
            .extensions_mut()
            .insert(AsSent(Uri::from_static(sent)));
        request
    };

    let mut answers = Vec::new();
    for request in [
        cut("/users/7"),
        cut("/orders/7"),
        get("/7"),
        cut("/users/7"),
    ] {
        answers.push(ask(&service, request).await);
    }

    let texts: Vec<_> = answers.iter().map(Answer::text).collect();
    assert_eq!(texts, ["build 1", "build 2", "build 3", "build 1"]);
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
async fn a_host_that_contradicts_the_target_fills_nothing_that_others_get() {
    let (service, origin) = numbered(|layer| layer);
    for host in ["evil.example", "shop.example:8080"] {
        let poisoning = with("http://shop.example/", &[("host", host)]);
        ask(&service, poisoning).await;
    }
    let honest = ask(&service, get("http://shop.example/")).await;
    assert_eq!(honest.text(), "build 3");

    for host in ["shop.example", "Shop.Example:80"] {
        let same = with("http://shop.example/", &[("host", host)]);
        assert_eq!(ask(&service, same).await.text(), "build 3", "{host}");
    }
    assert_eq!(origin.builds(), 3);
}

#[tokio::test(start_paused = true)]
async fn who_has_keyed_fields_dropped_on_the_way_fills_nothing() {
    let origin = Origin::new(|call| async move {
        // As one that forwards requests would see it.
        let hidden = call.header("connection").contains("X-Tenant");
        fresh(if hidden {
            String::new()
        } else {
            call.header("x-tenant")
        })
    });
    let cache = Cache::in_memory();
    let layer = minute(&cache).vary_by_header(HeaderName::from_static("x-tenant"));
    let service = behind(&layer, &origin);
    let hidden = [("x-tenant", "shop"), ("connection", "close, X-Tenant")];

    let poisoning = ask(&service, with("/", &hidden)).await;
    let victim = ask(&service, with("/", &[("x-tenant", "shop")])).await;

    assert_eq!(
        poisoning.status_line(),
        "stampede; fwd=bypass; detail=connection"
    );
    assert_eq!(victim.text(), "shop");
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
async fn a_host_beside_a_target_of_another_authority_is_shown_to_nobody_else() {
    let origin = Origin::new(move |call| async move { reply(&[], call.header("host")) });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    ask(
        &service,
        with("http://a.example/", &[("host", "evil.example")]),
    )
    .await;
    let with_host = with("http://a.example/", &[("host", "a.example")]);
    let victims = [
        ask(&service, with_host).await,
        ask(&service, get("http://a.example/")).await,
    ];

    for victim in victims {
        assert!(!victim.text().contains("evil"), "{}", victim.text());
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
async fn other_methods_wait_for_no_build_and_nobody_waits_for_theirs() {
    let cache = Cache::in_memory();
    let (origin, gate) = held_then(|call| fresh(call.parts.method.as_str().to_owned()));
    let service = behind(&minute(&cache), &origin);
    let names = ["OPTIONS", "TRACE", "CONNECT", "POST", "GET"];
    let requests = names.map(|name| {
        let mut request = get("/");
        *request.method_mut() = Method::from_bytes(name.as_bytes()).unwrap();
        request
    });

    let herd = herd(&service, requests);
    origin.called(names.len()).await;
    assert_eq!(cache.stats().waiters, 1);
    gate.open();

    for (answer, name) in herd.answers().await.iter().zip(names) {
        assert_eq!(answer.text(), name);
    }
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
