//! The way of a miss, as the request walks it: join the flight, wait for its news, answer; or, when
//! the wait has been long enough, [`fallback`]. What the news are to one request is in [`heeding`].
//!
//! The other half, what the flight itself does, begins in [`leading`]; how it drives the inner service
//! is in [`build`], and what the starter of a build gets of it in [`delivery`]. Flights that no request
//! waits for begin in [`refreshing`].

mod build;
mod delivery;
mod ending;
mod fallback;
mod heeding;
mod keeper;
mod landing;
mod leading;
mod nested;
mod parcel;
mod poll;
mod refreshing;
mod seek;
mod tag;

use std::{panic::resume_unwind, pin::pin, sync::Arc};

use http::{Method, Request, Response};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};
use tower_service::Service;
use tracing::{Instrument as _, field};

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
    entry::Entry,
    flight::{Flight, Joined, Pilot, Seat},
    key::{Class, Digest, Key},
    memos::Note,
    policy::Policy,
    shared::Slot,
    status::{End, Forward, Outcome},
};

/// So often a request starts over; then it goes its own way.
const ATTEMPTS: usize = 4;

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// An answer: a fresh entry will do.
    Answer,
    /// A new entry, though there may be a fresh one.
    Renew,
}

/// One request that found no answer in the local tier.
pub(crate) struct Exchange<S, ReqBody> {
    pub(crate) inner: S,
    pub(crate) cache: Cache,
    pub(crate) policy: Arc<Policy>,
    /// The key of the variant asked for, as far as it is known what the resource varies by.
    pub(crate) key: Key,
    pub(crate) resource: Key,
    /// What an entry for it can be purged by, as far as the request tells.
    pub(crate) tags: Arc<[Digest]>,
    pub(crate) asked: Asked,
    pub(crate) intent: Intent,
    pub(crate) parcel: Parcel<ReqBody>,
    /// A local entry that is no answer by itself.
    pub(crate) stale: Option<Arc<Entry>>,
}

type Lead<S, ReqBody, ResBody> =
    Leading<S, ReqBody, ResBody, <S as Service<Request<ReqBody>>>::Error>;

type Delivered<B, E> = oneshot::Receiver<Delivery<B, E>>;

/// How far one wait got.
enum Waited<B, E> {
    Answered(Response<Body<B>>),
    /// By this entry of the shared tier, for which it may be time to be refreshed.
    Found(Response<Body<B>>, Arc<Entry>),
    Error(E),
    /// Nothing for this request came of it: look again.
    Again,
    /// The response is its own request's alone, or there is nothing to wait for.
    Free(Forward, &'static str),
    TimedOut,
    /// The cache has shut down: nothing is built any more.
    Closed,
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
        let deadline = self.deadline();
        if self.policy.min_uses > 1 {
            self.cache.local().use_once_more(&self.resource);
        }
        match self.share(Slot::Build, deadline).await {
            Waited::Answered(response) => Ok(response),
            Waited::Found(response, entry) => {
                self.refresh_early(entry);
                Ok(response)
            }
            Waited::Error(error) => Err(error),
            Waited::Again => {
                let reason = self.reason();
                self.alone(reason, "abandoned").await
            }
            Waited::Free(reason, detail) => self.alone(reason, detail).await,
            Waited::TimedOut => self.fall_back().await,
            Waited::Closed => Ok(self.closed()),
        }
    }

    /// Answers the request from the shared tier; without an entry there, it gets nothing if it wants
    /// no other answer, else it passes to the inner service as it is.
    pub(crate) async fn look(mut self) -> Result<Response<Body<ResBody>>, S::Error> {
        self.asked.errand = Errand::Look;
        let deadline = self.deadline();
        match self.share(Slot::Build, deadline).await {
            Waited::Answered(response) | Waited::Found(response, _) => Ok(response),
            _ if self.asked.wants_an_entry_or_nothing() => {
                Ok(answer::only_if_cached(self.asked.wanted()))
            }
            _ => {
                let reason = self.reason();
                self.alone(reason, "range").await
            }
        }
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
        let (mut parts, body) = self.inner.call(request).await?.into_parts();
        self.policy.strip_tags(&mut parts.headers);
        let outcome = Outcome::forward(reason, End::Unstored).because(detail);
        let mut parts = delivery::with_outcome(parts, outcome);
        let hint = body.size_hint();
        let body = (Body::passed(body), &hint);
        let body = answer::bodied(self.asked.wanted(), &mut parts.headers, body);
        Ok(Response::from_parts(parts, body))
    }

    /// Joins flights until one has an answer for this request.
    async fn share(&mut self, slot: Slot, deadline: Instant) -> Waited<ResBody, S::Error> {
        for _ in 0..ATTEMPTS {
            if self.cache.is_closed() {
                return Waited::Closed;
            }
            if let Some(answered) = self.remembered(slot) {
                return answered;
            }
            let (seat, mut delivery) = match self.join(slot) {
                Joined::Full if matches!(self.note(), Some(Note::HitForMiss)) => {
                    return Waited::Free(self.reason(), "uncacheable");
                }
                Joined::Full => return Waited::TimedOut,
                Joined::Waiter(seat) => (seat, None),
                Joined::Starter(seat, pilot) => {
                    let (leading, delivery) = self.lead(pilot, Ownership::Requests, slot);
                    leading.take_off();
                    (seat, Some(delivery))
                }
            };
            let span = tracing::debug_span!(
                "wait",
                role = if delivery.is_some() {
                    "starter"
                } else {
                    "waiter"
                },
                ms = field::Empty,
            );
            let began = Instant::now();
            let wait = self.wait(&seat, &mut delivery, deadline);
            let waited = wait.instrument(span.clone()).await;
            seat.lead(&span);
            span.record("ms", began.elapsed().as_secs_f64() * 1000.0);
            match waited {
                Waited::Again => {}
                waited => return waited,
            }
        }
        Waited::Again
    }

    /// The flight's task, which may build with this request, and what comes of that.
    fn lead(
        &self,
        pilot: Pilot,
        ownership: Ownership,
        slot: Slot,
    ) -> (Lead<S, ReqBody, ResBody>, Delivered<ResBody, S::Error>) {
        let (delivery, delivered) = oneshot::channel();
        let leading = Leading {
            inner: self.inner.clone(),
            cache: self.cache.clone(),
            policy: Arc::clone(&self.policy),
            key: self.key.clone(),
            resource: self.resource.clone(),
            tags: Arc::clone(&self.tags),
            asked: self.asked.clone(),
            parcel: self.parcel.clone(),
            stale: self.stale.clone(),
            ownership,
            intent: self.intent,
            slot,
            delivery: Some(delivery),
            permit: None,
            pilot,
        };
        (leading, delivered)
    }

    /// Waits for the flight's news, and, as its starter, for the response to this very request.
    async fn wait(
        &mut self,
        seat: &Seat,
        delivered: &mut Option<Delivered<ResBody, S::Error>>,
        deadline: Instant,
    ) -> Waited<ResBody, S::Error> {
        let mut timer = pin!(sleep_until(deadline));
        let mut patience = Patience::Limited;
        let stale_after = self
            .policy
            .stale_after
            .map(|limit| self.asked.arrived + limit);
        let mut soft = pin!(sleep_until(stale_after.unwrap_or(deadline)));
        let mut taste = stale_after.map_or(Taste::Fresh, |_| Taste::Any);
        let mut news = pin!(seat.news());
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
                news = &mut news, if delivered.is_none() => return self.heed(news, seat),
                () = &mut soft, if taste == Taste::Any => match self.soft_fallback() {
                    Some(response) => return Waited::Answered(response),
                    None => taste = Taste::Fresh,
                },
                () = &mut timer, if patience == Patience::Limited => {
                    if delivered.is_none() {
                        return Waited::TimedOut;
                    }
                    match self.instead_of_own_build() {
                        Some(waited) if self.parcel.is_empty() => return waited,
                        Some(_) => return Waited::TimedOut,
                        // Unless the flight builds with it already, the request is for another build.
                        None if self.take_back() => return Waited::TimedOut,
                        None => patience = Patience::Unlimited,
                    }
                }
            }
        }
    }
}

impl<S, ReqBody> Exchange<S, ReqBody> {
    /// What the memos beside the key say.
    fn remembered<B, E>(&self, slot: Slot) -> Option<Waited<B, E>> {
        if slot != Slot::Build {
            return None;
        }
        match self.note()? {
            Note::Failed(failure, _) => {
                let outcome = |ttl| Outcome::hit(ttl).because("stale-if-error");
                Some(Waited::Answered(self.failed(&failure, outcome)))
            }
            // The one who finds no flight probes; the others do not wait for it.
            Note::HitForMiss => None,
        }
    }

    fn note(&self) -> Option<Note> {
        self.cache
            .note(&self.asked.key_in_class(&self.key), &self.tags)
    }

    fn join(&self, slot: Slot) -> Joined {
        let key = match (slot, &self.asked.method) {
            (Slot::Extra(_), &Method::HEAD) => self.key.in_class(Class::ExtraHead),
            (Slot::Extra(_), _) => self.key.in_class(Class::Extra),
            (Slot::Build, _) if self.is_apart() => self.asked.key_in_class(&self.key),
            (Slot::Build, _) => self.asked.key_of_all(&self.key),
        };
        let now = self.cache.moment();
        let overtaken = |flight: &Flight| self.cache.purges().overtake(flight.began, &self.tags);
        self.cache
            .flights()
            .join(&key, now, self.policy.waiters, overtaken)
    }

    /// Whether its circle has flights of its own: while the shared tier elects one of two that build.
    fn is_apart(&self) -> bool {
        self.cache.shared().is_some_and(|shared| shared.elects())
    }

    /// Takes the request back from the flight, for a build elsewhere; `false` if it builds with it already.
    fn take_back(&mut self) -> bool {
        let request = self.parcel.take();
        let there = request.is_some();
        if let Some(request) = request {
            self.parcel = Parcel::new(request);
        }
        there
    }

    /// When its wait is over.
    fn deadline(&self) -> Instant {
        let configured = self.policy.wait_timeout;
        self.asked.arrived + self.policy.pace.wait_timeout(configured)
    }

    fn reason(&self) -> Forward {
        self.asked
            .reason(self.stale.as_deref(), (&self.resource, &self.key))
    }
}

/// Whether a stale entry will do once the soft timeout has passed.
#[derive(PartialEq)]
enum Taste {
    Any,
    Fresh,
}

/// Whether the wait timeout still counts.
#[derive(PartialEq)]
enum Patience {
    Limited,
    Unlimited,
}

/// The starter's own delivery; for a mere waiter, never.
async fn own<B, E>(delivered: &mut Option<Delivered<B, E>>) -> Option<Delivery<B, E>> {
    match delivered {
        Some(delivered) => delivered.await.ok(),
        None => std::future::pending().await,
    }
}
