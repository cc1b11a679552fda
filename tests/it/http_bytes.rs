//! Through the proxy example, byte for byte: HTTP/1.1 and HTTP/2 in clear text, real sockets and processes.

use http::{Request, Version, header};
use http_body_util::BodyExt as _;

use crate::support::{
    redis::RedisServer,
    wire::{
        ByteOrigin, Call, FRESH, Proxy, ask_h2, get_h2, head_and_body, lines, outcome, page, say,
        until,
    },
};

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
    // Whoever comes before that has ended shares the failure.
    let whole = "\r\n\r\n0123456789";
    until(&proxy, "/", |answer| answer.ends_with(whole)).await;
    let hit = until(&proxy, "/", |answer| outcome(answer).contains("hit")).await;

    assert!(!broken.contains("0123456789"), "{broken}");
    let length = lines(&broken, "content-length");
    assert!(broken.is_empty() || length == ["10"], "{broken}");
    assert!(hit.ends_with(whole), "{hit}");
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
