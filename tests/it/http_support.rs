//! A scripted origin behind a layer, in process.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tower::{Layer as _, ServiceExt as _, util::BoxCloneSyncService};
use tower_stampede::{BufferLayer, Cache};

/// What goes wrong when an origin does not answer at all.
#[derive(Debug)]
pub(crate) struct Down;

impl std::fmt::Display for Down {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the origin is down")
    }
}

impl std::error::Error for Down {}

impl From<Infallible> for Down {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// What the origin saw.
pub(crate) type Seen = Arc<Mutex<Vec<(Method, HeaderMap)>>>;

/// A layer in front of a scripted origin, and what got through to it.
#[derive(Clone)]
pub(crate) struct Site {
    service: BoxCloneSyncService<Request<Full<Bytes>>, Answer<Bytes>, Down>,
    seen: Seen,
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Answer<B> {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: B,
}

impl Answer<Bytes> {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn outcome(&self) -> &str {
        self.field("cache-status")
    }
}

impl Site {
    /// `respond` gets the number of the build, from 1, and the request.
    pub(crate) fn new(
        layer: &BufferLayer,
        respond: impl Fn(usize, &Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Down>
        + Clone
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let seen = Seen::default();
        let log = Arc::clone(&seen);
        let inner = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let number = {
                let mut log = log.lock().unwrap();
                log.push((request.method().clone(), request.headers().clone()));
                log.len()
            };
            let response = respond(number, &request);
            async move { response }
        });
        let service = layer
            .layer(inner)
            .and_then(|response: Response<_>| async move {
                let (parts, body): (http::response::Parts, tower_stampede::body::Body<_>) =
                    response.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                Ok(Answer {
                    status: parts.status,
                    headers: parts.headers,
                    body,
                })
            });
        Self {
            service: BoxCloneSyncService::new(service),
            seen,
        }
    }

    pub(crate) async fn ask(&self, request: Request<Full<Bytes>>) -> Answer<Bytes> {
        self.service.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn try_ask(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer<Bytes>, Down> {
        self.service.clone().oneshot(request).await
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer<Bytes> {
        self.ask(request(Method::GET, path, headers)).await
    }

    /// How many requests got through.
    pub(crate) fn builds(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// The fields of the last request that got through.
    pub(crate) fn last_seen(&self) -> HeaderMap {
        self.seen.lock().unwrap().last().unwrap().1.clone()
    }
}

pub(crate) fn layer() -> BufferLayer {
    BufferLayer::new(
        Cache::builder()
            .failure_memo(std::time::Duration::ZERO)
            .build()
            .unwrap(),
    )
    .jitter(0.0)
}

pub(crate) fn request(
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Request<Full<Bytes>> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://shop.example{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::default()).unwrap()
}

pub(crate) fn response(status: u16, headers: &[(&str, &str)], body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Full::from(body.to_owned())).unwrap()
}
