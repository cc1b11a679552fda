//! The future of a response: bypassed, ready, or an exchange.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{
    answer, body::Body, entry::Present, invalidation::Invalidation, policy::Policy, status::Outcome,
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
        kind: Kind<S, ReqBody, ResBody>,
    }
}

type Boxed<B, E> = Pin<Box<dyn Future<Output = Result<Response<Body<B>>, E>> + Send>>;

/// A hit's future is moved more than once, so it is kept small: its response is made when it is
/// polled, and whatever else there is to wait for is boxed.
enum Kind<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>>,
{
    Hit(Option<Arc<Present>>),
    Other(Other<S, ReqBody, ResBody>),
}

enum Other<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>>,
{
    Ready(Option<Box<Response<Body<ResBody>>>>),
    Bypass(Pin<Box<Bypass<S, ReqBody>>>),
    Exchange(Boxed<ResBody, S::Error>),
}

pin_project! {
    #[project = BypassProjection]
    enum Bypass<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        Waking { inner: S, request: Option<Request<ReqBody>>, passing: Passing },
        Calling { #[pin] future: S::Future, passing: Passing },
    }
}

/// What is said and done when a request that bypasses has its response.
#[derive(Debug)]
pub(crate) struct Passing {
    pub(crate) outcome: Outcome,
    pub(crate) invalidation: Option<Box<Invalidation>>,
    pub(crate) policy: Arc<Policy>,
}

impl Passing {
    fn end<B>(&mut self, response: &mut Response<B>) {
        if let Some(invalidation) = &mut self.invalidation {
            invalidation.settle(response);
        }
        self.policy.strip_tags(response.headers_mut());
        self.outcome.write(response.headers_mut());
        self.policy.exposure.expose(response);
    }
}

impl<S, ReqBody, ResBody> ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>>,
{
    /// All of an entry.
    pub(crate) fn hit(present: Arc<Present>) -> Self {
        let kind = Kind::Hit(Some(present));
        Self { kind }
    }

    pub(crate) fn ready(response: Response<Body<ResBody>>) -> Self {
        Other::Ready(Some(Box::new(response))).into()
    }

    /// Straight to the inner service, once it is ready.
    pub(crate) fn bypass(inner: S, request: Request<ReqBody>, passing: Passing) -> Self {
        let bypass = Bypass::Waking {
            inner,
            request: Some(request),
            passing,
        };
        Other::Bypass(Box::pin(bypass)).into()
    }

    pub(crate) fn exchange(future: Boxed<ResBody, S::Error>) -> Self {
        Other::Exchange(future).into()
    }
}

const ONCE: &str = "a finished future is not polled again";

impl<S, ReqBody, ResBody> From<Other<S, ReqBody, ResBody>> for ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>>,
{
    fn from(other: Other<S, ReqBody, ResBody>) -> Self {
        let kind = Kind::Other(other);
        Self { kind }
    }
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Output = Result<Response<Body<ResBody>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind {
            Kind::Hit(hit) => Poll::Ready(Ok(answer::whole(&hit.take().expect(ONCE)))),
            Kind::Other(other) => other.poll(cx),
        }
    }
}

impl<S, ReqBody, ResBody> Other<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    /// (Not inlined, so that the way of a hit may be.)
    #[inline(never)]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<Body<ResBody>>, S::Error>> {
        match self {
            Self::Ready(response) => Poll::Ready(Ok(*response.take().expect(ONCE))),
            Self::Bypass(bypass) => bypass.as_mut().poll(cx),
            Self::Exchange(future) => future.as_mut().poll(cx),
        }
    }
}

impl<S, ReqBody> Bypass<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    fn poll<ResBody>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<Body<ResBody>>, S::Error>>
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    {
        loop {
            match self.as_mut().project() {
                BypassProjection::Waking {
                    inner,
                    request,
                    passing,
                } => {
                    ready!(inner.poll_ready(cx))?;
                    let request = request
                        .take()
                        .expect("the request is there until it is sent");
                    if let Some(invalidation) = passing.invalidation.as_mut() {
                        invalidation.sent();
                    }
                    let future = inner.call(request);
                    let passing = Passing {
                        outcome: passing.outcome,
                        invalidation: passing.invalidation.take(),
                        policy: Arc::clone(&passing.policy),
                    };
                    self.set(Self::Calling { future, passing });
                }
                BypassProjection::Calling { future, passing } => {
                    let mut response = ready!(future.poll(cx))?.map(Body::passed);
                    passing.end(&mut response);
                    return Poll::Ready(Ok(response));
                }
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
            Kind::Hit(_) | Kind::Other(Other::Ready(_)) => "ResponseFuture(ready)",
            Kind::Other(Other::Bypass(_)) => "ResponseFuture(bypass)",
            Kind::Other(Other::Exchange(_)) => "ResponseFuture(exchange)",
        })
    }
}
