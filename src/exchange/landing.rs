//! Where a build comes down: judge its response, read its body, hand both out. How it then ends is in
//! [`ending`](super::ending).

use std::{
    pin::{Pin, pin},
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::ETAG, response::Parts};
use http_body::{Body as _, SizeHint};
use tokio::{sync::oneshot, time::Instant};
use tower_service::Service;

use super::{
    build::{self, Broken, Delivery, Drained, Payload},
    delivery::{Starter, Unsent, with_outcome},
    keeper::Keeper,
    nested::Building,
    tag,
};
use crate::{
    answer,
    asked::Asked,
    body::{Body, BoxError, Growing, Writer},
    cache::Cache,
    control,
    entry::{Entry, Head, Variant},
    flight::{Failure, News, Pilot, Presence, Stream, Verdict},
    http::{
        fields,
        revalidate::{self, Validation},
        vary::Vary,
    },
    judge::{self, Alone, Fate, Judged, Plan},
    key::{Digest, Key},
    policy::Policy,
    status::{End, Forward, Outcome},
    tags::{self, TooMany},
    time,
};

/// A build under way: what is needed to judge and land its response.
pub(super) struct Landing<B, E> {
    pub(super) began: Instant,
    pub(super) cache: Cache,
    pub(super) policy: Arc<Policy>,
    pub(super) key: Key,
    pub(super) resource: Key,
    pub(super) tags: Arc<[Digest]>,
    pub(super) asked: Asked,
    pub(super) stale: Option<Arc<Entry>>,
    pub(super) pilot: Pilot,
    pub(super) keeper: Option<Keeper>,
    /// Held where the build is no longer to be dropped, whoever leaves.
    pub(super) presence: Option<Presence>,
    pub(super) delivery: Option<oneshot::Sender<Delivery<B, E>>>,
    pub(super) validation: Validation,
    /// What the response's entry can be purged by.
    pub(super) carried: Result<Box<[Digest]>, TooMany>,
}

impl<B, E> Landing<B, E>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    /// A build makes the whole response, whatever part of it was asked for; where there is an entry
    /// that it could confirm, it is asked to (RFC 9111 section 4.3.1).
    pub(super) fn prepare<R>(&mut self, mut request: Request<R>) -> Request<R> {
        fields::for_build(request.headers_mut());
        self.policy.strip_cookies(request.headers_mut());
        if let Some(stale) = self.confirmable() {
            let (build, stored) = (request.headers_mut(), &stale.head.headers);
            self.validation = revalidate::condition(build, stored, |tag| self.policy.made(tag));
        }
        Building::mark(request.extensions_mut(), &self.cache, &self.resource);
        request
    }

    fn confirmable(&self) -> Option<&Arc<Entry>> {
        self.stale.as_ref().filter(|stale| {
            self.asked.method == Method::GET
                && stale.head.fits(&self.asked.headers)
                && Instant::now() < stale.lifetime.kept_until
        })
    }

    pub(super) async fn run<S, R>(mut self, inner: S, request: Request<R>)
    where
        S: Service<Request<R>, Response = Response<B>, Error = E>,
    {
        let deadline = self.began + self.policy.build_timeout;
        let head = build::head(inner, request, deadline).await;
        self.presence = Some(self.pilot.flight().presence());
        match head {
            Ok(response) => Box::pin(self.receive(response, deadline)).await,
            Err(Broken::Error(error)) => {
                self.deliver_stale_or(Delivery::Error(error), None);
                self.fail(Failure::Status(StatusCode::INTERNAL_SERVER_ERROR), "error")
                    .await;
            }
            Err(Broken::Panic(payload)) => {
                self.fail_with_panic(payload).await;
            }
            Err(Broken::TimedOut) => {
                let response =
                    answer::unavailable("build-timeout", self.asked.wanted(), self.reason());
                self.deliver_stale_or(Delivery::Response(response), None);
                self.fail(Failure::Status(StatusCode::SERVICE_UNAVAILABLE), "timeout")
                    .await;
            }
        }
    }

    /// The head is there: decide what the response is for, and who may have it.
    async fn receive(mut self, response: Response<B>, deadline: Instant) {
        let (mut parts, body) = response.into_parts();
        let confirms =
            parts.status == StatusCode::NOT_MODIFIED && self.validation == Validation::Conditional;
        let confirmed = self.stale.clone().filter(|_| confirms);
        self.carry_tags(&mut parts, confirmed.as_deref());
        if let Some(stale) = confirmed {
            return Box::pin(self.confirm(parts, &stale)).await;
        }
        let judged = match self.judge(&parts) {
            Ok(judged) => judged,
            // The layer's predicate is the user's.
            Err(payload) => return self.fail_with_panic(payload).await,
        };
        match judged {
            Plan::Alone(reason) => self.set_apart(parts, body, reason).await,
            Plan::Together(judged) if self.is_too_large(&parts, &body) => {
                self.pass_on(parts, body, &judged).await;
            }
            Plan::Together(judged) => {
                Box::pin(self.gather(parts, Box::pin(body), *judged, deadline)).await;
            }
        }
    }

    /// Takes the tags off the response. One that confirms an entry and names none keeps its tags.
    fn carry_tags(&mut self, parts: &mut Parts, confirmed: Option<&Entry>) {
        let named = control::tags_of(parts);
        self.carried = match confirmed {
            Some(entry) if named.is_empty() => tags::together(&self.tags, &entry.tags),
            _ => tags::together(&self.tags, &named),
        };
        self.policy.strip_tags(&mut parts.headers);
    }

    /// A response that is its own request's alone.
    async fn set_apart(mut self, parts: Parts, body: B, reason: Alone) {
        if reason.sets_all_free() {
            self.free(Verdict::Uncacheable);
            self.deliver_passed(parts, body, reason.as_str());
            return self.set_all_free().await;
        }
        self.land_for_those_here(Verdict::Uncacheable);
        self.deliver_passed(parts, body, reason.as_str());
        self.let_go().await;
    }

    /// Whether the response says so itself.
    fn is_too_large(&self, parts: &Parts, body: &B) -> bool {
        let declared = judge::declared_length(parts, &self.asked).unwrap_or_default();
        declared.max(body.size_hint().lower()) > self.policy.max_body as u64
    }

    /// A response that is too large by its own account: nobody waits for its body to show it.
    async fn pass_on(mut self, parts: Parts, body: B, judged: &Judged) {
        if let Fate::Failed(_) = judged.fate {
            let failure = Failure::Status(parts.status);
            let mut parts = with_outcome(parts, self.outcome(judged));
            let hint = body.size_hint();
            let body = (Body::passed(body), &hint);
            let body = answer::bodied(self.asked.wanted(), &mut parts.headers, body);
            let response = Response::from_parts(parts, body);
            self.deliver_response(response, judged);
            return self.fail(failure, "status").await;
        }
        self.free(Verdict::TooLarge);
        self.deliver_passed(parts, body, "too-large");
        self.set_all_free().await;
    }

    /// The stale entry is still right: with the fields of the 304 it is judged again, as the
    /// response that it is (RFC 9111 section 4.3.4).
    async fn confirm(mut self, mut parts: Parts, stale: &Entry) {
        let whole = (stale.body.clone(), stale.trailers.clone());
        let freshened = revalidate::freshen(&stale.head.headers, &parts.headers);
        let speaks_of_it = freshened.is_some();
        parts.status = stale.head.status;
        parts.headers = freshened.unwrap_or_else(|| stale.head.headers.clone());
        fields::date(&mut parts.headers, time::wall_clock());
        let judged = match self.judge(&parts) {
            Ok(judged) => judged,
            Err(payload) => return self.fail_with_panic(payload).await,
        };
        match judged {
            Plan::Alone(reason) => {
                self.land_for_those_here(Verdict::Uncacheable);
                let outcome = Outcome::forward(self.reason(), End::Unstored);
                let outcome = outcome.confirmed().because(reason.as_str());
                self.deliver_whole(parts, whole, outcome);
                self.let_go().await;
            }
            Plan::Together(mut judged) => {
                if !speaks_of_it {
                    // It must not update what it does not mean (RFC 9111 section 4.3.3).
                    judged.withhold("validator");
                }
                let outcome = self.outcome(&judged).confirmed();
                self.deliver_whole(parts, whole.clone(), outcome);
                let (body, trailers) = whole;
                Box::pin(self.conclude(*judged, body, trailers)).await;
            }
        }
    }

    fn is_used_enough(&self) -> bool {
        let enough = self.policy.min_uses;
        enough <= 1 || self.cache.local().uses(&self.resource) >= enough
    }

    fn judge(&self, parts: &Parts) -> Result<Plan, Payload> {
        let judge = || judge::response(parts, &self.asked, &self.policy, self.began);
        let mut plan = build::caught(judge)?;
        if let Plan::Together(judged) = &mut plan {
            if self.carried == Err(TooMany) {
                judged.withhold("tags");
            }
            if !self.is_used_enough() {
                judged.withhold("min-uses");
            }
            if !self.has_place(&judged.vary) {
                judged.withhold("variants");
            }
        }
        Ok(plan)
    }

    /// What the local tier alone would store has to fit into it.
    fn measure(&self, judged: &mut Judged, size: u64) {
        if self.keeper.is_none() && size > self.cache.local().largest() {
            judged.withhold("capacity");
        }
    }

    /// Reads the body to its end, handing it out meanwhile where that is safe.
    async fn gather(
        mut self,
        parts: Parts,
        body: Pin<Box<B>>,
        mut judged: Judged,
        deadline: Instant,
    ) {
        let hint = body.size_hint();
        let declared = judge::declared_length(&parts, &self.asked);
        let size = declared.or_else(|| hint.exact());
        self.measure(&mut judged, size.unwrap_or_default());
        if judged.is_of_the_moment() {
            // Who comes once there is a response wants one of their own time.
            self.pilot.flight().seal();
        }
        let writer = Writer::new(self.policy.max_body, self.cache.memory().clone());
        let growing = writer.growing();
        let mut draining = pin!(build::drain(body, writer, declared, deadline));
        if let Some(drained) = build::at_once(draining.as_mut()).await {
            let unsent = Unsent {
                parts,
                growing,
                hint,
            };
            return Box::pin(self.finish(judged, drained, Starter::Waits(unsent))).await;
        }
        let fits = size.is_some_and(|size| size <= self.policy.max_body as u64);
        if fits && judged.is_shareable() {
            self.stream(&judged, &growing, &hint);
        }
        let unsent = Unsent {
            parts,
            growing,
            hint,
        };
        let rest = self.deliver_leading(unsent, &judged);
        self.presence = None;
        let drained = draining.await;
        self.presence = Some(self.pilot.flight().presence());
        Box::pin(self.finish(judged, drained, Starter::Reads(rest))).await;
    }

    /// The head, with the variant it is of; `None` if it fits no other request.
    pub(super) fn head_of(&self, judged: &Judged) -> Option<Head> {
        let variant = match &judged.vary {
            Vary::None => None,
            Vary::Any => return None,
            Vary::Fields(fields) => {
                Some(Variant::of(fields.as_slice().into(), &self.asked.headers))
            }
        };
        let head = judged.head.clone();
        Some(Head { variant, ..head })
    }

    /// Lets those who wait read along.
    fn stream(&self, judged: &Judged, growing: &Growing, hint: &SizeHint) {
        let Some(head) = self.head_of(judged) else {
            return;
        };
        let stream = Stream {
            head,
            body: growing.clone(),
            hint: *hint,
            tags: self.carried.clone().unwrap_or_default(),
            began: self.pilot.flight().began,
        };
        self.pilot.flight().tell(News::Streaming(Arc::new(stream)));
    }

    /// The body has ended one way or another.
    async fn finish(mut self, mut judged: Judged, drained: Drained<B>, starter: Starter<B>) {
        match drained {
            Drained::Complete(body, trailers) => {
                self.measure(&mut judged, body.len() as u64);
                let tag = self.tag(&mut judged, &body).await;
                if let Starter::Waits(mut unsent) = starter {
                    unsent.parts.headers.extend(tag.map(|tag| (ETAG, tag)));
                    let parts = with_outcome(unsent.parts, self.outcome(&judged));
                    let whole = (body.clone(), trailers.clone());
                    let response = answer::complete(parts, whole, self.asked.wanted());
                    self.deliver_response(response, &judged);
                }
                Box::pin(self.conclude(judged, body, trailers)).await;
            }
            Drained::TooLarge(_) | Drained::NoRoom(_) if !judged.is_shareable() => {
                let failure = Failure::Status(judged.head.status);
                self.hand_over(&judged, drained, starter);
                self.fail(failure, "status").await;
            }
            Drained::TooLarge(_) => {
                self.free(Verdict::TooLarge);
                self.hand_over(&judged, drained, starter);
                self.set_all_free().await;
            }
            Drained::NoRoom(_) => {
                self.land_for_those_here(Verdict::TooLarge);
                self.hand_over(&judged, drained, starter);
                self.let_go().await;
            }
            Drained::TimedOut(_) => {
                self.hand_over(&judged, drained, starter);
                let failure = Failure::Status(StatusCode::SERVICE_UNAVAILABLE);
                self.fail(failure, "body-timeout").await;
            }
            Drained::Broken(_) | Drained::Panic(_) => {
                self.hand_over(&judged, drained, starter);
                let failure = Failure::Status(StatusCode::INTERNAL_SERVER_ERROR);
                self.fail(failure, "body").await;
            }
        }
    }

    /// Gives what is stored a validator, if it has none and the layer says so.
    async fn tag(&self, judged: &mut Judged, body: &Bytes) -> Option<HeaderValue> {
        if !judged.wants_tag(&self.policy) {
            return None;
        }
        let tag = tag::of(&judged.head.headers, body).await;
        judged.head.headers.insert(ETAG, tag.clone());
        Some(tag)
    }

    pub(super) fn reason(&self) -> Forward {
        self.asked
            .reason(self.stale.as_deref(), (&self.resource, &self.key))
    }
}
