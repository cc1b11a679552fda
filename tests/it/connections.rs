//! Herds over real connections, whose clients hang up, read slowly, or speak HTTP/2.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};
use tower::ServiceBuilder;
use tower_stampede::{BufferLayer, Cache, OnDisconnect};

use crate::support::{
    client::{Answer, Ended, until},
    origin::{Gate, Origin, OriginError, fresh, held},
    serving,
};

type Connections = Client<HttpConnector, Empty<Bytes>>;

/// Serves `origin` behind `layer`, with hyper's own bodies and no framework between.
async fn serve(layer: &BufferLayer, origin: &Origin) -> SocketAddr {
    let service = tower::Layer::layer(layer, origin.clone());
    let service = ServiceBuilder::new()
        .map_err(|error: OriginError| -> Infallible { panic!("{error}") })
        .service(service);
    serving::serve(service).await
}

fn http1() -> Connections {
    Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build_http()
}

fn http2() -> Connections {
    Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http()
}

fn request(address: SocketAddr) -> Request<Empty<Bytes>> {
    Request::get(format!("http://{address}/report"))
        .body(Empty::new())
        .unwrap()
}

async fn ask(client: &Connections, address: SocketAddr) -> Answer {
    let response = client
        .request(request(address))
        .await
        .expect("it is answered");
    Answer::read(response).await
}

/// Sends a request by hand, so that the test can hang up or not read.
async fn by_hand(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /report HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Waits for real input and output, so there is no paused clock; the bound is far away.
async fn eventually(cache: &Cache, wanted: impl Fn(&tower_stampede::Stats) -> bool) {
    let wait = async {
        while !wanted(&cache.stats()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let came = tokio::time::timeout(Duration::from_secs(20), wait).await;
    assert!(came.is_ok(), "it never came to that: {:?}", cache.stats());
}

#[tokio::test]
async fn clients_of_both_versions_share_one_build() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let address = serve(&BufferLayer::new(cache.clone()), &origin).await;
    let mut clients = JoinSet::new();
    for client in [http1(), http2()] {
        for _ in 0..50 {
            let client = client.clone();
            drop(clients.spawn(async move { ask(&client, address).await }));
        }
    }

    eventually(&cache, |stats| stats.waiters == 100).await;
    gate.open();
    let answers = clients.join_all().await;

    assert!(answers.iter().all(|answer| answer.text() == "build 1"));
    assert_eq!(origin.builds(), 1);
}

#[tokio::test]
async fn the_first_client_hangs_up_and_the_others_are_answered() {
    for choice in [OnDisconnect::Finish, OnDisconnect::Cancel] {
        let cache = Cache::in_memory();
        let (origin, gate) = held();
        let layer = BufferLayer::new(cache.clone()).on_disconnect(choice);
        let address = serve(&layer, &origin).await;
        let first = by_hand(address).await;
        eventually(&cache, |stats| stats.waiters == 1).await;
        let mut others = JoinSet::new();
        for _ in 0..20 {
            drop(others.spawn(async move { ask(&http1(), address).await }));
        }
        eventually(&cache, |stats| stats.waiters == 21).await;

        drop(first);
        eventually(&cache, |stats| stats.waiters == 20).await;
        gate.open();
        let answers = others.join_all().await;

        assert!(
            answers.iter().all(|answer| answer.text() == "build 1"),
            "{choice:?}"
        );
        assert_eq!(origin.builds(), 1);
    }
}

#[tokio::test]
async fn the_only_client_hangs_up_and_the_layer_decides_about_the_build() {
    for (choice, finished) in [(OnDisconnect::Finish, 1), (OnDisconnect::Cancel, 0)] {
        let cache = Cache::in_memory();
        let (origin, gate) = held();
        let layer = BufferLayer::new(cache.clone()).on_disconnect(choice);
        let address = serve(&layer, &origin).await;
        let client = by_hand(address).await;
        origin.called(1).await;

        drop(client);
        eventually(&cache, |stats| stats.waiters == 0).await;
        if choice == OnDisconnect::Cancel {
            origin.idle().await;
        }
        gate.open();
        origin.idle().await;

        assert_eq!(origin.finished(), finished, "{choice:?}");
        eventually(&cache, |stats| stats.flights == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_in_mid_body_leaves_a_whole_entry() {
    let cache = Cache::in_memory();
    let (origin, mut streams) = Origin::fresh_streams();
    let address = serve(&BufferLayer::new(cache.clone()), &origin).await;
    let mut client = by_hand(address).await;
    let frames = streams.recv().await.expect("a build has begun");
    frames.data("first, ");
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("first, ") {
        assert!(client.read_buf(&mut seen).await.unwrap() > 0);
    }

    drop(client);
    frames.data("second");
    frames.end();
    eventually(&cache, |stats| stats.flights == 0).await;

    let answer = ask(&http1(), address).await;
    assert_eq!(answer.text(), "first, second");
    assert!(answer.status_line().contains("hit"));
}

#[tokio::test]
async fn a_client_that_does_not_read_keeps_nobody_waiting() {
    let size = 20_000_000;
    let cache = Cache::in_memory();
    let origin = Origin::new(move |_| async move { fresh(vec![b'x'; size]) });
    let layer = BufferLayer::new(cache.clone()).max_body(size);
    let address = serve(&layer, &origin).await;
    let _slow = by_hand(address).await;
    origin.called(1).await;

    let mut others = JoinSet::new();
    for _ in 0..5 {
        drop(others.spawn(async move { ask(&http1(), address).await }));
    }
    let answers = others.join_all().await;

    assert!(answers.iter().all(|answer| answer.body.len() == size));
    assert_eq!(origin.builds(), 1);
}

#[tokio::test]
async fn a_handler_that_panics_closes_its_own_connection_only() {
    let cache = Cache::in_memory();
    let gate = Gate::closed();
    let passed = gate.clone();
    let origin = Origin::new(move |_| {
        let gate = passed.clone();
        async move {
            gate.pass().await;
            std::panic::resume_unwind(Box::new("the handler panicked"))
        }
    });
    let address = serve(&BufferLayer::new(cache.clone()), &origin).await;
    let mut first = by_hand(address).await;
    eventually(&cache, |stats| stats.waiters == 1).await;
    let mut others = JoinSet::new();
    for _ in 0..10 {
        drop(others.spawn(async move { ask(&http1(), address).await }));
    }
    eventually(&cache, |stats| stats.waiters == 11).await;

    gate.open();
    let answers = others.join_all().await;

    let mut nothing = Vec::new();
    let closed = first.read_to_end(&mut nothing).await;
    assert!(closed.is_err() || nothing.is_empty());
    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 500 && answer.end == Ended::Whole)
    );
    assert_eq!(origin.builds(), 1);
}

#[tokio::test]
async fn a_proxy_passes_hypers_own_bodies_in_both_directions() {
    let upstream = serve(
        &BufferLayer::new(Cache::in_memory()),
        &Origin::new(|call| async move { fresh(format!("upstream {}", call.number)) }),
    )
    .await;
    let cache = Cache::in_memory();
    let forward = tower::service_fn(move |incoming: Request<Incoming>| async move {
        let client: Client<HttpConnector, Incoming> =
            Client::builder(TokioExecutor::new()).build_http();
        let (mut parts, body) = incoming.into_parts();
        parts.uri = format!("http://{upstream}{}", parts.uri.path())
            .parse()
            .unwrap();
        parts.headers.remove(header::HOST);
        client.request(Request::from_parts(parts, body)).await
    });
    let proxy = tower::Layer::layer(&BufferLayer::new(cache.clone()), forward);
    let proxy = ServiceBuilder::new()
        .map_err(|error: hyper_util::client::legacy::Error| -> Infallible { panic!("{error}") })
        .service(proxy);
    let address = serving::serve(proxy).await;

    let miss = ask(&http1(), address).await;
    let hit = ask(&http1(), address).await;

    assert_eq!((miss.text(), hit.text()), ("upstream 1", "upstream 1"));
    assert_eq!(cache.stats().hits, 1);
    until(&cache, |stats| stats.flights == 0).await;
}
