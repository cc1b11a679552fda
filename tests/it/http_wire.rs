//! Over real sockets, HTTP/1.1 and HTTP/2 in clear text: what clients see of a cached service.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tower_http::set_header::SetResponseHeaderLayer;
use tower_stampede::{BufferLayer, Cache};

type Builds = Arc<AtomicUsize>;

fn layer() -> BufferLayer {
    BufferLayer::new(Cache::in_memory()).ttl(Duration::from_secs(60))
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(tokio::spawn(
        async move { axum::serve(listener, router).await },
    ));
    address
}

/// Sends one HTTP/1.1 request as it is, and reads until the server closes.
async fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = request.replace('\n', "\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn h2() -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http()
}

fn counted(
    builds: &Builds,
    respond: impl Fn(usize) -> Response + Clone + Send + Sync + 'static,
) -> Router {
    let builds = Arc::clone(builds);
    let handler = move || {
        let (builds, respond) = (Arc::clone(&builds), respond.clone());
        async move { respond(builds.fetch_add(1, Ordering::SeqCst) + 1) }
    };
    Router::new().route("/", get(handler))
}

#[tokio::test]
async fn a_hit_is_the_same_bytes_with_an_age() {
    let builds = Builds::default();
    let router = counted(&builds, |_| {
        ([("x-one", "a"), ("link", "<b>")], "0123456789").into_response()
    });
    let address = serve(router.layer(layer())).await;
    let request = "GET / HTTP/1.1\nHost: shop\nConnection: close\n\n";

    let miss = raw(address, request).await;
    let hit = raw(address, request).await;

    for answer in [&miss, &hit] {
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n0123456789"), "{answer}");
        assert!(answer.contains("\r\ncontent-length: 10\r\n"), "{answer}");
        assert!(
            answer.contains("\r\nx-one: a\r\n") && answer.contains("\r\nlink: <b>\r\n"),
            "{answer}"
        );
        assert_eq!(answer.matches("\r\ndate: ").count(), 1, "{answer}");
    }
    assert!(
        hit.contains("\r\nage: 0\r\n") && hit.contains("stampede; hit"),
        "{hit}"
    );
    assert_eq!(builds.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_head_has_the_length_of_the_page_and_no_body() {
    let builds = Builds::default();
    let address = serve(counted(&builds, |_| "0123456789".into_response()).layer(layer())).await;
    raw(address, "GET / HTTP/1.1\nHost: shop\nConnection: close\n\n").await;

    let head = raw(
        address,
        "HEAD / HTTP/1.1\nHost: shop\nConnection: close\n\n",
    )
    .await;

    assert!(head.contains("\r\ncontent-length: 10\r\n"), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(builds.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_304_and_a_416_leave_the_connection_usable() {
    let builds = Builds::default();
    let router = counted(&builds, |_| {
        ([("etag", "\"a\"")], "0123456789").into_response()
    });
    let address = serve(router.layer(layer())).await;
    raw(address, "GET / HTTP/1.1\nHost: shop\nConnection: close\n\n").await;

    let answers = raw(
        address,
        "GET / HTTP/1.1\nHost: shop\nIf-None-Match: \"a\"\n\n\
         GET / HTTP/1.1\nHost: shop\nRange: bytes=50-\n\n\
         GET / HTTP/1.1\nHost: shop\nRange: bytes=3-4\nConnection: close\n\n",
    )
    .await;

    assert_eq!(answers.matches("HTTP/1.1 ").count(), 3, "{answers}");
    assert!(answers.starts_with("HTTP/1.1 304 "), "{answers}");
    assert!(answers.contains("\r\n\r\nHTTP/1.1 416 "), "{answers}");
    assert!(answers.contains("\r\n\r\nHTTP/1.1 206 "), "{answers}");
    assert!(answers.ends_with("\r\n\r\n34"), "{answers}");
}

#[tokio::test]
async fn trailers_are_kept_and_replayed() {
    let builds = Builds::default();
    let router = counted(&builds, |_| {
        let trailers = HeaderMap::from_iter([(
            HeaderName::from_static("x-sum"),
            HeaderValue::from_static("45"),
        )]);
        let frames = [
            Ok::<_, Infallible>(Frame::data(Bytes::from("0123456789"))),
            Ok(Frame::trailers(trailers)),
        ];
        Response::new(Body::new(StreamBody::new(futures_util::stream::iter(
            frames,
        ))))
    });
    let address = serve(router.layer(layer())).await;

    for _ in 0..2 {
        let answer = h2()
            .get(format!("http://{address}/").parse().unwrap())
            .await
            .unwrap();
        let whole = answer.into_body().collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["x-sum"], "45");
        assert_eq!(whole.to_bytes(), "0123456789");
    }
    assert_eq!(builds.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_grpc_call_streams_both_ways_and_ends_with_its_status() {
    let echo = axum::routing::post(|request: Request| async move {
        let messages = request.into_body().into_data_stream();
        let messages = messages.map(|message| Ok::<_, Infallible>(Frame::data(message.unwrap())));
        let status = HeaderMap::from_iter([
            (HeaderName::from_static("grpc-status"), "0".parse().unwrap()),
            (
                HeaderName::from_static("grpc-message"),
                "fine".parse().unwrap(),
            ),
        ]);
        let end = futures_util::stream::iter([Ok(Frame::trailers(status))]);
        let body = Body::new(StreamBody::new(messages.chain(end)));
        let fields = [
            (header::CONTENT_TYPE, "application/grpc+proto"),
            (header::CACHE_CONTROL, "max-age=60"),
        ];
        (fields, body).into_response()
    });
    let address = serve(
        Router::new()
            .route("/shop.Orders/Watch", echo)
            .layer(layer()),
    )
    .await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();

    for _ in 0..2 {
        let (mut messages, body) = http_body_util::channel::Channel::<Bytes, Infallible>::new(1);
        let request = http::Request::post(format!("http://{address}/shop.Orders/Watch"))
            .header(header::CONTENT_TYPE, "application/grpc+proto")
            .header(header::TE, "trailers")
            .body(body)
            .unwrap();
        messages.send_data("\0\0\0\0\x03one".into()).await.unwrap();
        let answer = client.request(request).await.unwrap();
        assert_eq!(answer.headers()["cache-status"], "stampede; fwd=method");
        let mut answers = answer.into_body();

        for (word, next) in [("one", Some("two")), ("two", None)] {
            let frame = answers.frame().await.unwrap().unwrap();
            let message = frame.into_data().unwrap();
            assert_eq!(message, format!("\0\0\0\0\x03{word}"));
            if let Some(next) = next {
                let message = format!("\0\0\0\0\x03{next}");
                messages.send_data(message.into()).await.unwrap();
            }
        }
        drop(messages);
        let end = answers.frame().await.unwrap().unwrap();
        let trailers = end.into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert_eq!(trailers["grpc-message"], "fine");
        assert!(answers.frame().await.is_none());
    }
}

#[tokio::test]
async fn events_arrive_one_by_one_and_belong_to_their_own_client() {
    let builds = Builds::default();
    let router = counted(&builds, |build| {
        let first = futures_util::stream::iter([Ok::<_, Infallible>(format!("data: {build}\n\n"))]);
        let endless = first.chain(futures_util::stream::pending());
        let fields = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "max-age=60"),
        ];
        (fields, Body::from_stream(endless)).into_response()
    });
    let address = serve(router.layer(layer())).await;

    let mut firsts = Vec::new();
    for _ in 0..2 {
        let answer = h2()
            .get(format!("http://{address}/").parse().unwrap())
            .await
            .unwrap();
        let mut body = answer.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        firsts.push(first);
    }

    assert_eq!(firsts, ["data: 1\n\n", "data: 2\n\n"]);
}

#[tokio::test]
async fn a_connection_upgrades_through_the_layer() {
    let upgrading = get(|mut request: Request| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        drop(tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.unwrap();
            stream.write_all(&word).await.unwrap();
        }));
        let fields = [(header::CONNECTION, "upgrade"), (header::UPGRADE, "echo")];
        (StatusCode::SWITCHING_PROTOCOLS, fields)
    });
    let address = serve(Router::new().route("/", upgrading).layer(layer())).await;

    for _ in 0..2 {
        let answer = raw(
            address,
            "GET / HTTP/1.1\nHost: shop\nConnection: upgrade\nUpgrade: echo\n\nping",
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\nping"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_reaches_its_client_whole_and_is_not_stored() {
    let builds = Builds::default();
    let router = counted(&builds, |_| {
        let chunks = [Ok::<_, Infallible>("01234"), Ok("56789"), Ok("x")];
        Body::from_stream(futures_util::stream::iter(chunks)).into_response()
    });
    let address = serve(router.layer(layer().max_body(10))).await;

    for _ in 0..2 {
        let answer = h2()
            .get(format!("http://{address}/").parse().unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(
            answer.into_body().collect().await.unwrap().to_bytes(),
            "0123456789x"
        );
    }
    assert_eq!(builds.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn fields_set_inside_are_stored_and_fields_set_outside_stay_per_request() {
    let (builds, requests) = (Builds::default(), Arc::new(AtomicUsize::new(0)));
    let inside = SetResponseHeaderLayer::appending(
        HeaderName::from_static("x-in"),
        HeaderValue::from_static("1"),
    );
    let numbered = move |_: &Response| {
        let number = requests.fetch_add(1, Ordering::SeqCst);
        HeaderValue::try_from(number.to_string()).ok()
    };
    let outside = SetResponseHeaderLayer::appending(HeaderName::from_static("x-out"), numbered);
    let router = counted(&builds, |_| "page".into_response());
    let stored = layer().cache_if(|response| response.headers.contains_key("x-in"));
    let address = serve(router.layer(inside).layer(stored).layer(outside)).await;

    for number in ["0", "1"] {
        let answer = h2()
            .get(format!("http://{address}/").parse().unwrap())
            .await
            .unwrap();
        let all = |name| answer.headers().get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(all("x-in"), ["1"]);
        assert_eq!(all("x-out"), [number]);
    }
    assert_eq!(builds.load(Ordering::SeqCst), 1);
}
