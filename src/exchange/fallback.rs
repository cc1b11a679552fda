//! What a request falls back on when its wait has been long enough, or nothing is built any more.

use std::{slice, sync::Arc};

use http::{Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use super::{Exchange, Waited};
use crate::{
    answer,
    body::{Body, BoxError},
    policy::Fallback,
    shared::Slot,
    status::{End, Outcome},
};

/// What is left for a request that has waited for long enough.
enum Resort<B> {
    Answer(Response<Body<B>>),
    Build,
    Reject,
}

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
        let mut fallbacks = policy.fallback.iter();
        loop {
            match self.resort(&mut fallbacks, |ttl| End::CollapsedStoodIn { ttl }) {
                Resort::Answer(response) => return Ok(response),
                Resort::Reject => {
                    let (wanted, reason) = (self.asked.wanted(), self.reason());
                    return Ok(answer::unavailable("wait-timeout", wanted, reason));
                }
                Resort::Build => {
                    let deadline = Instant::now() + policy.build_timeout;
                    match self.share(Slot::Extra(1), deadline).await {
                        Waited::Answered(response) | Waited::Found(response, _) => {
                            return Ok(response);
                        }
                        Waited::Error(error) => return Err(error),
                        Waited::Free(reason, detail) => return self.alone(reason, detail).await,
                        Waited::TimedOut | Waited::Again => {}
                        Waited::Closed => return Ok(self.closed()),
                    }
                }
            }
        }
    }
}

impl<S, ReqBody> Exchange<S, ReqBody> {
    /// The next of the layer's fallbacks that is of any use; `end` is how a stale entry would answer.
    fn resort<B>(
        &self,
        fallbacks: &mut slice::Iter<'_, Fallback>,
        end: fn(i64) -> End,
    ) -> Resort<B> {
        for fallback in fallbacks {
            match fallback {
                Fallback::Stale => {
                    let outcome =
                        |ttl| Outcome::forward(self.reason(), end(ttl)).because("wait-timeout");
                    if let Some(response) = self.stale_fallback(outcome) {
                        return Resort::Answer(response);
                    }
                }
                Fallback::Build => return Resort::Build,
                Fallback::Reject => break,
            }
        }
        Resort::Reject
    }

    /// What the starter of a build falls back on, unless its own build is what it would fall back on.
    pub(super) fn instead_of_own_build<B, E>(&self) -> Option<Waited<B, E>> {
        match self.resort(&mut self.policy.fallback.iter(), |ttl| End::StoodIn { ttl }) {
            Resort::Answer(response) => Some(Waited::Answered(response)),
            Resort::Build => None,
            Resort::Reject => Some(Waited::TimedOut),
        }
    }

    /// What is asked for once the cache has shut down.
    pub(super) fn closed<B>(&self) -> Response<Body<B>> {
        let outcome = |ttl| {
            let end = End::CollapsedStoodIn { ttl };
            Outcome::forward(self.reason(), end).because("shutdown")
        };
        self.stale_fallback(outcome)
            .unwrap_or_else(|| answer::unavailable("shutdown", self.asked.wanted(), self.reason()))
    }

    /// The stale entry, where it may answer in place of a build (RFC 5861 section 4).
    pub(super) fn stale_fallback<B>(
        &self,
        outcome: impl FnOnce(i64) -> Outcome,
    ) -> Option<Response<Body<B>>> {
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
    pub(super) fn soft_fallback<B>(&self) -> Option<Response<Body<B>>> {
        self.stale_fallback(|ttl| {
            let end = End::CollapsedStoodIn { ttl };
            Outcome::forward(self.reason(), end).because("stale-after")
        })
    }
}
