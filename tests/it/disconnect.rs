//! What a client that goes away does to a build.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, channel::Channel};
use tower::{Layer as _, ServiceExt as _};
use tower_stampede::{BufferLayer, Cache, OnDisconnect};

fn get() -> Request<Empty<Bytes>> {
    Request::get("http://shop.example/report")
        .body(Empty::new())
        .unwrap()
}

#[tokio::test]
async fn a_client_that_still_reads_keeps_a_cancellable_build_alive() {
    let cache = Cache::in_memory();
    let layer = BufferLayer::new(cache.clone())
        .ttl(Duration::from_secs(60))
        .on_disconnect(OnDisconnect::Cancel);
    let (send, body) = Channel::<Bytes, Infallible>::new(1);
    let bodies = std::sync::Arc::new(std::sync::Mutex::new(Some(body)));
    let inner = tower::service_fn(move |_: Request<Empty<Bytes>>| {
        let body = bodies.lock().unwrap().take().expect("one build");
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let mut send = send;

    let response = layer.layer(inner).oneshot(get()).await.unwrap();
    tokio::task::yield_now().await;
    let reading = tokio::spawn(response.into_body().collect());
    send.send_data(Bytes::from("all of ")).await.unwrap();
    send.send_data(Bytes::from("it")).await.unwrap();
    drop(send);

    assert_eq!(reading.await.unwrap().unwrap().to_bytes(), "all of it");
}

#[tokio::test]
async fn a_build_that_nobody_reads_any_more_is_cancelled_if_the_layer_says_so() {
    let cache = Cache::in_memory();
    let layer = BufferLayer::new(cache.clone())
        .ttl(Duration::from_secs(60))
        .on_disconnect(OnDisconnect::Cancel);
    let (mut send, body) = Channel::<Bytes, Infallible>::new(1);
    let bodies = std::sync::Arc::new(std::sync::Mutex::new(Some(body)));
    let inner = tower::service_fn(move |_: Request<Empty<Bytes>>| {
        let body = bodies.lock().unwrap().take().expect("one build");
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });

    let response = layer.layer(inner).oneshot(get()).await.unwrap();
    drop(response);

    while send.send_data(Bytes::from("more")).await.is_ok() {}
    assert_eq!(cache.stats().flights, 0);
}
