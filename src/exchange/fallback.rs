//! What a request does when its wait has been long enough, or nothing came of it.

use std::sync::Arc;

use http::{Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use super::{Exchange, Waited, build, delivery};
use crate::{
    answer,
    body::{Body, BoxError},
    policy::Fallback,
    shared::Slot,
    status::{End, Forward, Outcome},
};

impl<S, ReqBody, ResBody> Exchange<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    ReqBody: Send + 'static,
    ResBody: http_body::Body + Send + 'static,
    ResBody::Data: Send,
    ResBody::Error: Into<BoxError>,
{
    /// The wait is over: what the layer's fallbacks say, in turn.
    pub(super) async fn fall_back(mut self) -> Result<Response<Body<ResBody>>, S::Error> {
        self.cache.count().timed_out();
        let policy = Arc::clone(&self.policy);
        for fallback in &policy.fallback {
            match fallback {
                Fallback::Stale => {
                    let outcome = |ttl| self.tired_of_waiting(End::CollapsedStoodIn { ttl });
                    if let Some(response) = self.stale_fallback(outcome) {
                        return Ok(response);
                    }
                }
                Fallback::Build => {
                    let deadline = Instant::now() + policy.build_timeout;
                    match self.share(Slot::Extra(1), deadline).await {
                        Waited::Answered(response) => return Ok(response),
                        Waited::Error(error) => return Err(error),
                        Waited::Free(reason, detail) => return self.alone(reason, detail).await,
                        Waited::TimedOut | Waited::Again => {}
                        Waited::Closed => return Ok(self.closed()),
                    }
                }
                Fallback::Reject => break,
            }
        }
        Ok(answer::unavailable(
            "wait-timeout",
            self.asked.wanted(),
            self.reason(),
        ))
    }

    /// What is asked for once the cache has shut down.
    pub(super) fn closed(&self) -> Response<Body<ResBody>> {
        let outcome = |ttl| {
            let end = End::CollapsedStoodIn { ttl };
            Outcome::forward(self.reason(), end).because("shutdown")
        };
        self.stale_fallback(outcome)
            .unwrap_or_else(|| answer::unavailable("shutdown", self.asked.wanted(), self.reason()))
    }

    /// Answers this request by a build of its own that nobody shares.
    pub(super) async fn alone(
        mut self,
        reason: Forward,
        detail: &'static str,
    ) -> Result<Response<Body<ResBody>>, S::Error> {
        let Some(mut request) = self.parcel.take() else {
            return Ok(answer::unavailable(
                "abandoned",
                self.asked.wanted(),
                self.reason(),
            ));
        };
        // It sees what a build would have seen.
        self.policy.strip_cookies(request.headers_mut());
        self.cache.count().built();
        build::ready(&mut self.inner).await?;
        let (mut parts, body) = self.inner.call(request).await?.into_parts();
        self.policy.strip_tags(&mut parts.headers);
        let outcome = Outcome::forward(reason, End::Unstored).because(detail);
        let parts = delivery::with_outcome(parts, outcome);
        let body = answer::bodied(self.asked.wanted(), Body::passed(body));
        Ok(Response::from_parts(parts, body))
    }

    /// What the starter of a build falls back on, unless its own build is what it would fall back on.
    pub(super) fn instead_of_own_build(&self) -> Option<Waited<ResBody, S::Error>> {
        for fallback in &self.policy.fallback {
            match fallback {
                Fallback::Stale => {
                    let outcome = |ttl| self.tired_of_waiting(End::StoodIn { ttl });
                    if let Some(response) = self.stale_fallback(outcome) {
                        return Some(Waited::Answered(response));
                    }
                }
                Fallback::Build => return None,
                Fallback::Reject => break,
            }
        }
        Some(Waited::TimedOut)
    }

    /// The stale entry, where it may answer in place of a build (RFC 5861 section 4).
    pub(super) fn stale_fallback(
        &self,
        outcome: impl FnOnce(i64) -> Outcome,
    ) -> Option<Response<Body<ResBody>>> {
        let purges = self.cache.purges();
        let entry = self.cache.local().entry(&self.key, purges);
        let entry = entry.or_else(|| self.stale.clone())?;
        let now = Instant::now();
        // Or the shared tier has given it since the request came.
        let trusted =
            self.cache.trusts(&entry, now) || entry.lifetime.received >= self.asked.arrived;
        let usable = trusted
            && entry.may_stand_in(now, purges)
            && entry.head.fits(&self.asked.headers)
            && self.opens(&entry.head.headers);
        usable.then(|| {
            self.cache.count().stale();
            answer::stood_in(&entry, self.asked.wanted(), outcome)
        })
    }

    /// After the soft timeout a stale entry will do.
    pub(super) fn soft_fallback(&self) -> Option<Response<Body<ResBody>>> {
        self.stale_fallback(|ttl| {
            let end = End::CollapsedStoodIn { ttl };
            Outcome::forward(self.reason(), end).because("stale-after")
        })
    }

    fn tired_of_waiting(&self, end: End) -> Outcome {
        Outcome::forward(self.reason(), end).because("wait-timeout")
    }
}
