//! The future of a response: bypassed, ready, or an exchange.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{
    body::Body,
    invalidation::Invalidation,
    key::Digest,
    status::{self, Outcome},
};

pin_project! {
    /// The response future of [`BufferService`](crate::BufferService).
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time. A build that other requests wait for goes on; what becomes of
    /// one that nobody waits for is the layer's
    /// [`on_disconnect`](crate::BufferLayer::on_disconnect).
    pub struct ResponseFuture<S, ReqBody, ResBody>
    where
        S: Service<Request<ReqBody>>,
    {
        #[pin]
        kind: Kind<S, ReqBody, ResBody>,
        shown: Option<Digest>,
    }
}

type Boxed<B, E> = Pin<Box<dyn Future<Output = Result<Response<Body<B>>, E>> + Send>>;

pin_project! {
    #[project = KindProjection]
    enum Kind<S, ReqBody, ResBody>
    where
        S: Service<Request<ReqBody>>,
    {
        Ready { response: Option<Response<Body<ResBody>>> },
        Waking { inner: Option<S>, request: Option<Request<ReqBody>>, passing: Passing },
        Calling { #[pin] future: S::Future, passing: Passing },
        Exchange { future: Boxed<ResBody, S::Error> },
    }
}

/// What is said and done when a request that bypasses has its response.
#[derive(Debug)]
pub(crate) struct Passing {
    pub(crate) outcome: Outcome,
    pub(crate) invalidation: Option<Box<Invalidation>>,
}

impl Passing {
    fn end<B>(&mut self, response: &mut Response<B>) {
        if let Some(invalidation) = &mut self.invalidation {
            invalidation.settle(response);
        }
        self.outcome.write(response.headers_mut());
    }
}

impl<S, ReqBody, ResBody> ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>>,
{
    pub(crate) fn ready(response: Response<Body<ResBody>>) -> Self {
        let response = Some(response);
        Self {
            kind: Kind::Ready { response },
            shown: None,
        }
    }

    /// Straight to the inner service, once it is ready.
    pub(crate) fn bypass(inner: S, request: Request<ReqBody>, passing: Passing) -> Self {
        let (inner, request) = (Some(inner), Some(request));
        Self {
            kind: Kind::Waking {
                inner,
                request,
                passing,
            },
            shown: None,
        }
    }

    /// Has `Cache-Status` name the key.
    pub(crate) fn showing(self, key: Option<Digest>) -> Self {
        Self { shown: key, ..self }
    }

    pub(crate) fn exchange(future: Boxed<ResBody, S::Error>) -> Self {
        Self {
            kind: Kind::Exchange { future },
            shown: None,
        }
    }
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Output = Result<Response<Body<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut polled = this.kind.poll(cx);
        if let (Some(key), Poll::Ready(Ok(response))) = (*this.shown, &mut polled) {
            status::show_key(response.headers_mut(), key);
        }
        polled
    }
}

impl<S, ReqBody, ResBody> Future for Kind<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Output = Result<Response<Body<ResBody>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut kind = self.as_mut();
        loop {
            match kind.as_mut().project() {
                KindProjection::Ready { response } => {
                    let response = response
                        .take()
                        .expect("a finished future is not polled again");
                    return Poll::Ready(Ok(response));
                }
                KindProjection::Waking {
                    inner,
                    request,
                    passing,
                } => {
                    let service = inner
                        .as_mut()
                        .expect("the service is there until it is called");
                    ready!(service.poll_ready(cx))?;
                    let request = request
                        .take()
                        .expect("the request is there until it is sent");
                    if let Some(invalidation) = passing.invalidation.as_mut() {
                        invalidation.sent();
                    }
                    let future = service.call(request);
                    let passing = Passing {
                        outcome: passing.outcome,
                        invalidation: passing.invalidation.take(),
                    };
                    kind.set(Self::Calling { future, passing });
                }
                KindProjection::Calling { future, passing } => {
                    let mut response = ready!(future.poll(cx))?.map(Body::passed);
                    passing.end(&mut response);
                    return Poll::Ready(Ok(response));
                }
                KindProjection::Exchange { future } => return future.as_mut().poll(cx),
            }
        }
    }
}

impl<S, ReqBody, ResBody> fmt::Debug for ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Ready { .. } => "ResponseFuture(ready)",
            Kind::Waking { .. } | Kind::Calling { .. } => "ResponseFuture(bypass)",
            Kind::Exchange { .. } => "ResponseFuture(exchange)",
        })
    }
}
