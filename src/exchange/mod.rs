//! The way of a miss, as the request walks it: join the flight, wait for its news, answer; fall back
//! when the wait has been long enough.
//!
//! The other half, what the flight itself does, is in [`leading`]; how it drives the inner service
//! is in [`build`], and what the starter of a build gets of it in [`delivery`].

mod build;
mod delivery;
mod keeper;
mod landing;
mod leading;
mod nested;
mod parcel;
mod seek;
mod tag;

use std::{panic::resume_unwind, pin::pin, sync::Arc};

use http::{HeaderMap, Method, Request, Response};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};
use tower_service::Service;

use self::{
    build::Delivery,
    leading::{Leading, Ownership},
};
pub(crate) use self::{nested::Building, parcel::Parcel};
use crate::{
    answer,
    asked::{Asked, Errand},
    body::{Body, BoxError},
    cache::Cache,
    entry::{self, Entry, Fields, Worth},
    flight::{Failure, Flight, Joined, News, Pilot, Seat, Verdict},
    key::{Class, Digest, Key},
    local::Note,
    policy::{Fallback, Policy},
    shared::Slot,
    status::{End, Forward, Outcome},
};

/// So often a request starts over; then it goes its own way.
const ATTEMPTS: usize = 4;

/// One request that found no answer in the local tier.
pub(crate) struct Exchange<S, ReqBody> {
    pub(crate) inner: S,
    pub(crate) cache: Cache,
    pub(crate) policy: Arc<Policy>,
    /// The key of the variant asked for, as far as it is known what the resource varies by.
    pub(crate) key: Key,
    pub(crate) resource: Key,
    /// The implicit tag of authority and path.
    pub(crate) tag: Digest,
    pub(crate) asked: Asked,
    pub(crate) parcel: Parcel<ReqBody>,
    /// A local entry that is no answer by itself.
    pub(crate) stale: Option<Arc<Entry>>,
}

/// How far one wait got.
enum Waited<B, E> {
    Answered(Response<Body<B>>),
    Error(E),
    /// Nothing for this request came of it: look again.
    Again,
    /// The response is its own request's alone, or there is nothing to wait for.
    Free(Forward, &'static str),
    TimedOut,
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
    /// Answers the request.
    pub(crate) async fn run(mut self) -> Result<Response<Body<ResBody>>, S::Error> {
        let deadline = self.asked.arrived + self.policy.wait_timeout;
        match self.share(Slot::Build, deadline).await {
            Waited::Answered(response) => Ok(response),
            Waited::Error(error) => Err(error),
            Waited::Again => {
                let reason = self.reason();
                self.alone(reason, "abandoned").await
            }
            Waited::Free(reason, detail) => self.alone(reason, detail).await,
            Waited::TimedOut => self.fall_back().await,
        }
    }

    /// Answers the request from the shared tier; without an entry there, it gets nothing if it wants
    /// no other answer, else it passes to the inner service as it is.
    pub(crate) async fn look(mut self) -> Result<Response<Body<ResBody>>, S::Error> {
        self.asked.errand = Errand::Look;
        let deadline = self.asked.arrived + self.policy.wait_timeout;
        match self.share(Slot::Build, deadline).await {
            Waited::Answered(response) => Ok(response),
            _ if self.asked.wants_an_entry_or_nothing() => {
                Ok(answer::only_if_cached(self.asked.wanted()))
            }
            _ => {
                let reason = self.reason();
                self.alone(reason, "range").await
            }
        }
    }

    /// Refreshes a stale entry that has already answered this request: nobody waits.
    pub(crate) fn refresh(self) {
        // What a HEAD would build is no entry.
        if self.asked.method == Method::HEAD || self.note().is_some() {
            return;
        }
        if let Joined::Starter(seat, pilot) = self.join(Slot::Build) {
            drop(self.lead(pilot, Ownership::Nobody, Slot::Build));
            drop(seat);
        }
    }

    /// Joins flights until one has an answer for this request.
    async fn share(&mut self, slot: Slot, deadline: Instant) -> Waited<ResBody, S::Error> {
        for _ in 0..ATTEMPTS {
            if let Some(answered) = self.remembered(slot) {
                return answered;
            }
            let (mut seat, mut delivery) = match self.join(slot) {
                Joined::Full if matches!(self.note(), Some(Note::HitForMiss)) => {
                    return Waited::Free(self.reason(), "uncacheable");
                }
                Joined::Full => return Waited::TimedOut,
                Joined::Waiter(seat) => (seat, None),
                Joined::Starter(seat, pilot) => {
                    let delivery = self.lead(pilot, Ownership::Requests, slot);
                    (seat, Some(delivery))
                }
            };
            match self.wait(&mut seat, &mut delivery, deadline).await {
                Waited::Again => {}
                waited => return waited,
            }
        }
        Waited::Again
    }

    /// What the memos beside the key say.
    fn remembered(&self, slot: Slot) -> Option<Waited<ResBody, S::Error>> {
        if slot == Slot::Extra {
            return None;
        }
        match self.note()? {
            Note::Failed(failure) => {
                let outcome = |ttl| Outcome::hit(ttl).because("stale-if-error");
                Some(Waited::Answered(self.failed(&failure, outcome)))
            }
            // The one who finds no flight probes; the others do not wait for it.
            Note::HitForMiss => None,
        }
    }

    fn note(&self) -> Option<Note> {
        self.cache
            .note(&self.asked.key_in_class(&self.key), self.tag)
    }

    fn join(&self, slot: Slot) -> Joined {
        let key = match (slot, &self.asked.method) {
            (Slot::Extra, &Method::HEAD) => self.key.in_class(Class::ExtraHead),
            (Slot::Extra, _) => self.key.in_class(Class::Extra),
            (Slot::Build, _) => self.asked.key_in_class(&self.key),
        };
        let now = self.cache.moment();
        let overtaken = |flight: &Flight| self.cache.purges().since(flight.began, &[self.tag]);
        self.cache
            .flights()
            .join(&key, now, self.policy.waiters, overtaken)
    }

    /// Starts the flight's task, which may build with this request.
    fn lead(
        &self,
        pilot: Pilot,
        ownership: Ownership,
        slot: Slot,
    ) -> oneshot::Receiver<Delivery<ResBody, S::Error>> {
        let (delivery, delivered) = oneshot::channel();
        let leading = Leading {
            inner: self.inner.clone(),
            cache: self.cache.clone(),
            policy: Arc::clone(&self.policy),
            key: self.key.clone(),
            resource: self.resource.clone(),
            tag: self.tag,
            asked: self.asked.clone(),
            parcel: self.parcel.clone(),
            stale: self.stale.clone(),
            ownership,
            slot,
            delivery,
            pilot,
        };
        leading.take_off();
        delivered
    }

    /// Waits for the flight's news, and, as its starter, for the response to this very request.
    async fn wait(
        &mut self,
        seat: &mut Seat,
        delivered: &mut Option<oneshot::Receiver<Delivery<ResBody, S::Error>>>,
        deadline: Instant,
    ) -> Waited<ResBody, S::Error> {
        let mut timer = pin!(sleep_until(deadline));
        let mut patience = Patience::Limited;
        loop {
            tokio::select! {
                biased;
                delivery = own(delivered) => match delivery {
                    Some(Delivery::Response(response)) => return Waited::Answered(response),
                    Some(Delivery::Error(error)) => return Waited::Error(error),
                    Some(Delivery::Panic(payload)) => resume_unwind(payload),
                    // It built nothing, or not with this request: the news say what else.
                    None => *delivered = None,
                },
                news = seat.news(), if delivered.is_none() => return self.heed(news, seat),
                () = &mut timer, if patience == Patience::Limited => {
                    let builds_for_us = delivered.is_some() && self.parcel.is_empty();
                    if !builds_for_us {
                        return Waited::TimedOut;
                    }
                    match self.instead_of_own_build() {
                        Some(waited) => return waited,
                        None => patience = Patience::Unlimited,
                    }
                }
            }
        }
    }

    /// What the starter of a build falls back on, unless its own build is what it would fall back on.
    fn instead_of_own_build(&self) -> Option<Waited<ResBody, S::Error>> {
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

    /// Acts on the flight's news as one of its waiters.
    fn heed(&mut self, news: News, seat: &Seat) -> Waited<ResBody, S::Error> {
        match news {
            News::None => Waited::Again,
            News::Streaming(stream) if !self.opens(&stream.head.headers) => {
                Waited::Free(Forward::Request, "authorization")
            }
            News::Streaming(stream) if stream.head.fits(&self.asked.headers) => {
                let outcome = Outcome::forward(self.reason(), End::Collapsed);
                self.cache.count().collapsed();
                Waited::Answered(answer::from_stream(
                    (&stream, seat.presence()),
                    self.asked.wanted(),
                    outcome,
                ))
            }
            News::Streaming(stream) => self.elsewhere(stream.head.fields()),
            News::Elsewhere(fields) => self.elsewhere(Some(fields)),
            News::Found(entry) => match self.use_of(&entry, seat) {
                Use::Answer => Waited::Answered(self.hit(&entry)),
                Use::Elsewhere => self.elsewhere(entry.head.fields()),
                Use::Closed => Waited::Free(Forward::Request, "authorization"),
                Use::None => Waited::Again,
            },
            News::Landed(verdict) => self.accept(verdict, seat),
        }
    }

    fn accept(&mut self, verdict: Verdict, seat: &Seat) -> Waited<ResBody, S::Error> {
        match verdict {
            Verdict::Stored(entry) | Verdict::Shared(entry) | Verdict::Invalidated(entry) => {
                match self.use_of(&entry, seat) {
                    Use::Answer => Waited::Answered(self.collapsed(&entry)),
                    Use::Elsewhere => self.elsewhere(entry.head.fields()),
                    Use::Closed => Waited::Free(Forward::Request, "authorization"),
                    Use::None => Waited::Again,
                }
            }
            Verdict::Uncacheable => Waited::Free(self.reason(), "uncacheable"),
            Verdict::TooLarge => Waited::Free(self.reason(), "too-large"),
            Verdict::Failed(failure) => {
                let outcome = |ttl| {
                    Outcome::forward(self.reason(), End::CollapsedStoodIn { ttl })
                        .because("stale-if-error")
                };
                Waited::Answered(self.failed(&failure, outcome))
            }
            Verdict::Abandoned => Waited::Again,
        }
    }

    /// What an entry that the flight has come to is to this request.
    fn use_of(&self, entry: &Entry, seat: &Seat) -> Use {
        let came_late = self.asked.arrived > entry.lifetime.received;
        if !entry.head.fits(&self.asked.headers) {
            Use::Elsewhere
        } else if !self.opens(&entry.head.headers) {
            Use::Closed
        } else if !entry.may_answer(seat.joined, self.cache.purges())
            || came_late && entry.worth(Instant::now()) != Worth::Fresh
        {
            // The flight is still there, but not for those who come now.
            seat.close();
            Use::None
        } else {
            Use::Answer
        }
    }

    fn opens(&self, headers: &HeaderMap) -> bool {
        self.policy.opens(headers, self.asked.authorization)
    }

    /// Looks again under the variant that this request asks for.
    fn elsewhere(&mut self, fields: Option<Fields>) -> Waited<ResBody, S::Error> {
        if let Some(fields) = fields {
            self.key = self
                .resource
                .variant(&entry::values(&fields, &self.asked.headers));
            let known = self.cache.local().entry(&self.key, self.cache.purges());
            self.stale = known.filter(|known| self.opens(&known.head.headers));
        }
        Waited::Again
    }

    fn hit(&self, entry: &Entry) -> Response<Body<ResBody>> {
        self.cache.count().shared_hit();
        answer::hit(entry, self.asked.wanted(), Instant::now())
    }

    fn collapsed(&self, entry: &Entry) -> Response<Body<ResBody>> {
        let now = Instant::now();
        self.cache.count().collapsed();
        let outcome = Outcome::forward(self.reason(), End::Collapsed);
        answer::from_entry(entry, self.asked.wanted(), now, outcome)
    }

    /// A failure that others share: a stale entry if it may stand in, else the failure itself.
    fn failed(
        &self,
        failure: &Failure,
        outcome: impl FnOnce(i64) -> Outcome,
    ) -> Response<Body<ResBody>> {
        self.stale_fallback(outcome).unwrap_or_else(|| {
            self.cache.count().failed();
            let status =
                failure.unless(|head| head.fits(&self.asked.headers) && self.opens(&head.headers));
            let failure = status.as_ref().unwrap_or(failure);
            answer::failed(failure, self.asked.wanted(), self.reason())
        })
    }

    /// The stale entry, where it may answer in place of a build (RFC 5861 section 4).
    fn stale_fallback(
        &self,
        outcome: impl FnOnce(i64) -> Outcome,
    ) -> Option<Response<Body<ResBody>>> {
        let entry = self.stale.as_ref()?;
        let usable = entry.may_stand_in(Instant::now(), self.cache.purges());
        usable.then(|| {
            self.cache.count().stale();
            answer::stood_in(entry, self.asked.wanted(), outcome)
        })
    }

    fn tired_of_waiting(&self, end: End) -> Outcome {
        Outcome::forward(self.reason(), end).because("wait-timeout")
    }

    /// The wait is over: what the layer's fallbacks say, in turn.
    async fn fall_back(mut self) -> Result<Response<Body<ResBody>>, S::Error> {
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
                    match self.share(Slot::Extra, deadline).await {
                        Waited::Answered(response) => return Ok(response),
                        Waited::Error(error) => return Err(error),
                        Waited::Free(reason, detail) => return self.alone(reason, detail).await,
                        Waited::TimedOut | Waited::Again => {}
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

    /// Answers this request by a build of its own that nobody shares.
    async fn alone(
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
        let (parts, body) = self.inner.call(request).await?.into_parts();
        let outcome = Outcome::forward(reason, End::Unstored).because(detail);
        let parts = delivery::with_outcome(parts, outcome);
        let body = answer::bodied(self.asked.wanted(), Body::passed(body));
        Ok(Response::from_parts(parts, body))
    }

    fn reason(&self) -> Forward {
        self.asked
            .reason(self.stale.as_deref(), (&self.resource, &self.key))
    }
}

/// Whether an entry answers a request.
enum Use {
    Answer,
    /// Another variant does.
    Elsewhere,
    /// It is not meant for requests with credentials.
    Closed,
    None,
}

/// Whether the wait timeout still counts.
#[derive(PartialEq)]
enum Patience {
    Limited,
    Unlimited,
}

/// The starter's own delivery; for a mere waiter, never.
async fn own<B, E>(
    delivered: &mut Option<oneshot::Receiver<Delivery<B, E>>>,
) -> Option<Delivery<B, E>> {
    match delivered {
        Some(delivered) => delivered.await.ok(),
        None => std::future::pending().await,
    }
}
