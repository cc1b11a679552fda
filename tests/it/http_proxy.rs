//! Through the proxy example, over real sockets: what is kept, what passes, and what makes entries void.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Request, Version, header};
use http_body_util::BodyExt as _;
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    sync::Notify,
    time::{Instant, sleep},
};

use crate::support::{
    redis::RedisServer,
    wire::{
        ByteOrigin, Call, FRESH, Proxy, ask_h2, get_h2, lines, outcome, page, read_until, say,
        until,
    },
};

#[tokio::test]
async fn whatever_version_the_origin_speaks_clients_get_the_proxys_own() {
    let old = page(FRESH, "page").replacen("HTTP/1.1", "HTTP/1.0", 1);
    let origin = ByteOrigin::saying(old).await;
    let proxy = Proxy::start(origin.address(), &[]);

    let miss = proxy.get("/", "").await;
    let hit = until(&proxy, "/", |answer| outcome(answer).contains("hit")).await;

    for answer in [miss, hit] {
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\npage"), "{answer}");
    }
}

// ===== what is not an answer to keep =====

#[tokio::test]
async fn an_interim_response_is_neither_stored_nor_mixed_into_the_final_one() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\
                   Cache-Control: max-age=1000\r\nX-Early: 1\r\n\r\n\
                   HTTP/1.1 102 Processing\r\nX-Early: 2\r\n\r\n";
    let origin = ByteOrigin::saying(format!("{interim}{}", page(FRESH, "page"))).await;
    let proxy = Proxy::start(origin.address(), &[]);

    let miss = proxy.get("/", "").await;
    let hit = until(&proxy, "/", |answer| outcome(answer).contains("hit")).await;

    for answer in [miss, hit] {
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\npage"), "{answer}");
        assert_eq!(lines(&answer, "cache-control"), ["max-age=60"]);
        assert!(lines(&answer, "x-early").is_empty() && lines(&answer, "link").is_empty());
    }
    assert_eq!(origin.count(), 1);
}

#[tokio::test]
async fn streams_arrive_part_by_part_and_belong_to_their_own_client() {
    for media in [
        "text/event-stream",
        "multipart/x-mixed-replace; boundary=x",
        "application/x-ndjson",
        "application/grpc-web+proto",
    ] {
        let origin = ByteOrigin::start(move |mut call: Call| async move {
            let fields = format!("{FRESH}Content-Type: {media}\r\n");
            let first = format!("first of {}\n", call.number);
            call.send(say("200 OK", &fields, &first)).await;
            // The rest never comes: what is there must not wait for it.
            std::future::pending::<()>().await;
        })
        .await;
        let proxy = Proxy::start(origin.address(), &[]);

        for number in 1..=2 {
            let mut client = TcpStream::connect(proxy.address()).await.unwrap();
            let request = "GET / HTTP/1.1\r\nHost: shop\r\n\r\n";
            client.write_all(request.as_bytes()).await.unwrap();
            let answer = read_until(&mut client, &format!("first of {number}\n")).await;

            assert_eq!(
                outcome(&answer),
                "stampede; fwd=uri-miss; detail=streaming",
                "{media}"
            );
        }
        assert_eq!(origin.count(), 2);
    }
}

#[tokio::test]
async fn an_upgrade_passes_untouched_from_the_first_byte() {
    let origin = ByteOrigin::start(|mut call: Call| async move {
        assert_eq!(call.field("upgrade"), "echo");
        // The first words of the new protocol come in one piece with the head.
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                      Upgrade: echo\r\nCache-Control: max-age=60\r\n\r\nhello\n";
        call.send(switch).await;
        let word = read_until(&mut call.stream, "\n").await;
        call.send(format!("you said {word}")).await;
    })
    .await;
    let proxy = Proxy::start(origin.address(), &[]);

    for _ in 0..2 {
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let request =
            "GET / HTTP/1.1\r\nHost: shop\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        let greeting = read_until(&mut client, "hello\n").await;
        client.write_all(b"ping\n").await.unwrap();
        let echo = read_until(&mut client, "\n").await;

        assert!(greeting.starts_with("HTTP/1.1 101 "), "{greeting}");
        assert_eq!(outcome(&greeting), "stampede; fwd=bypass; detail=upgrade");
        assert_eq!(echo, "you said ping\n");
    }
    assert_eq!(origin.count(), 2);
}

#[tokio::test]
async fn a_download_that_may_not_be_stored_passes_as_it_comes() {
    let gate = Arc::new(Notify::new());
    let opened = Arc::clone(&gate);
    let origin = ByteOrigin::start(move |mut call: Call| {
        let opened = Arc::clone(&opened);
        async move {
            let fields = "Cache-Control: no-store\r\nContent-Length: 1000000000\r\n";
            call.send(say("200 OK", fields, "the first byte is here"))
                .await;
            opened.notified().await;
        }
    })
    .await;
    let proxy = Proxy::start(origin.address(), &[]);

    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: shop\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let answer = read_until(&mut client, "the first byte is here").await;
    gate.notify_one();

    assert_eq!(lines(&answer, "content-length"), ["1000000000"]);
    assert_eq!(outcome(&answer), "stampede; fwd=uri-miss; detail=no-store");
}

// ===== what makes entries void, and what keeps them =====

#[tokio::test]
async fn a_write_through_one_proxy_reaches_the_entries_of_the_other_though_its_client_has_gone() {
    let redis = RedisServer::start();
    let origin = ByteOrigin::start(|mut call: Call| async move {
        if call.head.starts_with("POST") {
            // The write is done, and nobody is told.
            std::future::pending::<()>().await;
        }
        let body = format!("build {}", call.number);
        call.send(page(FRESH, &body)).await;
    })
    .await;
    let options = ["--redis", &redis.url()];
    let [one, other] = [(); 2].map(|()| Proxy::start(origin.address(), &options));
    one.get("/", "").await;
    until(&other, "/", |answer| outcome(answer).contains("hit")).await;

    let mut client = TcpStream::connect(one.address()).await.unwrap();
    let write = "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 4\r\n\r\ndata";
    client.write_all(write.as_bytes()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while origin.count() < 2 {
        assert!(Instant::now() < deadline, "the write never came");
        sleep(Duration::from_millis(2)).await;
    }
    drop(client);

    for proxy in [&one, &other] {
        until(proxy, "/", |answer| answer.ends_with("build 3")).await;
    }
}

#[tokio::test]
async fn an_origin_that_has_gone_leaves_the_stale_page_in_its_place() {
    let fields = "Cache-Control: max-age=0, stale-if-error=60\r\nETag: \"a\"\r\n";
    let origin = ByteOrigin::saying(page(fields, "page")).await;
    let proxy = Proxy::start(origin.address(), &[]);
    let stale = "stampede; fwd=stale";
    until(&proxy, "/", |answer| outcome(answer).starts_with(stale)).await;

    drop(origin);
    let stale = until(&proxy, "/", |answer| answer.contains("stale-if-error")).await;
    let other = proxy.get("/other", "").await;

    assert!(stale.starts_with("HTTP/1.1 200 OK\r\n"), "{stale}");
    assert!(stale.ends_with("\r\n\r\npage"), "{stale}");
    assert!(outcome(&stale).starts_with("stampede; fwd=stale; ttl="));
    assert!(other.starts_with("HTTP/1.1 502 "), "{other}");
}

#[tokio::test]
async fn a_304_from_the_origin_renews_the_page_and_a_clients_own_condition_never_gets_there() {
    let origin = ByteOrigin::start(|mut call: Call| async move {
        let fields = format!(
            "Cache-Control: no-cache\r\nETag: \"a\"\r\nX-Number: {}\r\n",
            call.number
        );
        match call.field("if-none-match") {
            "" => call.send(page(&fields, "page")).await,
            "\"a\"" => call.send(say("304 Not Modified", &fields, "")).await,
            other => panic!("{other}"),
        }
    })
    .await;
    let proxy = Proxy::start(origin.address(), &[]);

    let first = proxy.get("/", "If-None-Match: \"client\"\r\n").await;
    let renewed = "stampede; fwd=stale; fwd-status=304; stored; ttl=0";
    let second = until(&proxy, "/", |answer| outcome(answer) == renewed).await;
    let third = proxy.get("/", "If-None-Match: \"client\"\r\n").await;
    let fourth = proxy.get("/", "If-None-Match: \"a\"\r\n").await;

    for answer in [&first, &second, &third] {
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\npage"), "{answer}");
    }
    assert!(fourth.starts_with("HTTP/1.1 304 "), "{fourth}");
    let last = origin.count().to_string();
    assert_eq!(lines(&fourth, "x-number"), [last]);
    for head in origin.heads() {
        assert!(!head.contains("client"), "{head}");
    }
}

#[tokio::test]
async fn a_head_and_a_get_at_the_same_time_do_not_wait_for_each_other() {
    let gate = Arc::new(Notify::new());
    let opened = Arc::clone(&gate);
    let origin = ByteOrigin::start(move |mut call: Call| {
        let opened = Arc::clone(&opened);
        async move {
            if call.head.starts_with("GET") {
                opened.notified().await;
                return call.send(page(FRESH, "page")).await;
            }
            let fields = format!("{FRESH}Content-Length: 4\r\n");
            call.send(say("200 OK", &fields, "")).await;
        }
    })
    .await;
    let proxy = Proxy::start(origin.address(), &[]);

    let get = proxy.get("/", "");
    let head = async {
        let deadline = Instant::now() + Duration::from_secs(20);
        while origin.count() == 0 {
            assert!(Instant::now() < deadline, "the GET never came");
            sleep(Duration::from_millis(2)).await;
        }
        let head = "HEAD / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n";
        let answer = proxy.raw(head).await;
        gate.notify_one();
        String::from_utf8(answer).unwrap()
    };
    let (get, head) = tokio::join!(get, head);

    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    assert!(get.ends_with("\r\n\r\npage"), "{get}");
    assert_eq!(outcome(&get), "stampede; fwd=uri-miss; stored; ttl=60");
    assert_eq!(origin.count(), 2);
}

#[tokio::test]
async fn a_head_over_http2_has_no_body_whatever_answers_it() {
    let origin = ByteOrigin::saying(page(FRESH, "page")).await;
    let proxy = Proxy::start(origin.address(), &[]);
    let head = |fields: &[(&'static str, &'static str)]| {
        let mut request = Request::head(format!("http://{}/", proxy.address()));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.version(Version::HTTP_2)
    };
    let only: &[_] = &[("cache-control", "only-if-cached")];

    let nothing = ask_h2(head(only)).await;
    assert_eq!(nothing.status(), 504);
    assert_eq!(nothing.into_body().collect().await.unwrap().to_bytes(), "");

    get_h2(&proxy, "/")
        .await
        .into_body()
        .collect()
        .await
        .unwrap();
    let hit = ask_h2(head(only)).await;
    let length = |headers: &HeaderMap| headers[header::CONTENT_LENGTH].clone();
    assert_eq!(
        (hit.status().as_u16(), length(hit.headers())),
        (200, "4".parse().unwrap())
    );
    assert_eq!(hit.into_body().collect().await.unwrap().to_bytes(), "");
}
