//! What is said to a HEAD of the length of the body that it does not get, through an axum router, which
//! states the length of what it sends where nobody else has.

use std::{convert::Infallible, future::Future, time::Duration};

use axum::{Router, body::Body, response::IntoResponse, routing::get};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::time::sleep;
use tower::ServiceExt as _;
use tower_stampede::{BufferLayer, Cache, Mode};

const TAG: [(&str, &str); 1] = [("etag", "\"a\"")];

/// Of no stated length, and not there at once.
async fn streamed() -> impl IntoResponse {
    let late = async {
        sleep(Duration::from_millis(10)).await;
        Ok::<_, Infallible>(Bytes::from("later!"))
    };
    (TAG, Body::from_stream(stream::once(late)))
}

async fn with_trailers() -> impl IntoResponse {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("1"));
    let frames = [
        Frame::data(Bytes::from("later!")),
        Frame::trailers(trailers),
    ];
    let frames = frames.map(Ok::<_, Infallible>);
    (TAG, Body::new(StreamBody::new(stream::iter(frames))))
}

async fn whole() -> impl IntoResponse {
    (TAG, "later!")
}

async fn slow_and_whole() -> impl IntoResponse {
    sleep(Duration::from_millis(10)).await;
    (TAG, "later!")
}

async fn uncacheable() -> impl IntoResponse {
    ([("cache-control", "no-store")], "later!")
}

/// Six bytes, as far as anything is said of it; `None`: nothing.
async fn length(app: &Router, method: Method) -> Option<String> {
    let request = Request::builder().method(method).uri("/a");
    let request = request.header("host", "shop.example");
    let request = request.body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let length = response.headers().get(header::CONTENT_LENGTH);
    let length = length.map(|length| length.to_str().unwrap().to_owned());
    response.into_body().collect().await.unwrap();
    length
}

async fn is_right<F, R>(handler: fn() -> F)
where
    F: Future<Output = R> + Send + 'static,
    R: IntoResponse + 'static,
{
    let layer = || BufferLayer::new(Cache::in_memory()).ttl(Duration::from_secs(60));
    let layers = [
        layer(),
        layer().fill_on_head(),
        layer().mode(Mode::Coalesce),
        layer().mode(Mode::Bypass),
    ];
    let bare = Router::new().route("/a", get(handler));
    let stated = length(&bare, Method::HEAD).await;
    for layer in layers {
        let app = bare.clone().layer(layer);
        let six = Some("6".to_owned());
        let herd = (0..3).map(|_| length(&app, Method::HEAD));
        let mut heads = futures_util::future::join_all(herd).await;
        // After it there may be an entry, of which the length is known.
        length(&app, Method::GET).await;
        heads.push(length(&app, Method::HEAD).await);
        for head in heads {
            assert!(
                head == stated || head == six,
                "{head:?}, and not {stated:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_body_that_is_withheld_is_said_to_be_empty() {
    is_right(streamed).await;
    is_right(with_trailers).await;
    is_right(whole).await;
    is_right(slow_and_whole).await;
    is_right(uncacheable).await;
}
