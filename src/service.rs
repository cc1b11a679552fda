//! [`BufferService`]: classify, key, local hit; else the exchange.

use std::{
    cell::Cell,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tokio::time::Instant;
use tower_service::Service;

use crate::{
    answer::{self, Wanted},
    asked::{self, Asked, Fields},
    body::{Body, BoxError},
    cache::Cache,
    entry::{Entry, Worth},
    exchange::{Building, Exchange, Parcel},
    future::{Passing, ResponseFuture},
    http::{
        cache_control::{RequestDirectives, RequestFlag},
        storable,
    },
    invalidation::Invalidation,
    key::Key,
    local::Found,
    policy::{Mode, Policy},
    status::{End, Forward, Outcome},
};

/// The service that [`BufferLayer`](crate::BufferLayer) makes of another one.
///
/// It is always ready: a hit needs nothing of the inner service, which is driven to readiness where
/// it is called, on a clone.
#[derive(Clone, Debug)]
pub struct BufferService<S> {
    inner: S,
    cache: Cache,
    policy: Arc<Policy>,
}

impl<S> BufferService<S> {
    pub(crate) fn new(inner: S, cache: Cache, policy: Arc<Policy>) -> Self {
        Self {
            inner,
            cache,
            policy,
        }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for BufferService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    ReqBody: http_body::Body + Send + 'static,
    ResBody: http_body::Body + Send + 'static,
    ResBody::Data: Send,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<Body<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody, ResBody>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Hits do not need the inner service; everything else drives a clone of it to readiness, so
        // nothing may be reserved on this one.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let fields = Fields::of(&parts.headers);
        if let Err(outcome) = asked::eligible(&parts, &body, fields, &self.policy) {
            return self.bypass(parts, body, outcome);
        }
        for offer in &self.policy.offers {
            offer.reduce(&mut parts.headers);
        }
        let demand = self.policy.demand(fields.within(&parts.headers));
        if demand.is_some_and(|demand| demand.has(RequestFlag::NoStore)) {
            return self.bypass(parts, body, Outcome::bypass("request-no-store"));
        }
        with_scratch(|key| match self.identify(&parts, fields, key) {
            Err(outcome) => self.bypass(parts, body, outcome),
            Ok(authorization) => {
                let facts = Facts {
                    authorization,
                    demand,
                    fields,
                };
                self.answer((parts, body), key, facts)
            }
        })
    }
}

impl<S> BufferService<S> {
    fn bypass<ReqBody, ResBody>(
        &self,
        parts: Parts,
        body: ReqBody,
        outcome: Outcome,
    ) -> ResponseFuture<S, ReqBody, ResBody>
    where
        S: Service<Request<ReqBody>> + Clone,
    {
        self.cache.count().bypassed();
        let passing = Passing {
            outcome,
            invalidation: Invalidation::of(&parts, &self.cache, &self.policy),
        };
        let request = Request::from_parts(parts, body);
        ResponseFuture::bypass(self.inner.clone(), request, passing)
    }

    /// Writes the request's key, and decides whether its credentials let it be cached.
    fn identify(
        &self,
        parts: &Parts,
        fields: Fields,
        key: &mut Vec<u8>,
    ) -> Result<storable::Authorization, Outcome> {
        let keyed = self.policy.key.write(parts, key)?;
        asked::admitted(fields.within(&parts.headers), keyed, &self.policy)
    }

    /// Answers from the local tier, or starts the exchange.
    fn answer<ReqBody, ResBody>(
        &self,
        (parts, body): (Parts, ReqBody),
        key: &mut Vec<u8>,
        facts: Facts,
    ) -> ResponseFuture<S, ReqBody, ResBody>
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        ReqBody: http_body::Body + Send + 'static,
        ResBody: http_body::Body + Send + 'static,
        ResBody::Data: Send,
        ResBody::Error: Into<BoxError>,
    {
        let now = Instant::now();
        let primary = key.len();
        let found = match self.policy.mode {
            Mode::Cache => self.cache.find(key, &parts.headers, now),
            Mode::Coalesce | Mode::Bypass => Found::Nothing,
        };
        let wanted = Wanted {
            method: &parts.method,
            headers: facts.fields.within(&parts.headers),
        };
        let stale = match self.use_found((found, now), wanted, facts.demand) {
            Local::Answer(response) => return ResponseFuture::ready(response),
            Local::Stale(_, entry) if self.is_building(&parts, key, primary) => Some(entry),
            Local::Stale(response, entry) => {
                let exchange = self.exchange((parts, body), (key, primary), facts, Some(entry));
                exchange.refresh();
                return ResponseFuture::ready(response);
            }
            Local::Nothing(stale) => stale,
        };
        if facts
            .demand
            .is_some_and(|demand| demand.has(RequestFlag::OnlyIfCached))
        {
            return ResponseFuture::ready(answer::only_if_cached());
        }
        if self.is_building(&parts, key, primary) {
            return self.bypass(parts, body, Outcome::bypass("nested"));
        }
        if self.policy.passes(&parts) {
            let reason = if stale.is_some() {
                Forward::Stale
            } else {
                Forward::Miss
            };
            return self.bypass(
                parts,
                body,
                Outcome::forward(reason, End::Unstored).because("range"),
            );
        }
        let exchange = self.exchange((parts, body), (key, primary), facts, stale);
        ResponseFuture::exchange(Box::pin(exchange.run()))
    }

    /// Whether this request is part of a build of its own resource: a stale entry is no answer then,
    /// and there is nothing to wait for.
    fn is_building(&self, parts: &Parts, key: &[u8], primary: usize) -> bool {
        let resource = key.get(..primary).unwrap_or_default();
        Building::contains(&parts.extensions, &self.cache, resource)
    }

    fn exchange<ReqBody>(
        &self,
        (parts, body): (Parts, ReqBody),
        (key, primary): (&[u8], usize),
        facts: Facts,
        stale: Option<Arc<Entry>>,
    ) -> Exchange<S, ReqBody>
    where
        S: Clone,
    {
        let asked = Asked {
            method: parts.method.clone(),
            headers: parts.headers.clone(),
            authorization: facts.authorization,
            arrived: Instant::now(),
            demand: facts.demand,
        };
        Exchange {
            inner: self.inner.clone(),
            cache: self.cache.clone(),
            policy: Arc::clone(&self.policy),
            key: Key::new(key),
            resource: Key::new(key.get(..primary).unwrap_or_default()),
            tag: self.policy.key.uri_tag(&parts),
            asked,
            parcel: Parcel::new(Request::from_parts(parts, body)),
            stale,
        }
    }

    fn use_found<B>(
        &self,
        (found, now): (Found, Instant),
        wanted: Wanted<'_>,
        demand: Option<RequestDirectives>,
    ) -> Local<B> {
        let Found::Entry(entry, worth) = found else {
            return Local::Nothing(None);
        };
        let suits =
            self.cache.trusts_local() && demand.is_none_or(|demand| entry.suits(&demand, now));
        match worth {
            Worth::Fresh if suits => {
                self.cache.count().hit();
                Local::Answer(answer::hit(&entry, wanted, now))
            }
            Worth::StaleWhileRevalidate if suits => {
                self.cache.count().stale();
                Local::Stale(answer::hit(&entry, wanted, now), entry)
            }
            // It asked for no better.
            Worth::StaleIfError if suits && demand.is_some() => {
                self.cache.count().stale();
                Local::Answer(answer::hit(&entry, wanted, now))
            }
            _ => Local::Nothing(Some(entry)),
        }
    }
}

/// What else of a request decides about an entry.
#[derive(Clone, Copy)]
struct Facts {
    authorization: storable::Authorization,
    demand: Option<RequestDirectives>,
    fields: Fields,
}

/// What the local tier's find is worth.
enum Local<B> {
    Answer(Response<Body<B>>),
    /// An answer for now; the entry wants a refresh.
    Stale(Response<Body<B>>, Arc<Entry>),
    /// No answer, at most something to fall back on.
    Nothing(Option<Arc<Entry>>),
}

/// Lends out a buffer for the key, so that a hit allocates none.
fn with_scratch<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    thread_local! {
        static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut scratch = SCRATCH.take();
    let result = work(&mut scratch);
    SCRATCH.set(scratch);
    result
}
