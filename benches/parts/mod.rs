//! What the benchmarks of a hit share: the services, and the loop that drives them.

use std::{convert::Infallible, fmt, marker::PhantomData, sync::Arc, time::Duration};

use axum::body::Body as RequestBody;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use tower::{Service, ServiceExt as _, service_fn};
use tower_stampede::{BufferLayer, Cache};

pub(crate) static BODY: [u8; 1024] = [b'x'; 1024];

/// A service to be called in a loop.
#[derive(Clone, Debug)]
pub(crate) struct Subject<S, B> {
    pub(crate) service: S,
    response_body: PhantomData<fn() -> B>,
}

impl<S, B> Subject<S, B>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: fmt::Debug> + Clone,
    B: Body<Data = Bytes, Error: fmt::Debug>,
{
    pub(crate) fn new(service: S) -> Self {
        Self {
            service,
            response_body: PhantomData,
        }
    }

    /// Calls the service until its answers are hits.
    pub(crate) async fn warmed(mut self) -> Self {
        let is_hit = |response: Response<_>| {
            let status = &response.headers()["cache-status"];
            status.as_bytes().starts_with(b"stampede; hit")
        };
        while !is_hit(self.answer(request()).await) {
            tokio::task::yield_now().await;
        }
        self
    }

    /// One answer, its body read to the end.
    pub(crate) async fn answer(&mut self, request: Request<RequestBody>) -> Response<Bytes> {
        let service = self.service.ready().await.expect("the service is ready");
        let response = service.call(request).await;
        let (parts, body) = response.expect("the service answers").into_parts();
        let body = body.collect().await.expect("the body is whole").to_bytes();
        Response::from_parts(parts, body)
    }

    /// As [`answer`](Self::answer), of a service that answers at once.
    pub(crate) fn answer_now(&mut self, request: Request<RequestBody>) -> Response<Bytes> {
        let answer = self.answer(request).now_or_never();
        answer.expect("the service answers at once")
    }
}

/// A GET as a server makes it of what a browser sends.
pub(crate) fn request() -> Request<RequestBody> {
    Request::get("/report?page=2")
        .header(header::HOST, "shop.example")
        .header(
            header::USER_AGENT,
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        )
        .header(
            header::ACCEPT,
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        )
        .header(header::ACCEPT_LANGUAGE, "en-GB,en;q=0.7")
        .header(header::ACCEPT_ENCODING, "gzip, deflate, br")
        .body(RequestBody::empty())
        .expect("the request is well-formed")
}

/// The layer under test.
pub(crate) fn layer() -> BufferLayer {
    BufferLayer::new(Cache::in_memory()).ttl(Duration::from_secs(3600))
}

/// A bare service that returns a prepared response.
pub(crate) fn bare()
-> impl Service<Request<RequestBody>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let mut prepared = Response::new(Full::new(Bytes::from_static(&BODY)));
    *prepared.headers_mut() = fields();
    let prepared = Arc::new(prepared);
    service_fn(move |_| {
        let response = prepared.as_ref().clone();
        async move { Ok(response) }
    })
}

/// The fields of every answer.
pub(crate) fn fields() -> HeaderMap {
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    let tag = HeaderValue::from_static("\"33a64df551425fcc\"");
    HeaderMap::from_iter([(header::CONTENT_TYPE, text), (header::ETAG, tag)])
}
