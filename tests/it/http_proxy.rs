//! Through the proxy example, as bytes: HTTP/1.1 and HTTP/2 in clear text, real sockets and processes.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    sync::Notify,
    time::{Instant, sleep},
};

use crate::support::{
    redis::RedisServer,
    wire::{ByteOrigin, Call, Proxy, read_until},
};

/// A response that ends with its connection.
fn say(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\n{fields}\r\n{body}")
}

/// With the length that the body has.
fn page(fields: &str, body: &str) -> String {
    let length = body.len();
    say(
        "200 OK",
        &format!("{fields}Content-Length: {length}\r\n"),
        body,
    )
}

const FRESH: &str = "Cache-Control: max-age=60\r\n";

fn h2() -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http()
}

/// A GET over HTTP/2.
async fn get_h2(proxy: &Proxy, path: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://{}{path}", proxy.address()));
    ask_h2(request.version(Version::HTTP_2)).await
}

async fn ask_h2(request: http::request::Builder) -> Response<Incoming> {
    let request = request.body(Empty::new()).expect("it is valid");
    h2().request(request).await.expect("it is answered")
}

fn head_and_body(answer: &[u8]) -> (String, Vec<u8>) {
    let end = answer.windows(4).position(|at| at == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.expect("a head ends with an empty line") + 4);
    // Latin-1: a character for each byte.
    (
        head.iter().copied().map(char::from).collect(),
        body.to_vec(),
    )
}

/// The lines of a field, in order.
fn lines<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let named = |line: &'a str| {
        let (field, value) = line.split_once(':')?;
        let value = value.strip_prefix(' ').unwrap_or(value);
        field.eq_ignore_ascii_case(name).then_some(value)
    };
    head.split("\r\n").filter_map(named).collect()
}

fn outcome(answer: &str) -> &str {
    lines(answer, "cache-status").last().copied().unwrap_or("")
}

/// Until the answer to a GET is one that `accepts`.
async fn until(proxy: &Proxy, path: &str, accepts: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = proxy.get(path, "").await;
        if accepts(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer}");
        sleep(Duration::from_millis(5)).await;
    }
}

// ===== byte for byte =====

/// Fields and a body that are easily damaged.
fn odd() -> (Vec<u8>, Vec<u8>) {
    let body: Vec<u8> = (0..=255)
        .chain(*b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
        .collect();
    let mut answer = b"HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\
        Keep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nCache-Control: max-age=60\r\n\
        Link: <a>\r\nX-One: 1\r\nlink: <b>, <c>\r\nLINK: <a>\r\nX-Empty:\r\n\
        X-Quoted: \"a, b\\\"\"\r\n\
        Content-Disposition: attachment; filename=\"caf\xe9 \xff.txt\"\r\n"
        .to_vec();
    answer.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    answer.extend_from_slice(&body);
    (answer, body)
}

fn assert_undamaged(answer: &[u8], body: &[u8]) {
    let (head, received) = head_and_body(answer);

    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert_eq!(received, body);
    assert_eq!(lines(&head, "link"), ["<a>", "<b>, <c>", "<a>"]);
    assert_eq!(lines(&head, "x-one"), ["1"]);
    assert_eq!(lines(&head, "x-empty"), [""]);
    assert_eq!(lines(&head, "x-quoted"), ["\"a, b\\\"\""]);
    assert_eq!(
        lines(&head, "content-disposition"),
        ["attachment; filename=\"caf\u{e9} \u{ff}.txt\""]
    );
    assert_eq!(lines(&head, "content-length"), [body.len().to_string()]);
    assert_eq!(lines(&head, "date").len(), 1);
    for hop in [
        "x-hop",
        "keep-alive",
        "proxy-authenticate",
        "transfer-encoding",
    ] {
        assert!(lines(&head, hop).is_empty(), "{hop}: {head}");
    }
}

const PLAIN: &str = "GET /odd HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_miss_and_a_hit_are_what_the_origin_said_byte_for_byte() {
    let (answer, body) = odd();
    let origin = ByteOrigin::saying(answer).await;
    let proxy = Proxy::start(origin.address(), &[]);

    let miss = proxy.raw(PLAIN).await;
    until(&proxy, "/odd", |answer| outcome(answer).contains("hit")).await;
    let hit = proxy.raw(PLAIN).await;

    assert_undamaged(&miss, &body);
    assert_undamaged(&hit, &body);
    let (miss, hit) = (head_and_body(&miss).0, head_and_body(&hit).0);
    assert_eq!(lines(&miss, "date"), lines(&hit, "date"));
    assert!(lines(&miss, "age").is_empty());
    assert_eq!(lines(&hit, "age").len(), 1);
    assert_eq!(origin.count(), 1);
}

#[tokio::test]
async fn what_comes_through_redis_is_what_the_origin_said_byte_for_byte() {
    let redis = RedisServer::start();
    let (answer, body) = odd();
    let origin = ByteOrigin::saying(answer).await;
    let options = ["--redis", &redis.url()];
    let [one, other] = [(); 2].map(|()| Proxy::start(origin.address(), &options));

    one.raw(PLAIN).await;
    until(&one, "/odd", |answer| outcome(answer).contains("hit")).await;
    let shared = other.raw(PLAIN).await;

    assert_undamaged(&shared, &body);
    assert!(outcome(&head_and_body(&shared).0).contains("hit"));
    assert_eq!(origin.count(), 1);
}

#[tokio::test]
async fn what_comes_over_http2_is_what_the_origin_said_byte_for_byte() {
    let (answer, body) = odd();
    let origin = ByteOrigin::saying(answer).await;
    let proxy = Proxy::start(origin.address(), &[]);

    for outcome in ["uri-miss", "hit"] {
        let answer = get_h2(&proxy, "/odd").await;
        let (parts, received) = answer.into_parts();
        let all = |name| {
            let values = parts.headers.get_all(name).iter();
            values
                .map(|value| value.as_bytes().to_vec())
                .collect::<Vec<_>>()
        };

        assert_eq!(parts.version, Version::HTTP_2);
        assert_eq!(received.collect().await.unwrap().to_bytes(), body);
        assert_eq!(all("link"), [&b"<a>"[..], b"<b>, <c>", b"<a>"]);
        assert_eq!(all("x-empty"), [b""]);
        assert_eq!(
            all("content-disposition"),
            [b"attachment; filename=\"caf\xe9 \xff.txt\""]
        );
        assert!(all("x-hop").is_empty() && all("connection").is_empty());
        let status = String::from_utf8(all("cache-status").concat()).unwrap();
        assert!(status.contains(outcome), "{status}");
    }
    let host = format!("host: {}\r\n", proxy.address());
    assert!(origin.heads()[0].contains(&host), "{:?}", origin.heads());
    assert_eq!(origin.count(), 1);
}

#[tokio::test]
async fn what_a_client_sends_reaches_the_origin_without_what_is_for_the_proxy() {
    let origin = ByteOrigin::saying(page(FRESH, "page")).await;
    let proxy = Proxy::start(origin.address(), &[]);

    let answer = proxy
        .raw(
            "GET http://shop/a?b=%2F HTTP/1.1\r\nHost: evil\r\nX-Hop: 1\r\nX-One: a\r\n\
             x-one: b\r\nKeep-Alive: 5\r\nTE: trailers\r\nConnection: close, x-hop, te\r\n\r\n",
        )
        .await;

    let answer = String::from_utf8(answer).unwrap();
    assert_eq!(outcome(&answer), "stampede; fwd=bypass; detail=connection");
    let head = &origin.heads()[0];
    assert!(head.starts_with("GET /a?b=%2F HTTP/1.1\r\n"), "{head}");
    assert_eq!(lines(head, "host"), ["shop"]);
    assert_eq!(lines(head, "x-one"), ["a", "b"]);
    assert_eq!(lines(head, "via"), ["1.1 tower-stampede"]);
    for hop in ["x-hop", "keep-alive", "te", "connection"] {
        assert!(lines(head, hop).is_empty(), "{hop}: {head}");
    }
}

#[tokio::test]
async fn a_request_without_exactly_one_host_is_refused_and_one_that_hides_fields_fills_nothing() {
    let origin = ByteOrigin::saying(page(FRESH, "page")).await;
    let proxy = Proxy::start(origin.address(), &[]);

    for hosts in ["", "Host: a\r\nHost: b\r\n"] {
        let request = format!("GET / HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        let answer = String::from_utf8(proxy.raw(&request).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    assert_eq!(origin.count(), 0);

    let hiding =
        "GET / HTTP/1.1\r\nHost: shop\r\nX-Lang: de\r\nConnection: close, host, x-lang\r\n\r\n";
    let answer = String::from_utf8(proxy.raw(hiding).await).unwrap();
    assert_eq!(outcome(&answer), "stampede; fwd=bypass; detail=connection");
    assert_eq!(lines(&origin.heads()[0], "host"), ["shop"]);
    assert!(lines(&origin.heads()[0], "x-lang").is_empty());
    let next = proxy.get("/", "X-Lang: de\r\n").await;
    assert_eq!(outcome(&next), "stampede; fwd=uri-miss; stored; ttl=60");
}

#[tokio::test]
async fn cookies_that_come_apart_over_http2_reach_the_origin_as_one_field() {
    let origin = ByteOrigin::saying(page("", "page")).await;
    let proxy = Proxy::start(origin.address(), &[]);

    let request = Request::get(format!("http://{}/", proxy.address()))
        .version(Version::HTTP_2)
        .header(header::COOKIE, "a=1")
        .header(header::COOKIE, "b=2");
    ask_h2(request).await;

    assert_eq!(lines(&origin.heads()[0], "cookie"), ["a=1; b=2"]);
}

// ===== lengths and connections =====

#[tokio::test]
async fn several_requests_on_one_connection_get_one_answer_each() {
    let origin = ByteOrigin::saying(page(
        "Cache-Control: max-age=60\r\nETag: \"a\"\r\nContent-Type: text/plain\r\n",
        "0123456789",
    ))
    .await;
    let proxy = Proxy::start(origin.address(), &[]);
    proxy.get("/", "").await;
    let request =
        |method: &str, fields: &str| format!("{method} / HTTP/1.1\r\nHost: shop\r\n{fields}\r\n");

    let answers = proxy
        .raw(
            &[
                request("GET", "If-None-Match: W/\"a\", \"b\"\r\n"),
                request("HEAD", ""),
                request("GET", "Range: bytes=2-4\r\n"),
                request("GET", "Range: bytes=90-\r\n"),
                request("GET", "Range: bytes=0-0,-1\r\n"),
                request("GET", "Range: bytes=2-4\r\nIf-Range: \"b\"\r\n"),
                request("HEAD", "If-None-Match: \"a\"\r\n"),
                request("GET", "Connection: close\r\n"),
            ]
            .concat(),
        )
        .await;
    let answers = String::from_utf8(answers).unwrap();

    let statuses: Vec<_> = answers
        .split("HTTP/1.1 ")
        .filter_map(|answer| answer.split(' ').next())
        .skip(1)
        .collect();
    assert_eq!(
        statuses,
        ["304", "200", "206", "416", "206", "200", "304", "200"]
    );
    let (_, rest) = answers.split_once("HTTP/1.1 206").unwrap();
    assert!(rest.contains("content-range: bytes 2-4/10\r\n"), "{rest}");
    assert!(rest.contains("\r\n\r\n234HTTP/1.1 416"), "{rest}");
    assert!(rest.contains("content-range: bytes */10\r\n"), "{rest}");
    assert!(rest.contains("\r\nContent-Range: bytes 9-9/10\r\n\r\n9\r\n--"));
    assert_eq!(answers.matches("content-length: 10\r\n").count(), 3);
    assert!(answers.ends_with("\r\n\r\n0123456789"), "{answers}");
    assert_eq!(origin.count(), 1);
}

#[tokio::test]
async fn the_length_is_right_however_the_origin_delimits_its_body() {
    let chunked = say(
        "200 OK",
        "Cache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n",
        "4\r\npage\r\n0\r\n\r\n",
    );
    for (answer, body) in [
        (page(FRESH, "page"), "page"),
        (chunked, "page"),
        (say("200 OK", FRESH, "page"), "page"),
        (page(FRESH, ""), ""),
    ] {
        let origin = ByteOrigin::saying(answer.clone()).await;
        let proxy = Proxy::start(origin.address(), &[]);

        let miss = proxy.get("/", "").await;
        let hit = until(&proxy, "/", |answer| outcome(answer).contains("hit")).await;
        let head = proxy
            .raw("HEAD / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
            .await;
        let head = String::from_utf8(head).unwrap();

        assert!(miss.contains(body), "{miss}");
        assert!(hit.ends_with(&format!("\r\n\r\n{body}")), "{hit}");
        assert_eq!(lines(&hit, "content-length"), [body.len().to_string()]);
        assert!(lines(&hit, "transfer-encoding").is_empty(), "{hit}");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
        if !body.is_empty() {
            assert_eq!(lines(&head, "content-length"), [body.len().to_string()]);
        }
        assert_eq!(origin.count(), 1, "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_breaks_off_for_the_client_and_is_not_stored() {
    let origin = ByteOrigin::start(|mut call: Call| async move {
        let length = format!("{FRESH}Content-Length: 10\r\n");
        let body = if call.number == 1 {
            "01234"
        } else {
            "0123456789"
        };
        call.send(say("200 OK", &length, body)).await;
    })
    .await;
    let proxy = Proxy::start(origin.address(), &[]);

    let broken = proxy.get("/", "").await;
    let whole = proxy.get("/", "").await;

    assert!(!broken.contains("0123456789"), "{broken}");
    let length = lines(&broken, "content-length");
    assert!(broken.is_empty() || length == ["10"], "{broken}");
    assert!(whole.ends_with("\r\n\r\n0123456789"), "{whole}");
    assert_eq!(origin.count(), 2);
}

#[tokio::test]
async fn trailers_reach_clients_of_either_protocol_on_a_miss_and_on_a_hit() {
    let origin = ByteOrigin::saying(say(
        "200 OK",
        "Cache-Control: max-age=60\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n",
        "4\r\npage\r\n0\r\nX-Sum: 42\r\n\r\n",
    ))
    .await;
    let proxy = Proxy::start(origin.address(), &[]);
    let wanting = "GET / HTTP/1.1\r\nHost: shop\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n";

    for _ in 0..2 {
        let whole = get_h2(&proxy, "/")
            .await
            .into_body()
            .collect()
            .await
            .unwrap();
        assert_eq!(whole.trailers().unwrap()["x-sum"], "42");
        assert_eq!(whole.to_bytes(), "page");

        let answer = String::from_utf8(proxy.raw(wanting).await).unwrap();
        assert!(answer.ends_with("0\r\nx-sum: 42\r\n\r\n"), "{answer}");
    }
    assert_eq!(origin.count(), 2, "one for each host");
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
