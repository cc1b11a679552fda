//! [`BufferService`]: classify, key, local hit; else the exchange.

use std::{
    cell::Cell,
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tokio::time::Instant;
use tower_service::Service;

use crate::{
    answer::{self, Wanted},
    asked::{self, Asked, Errand, Fields},
    body::{Body, BoxError},
    cache::Cache,
    entry::{Entry, Worth},
    exchange::{Building, Exchange, Parcel},
    future::{Passing, ResponseFuture},
    http::{
        cache_control::{RequestDirectives, RequestFlag},
        fields, storable,
    },
    invalidation::Invalidation,
    key::{Digest, Key},
    local::Found,
    policy::{KeyShown, Mode, Policy},
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
        let mut key = Scratch::borrow();
        // By reference: a request is large, and is moved only if it goes further than a hit.
        match self.look(&mut parts, &body, &mut key.0) {
            Ok((Local::Answer(response), facts)) => {
                ResponseFuture::ready(response).showing(self.shown(&key.0, facts))
            }
            Ok((local, facts)) => self
                .go_on((parts, body), &key.0, facts, local)
                .showing(self.shown(&key.0, facts)),
            Err(outcome) => self.bypass(parts, body, outcome),
        }
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

    /// What `Cache-Status` says of the key.
    fn shown(&self, key: &[u8], facts: Facts) -> Option<Digest> {
        let resource = key.get(..facts.primary)?;
        (self.policy.key_shown == KeyShown::Digest).then(|| Digest::of(resource))
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

    /// Classifies the request, writes its key, and looks it up in the local tier.
    fn look<ReqBody: http_body::Body, B>(
        &self,
        parts: &mut Parts,
        body: &ReqBody,
        key: &mut Vec<u8>,
    ) -> Result<(Local<B>, Facts), Outcome> {
        let fields = Fields::of(&parts.headers);
        asked::eligible(parts, body, fields, &self.policy)?;
        for offer in &self.policy.offers {
            offer.reduce(&mut parts.headers);
        }
        let demand = self.policy.demand(fields.within(&parts.headers));
        if demand.is_some_and(|demand| demand.has(RequestFlag::NoStore)) {
            return Err(Outcome::bypass("request-no-store"));
        }
        let facts = Facts {
            authorization: self.identify(parts, fields, key)?,
            demand,
            primary: key.len(),
        };
        let now = Instant::now();
        let found = match self.policy.mode {
            Mode::Cache => self.cache.find(key, &parts.headers, now),
            Mode::Coalesce | Mode::Bypass => Found::Nothing,
        };
        let found = self.admit(found, facts.authorization)?;
        let wanted = Wanted {
            method: &parts.method,
            headers: fields.within(&parts.headers),
        };
        Ok((self.use_found((found, now), wanted, demand), facts))
    }

    /// Keeps from requests with `Authorization` what is not meant for them.
    fn admit(
        &self,
        found: Found,
        authorization: storable::Authorization,
    ) -> Result<Found, Outcome> {
        match found {
            Found::Entry(entry, worth)
                if !self.policy.opens(&entry.head.headers, authorization) =>
            {
                match worth {
                    Worth::Fresh => {
                        Err(Outcome::forward(Forward::Request, End::Unstored)
                            .because("authorization"))
                    }
                    _ => Ok(Found::Nothing),
                }
            }
            found => Ok(found),
        }
    }

    /// What is no hit: refreshes, passes on, or starts the exchange.
    fn go_on<ReqBody, ResBody>(
        &self,
        (parts, body): (Parts, ReqBody),
        key: &[u8],
        facts: Facts,
        local: Local<ResBody>,
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
        let stale = match local {
            Local::Answer(response) => return ResponseFuture::ready(response),
            Local::Stale(_, entry) if self.is_building(&parts, key, facts.primary) => Some(entry),
            Local::Stale(response, entry) => {
                if !fields::hides_fields(&parts.headers) {
                    let exchange = self.exchange((parts, body), key, facts, Some(entry));
                    exchange.refresh();
                }
                return ResponseFuture::ready(response);
            }
            Local::Nothing(stale) => stale,
        };
        if self.is_building(&parts, key, facts.primary) {
            return self.bypass(parts, body, Outcome::bypass("nested"));
        }
        if fields::hides_fields(&parts.headers) {
            return self.bypass(parts, body, Outcome::bypass("connection"));
        }
        let builds_nothing = facts.wants_an_entry_or_nothing() || self.policy.passes(&parts);
        if builds_nothing && self.policy.mode == Mode::Cache && self.cache.shared().is_some() {
            let exchange = self.exchange((parts, body), key, facts, stale);
            return ResponseFuture::exchange(Box::pin(exchange.look()));
        }
        if facts.wants_an_entry_or_nothing() {
            return ResponseFuture::ready(answer::only_if_cached(Wanted::of(&parts)));
        }
        if builds_nothing {
            let reason = if stale.is_some() {
                Forward::Stale
            } else {
                Forward::Miss
            };
            let outcome = Outcome::forward(reason, End::Unstored).because("range");
            return self.bypass(parts, body, outcome);
        }
        let exchange = self.exchange((parts, body), key, facts, stale);
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
        (mut parts, body): (Parts, ReqBody),
        key: &[u8],
        facts: Facts,
        stale: Option<Arc<Entry>>,
    ) -> Exchange<S, ReqBody>
    where
        S: Clone,
    {
        let method = self.policy.build_method(&parts.method);
        let asked = Asked {
            client_method: mem::replace(&mut parts.method, method.clone()),
            method,
            errand: Errand::Build,
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
            resource: Key::new(key.get(..facts.primary).unwrap_or_default()),
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
    /// How much of the key names the resource; the rest names its variant.
    primary: usize,
}

impl Facts {
    fn wants_an_entry_or_nothing(&self) -> bool {
        self.demand
            .is_some_and(|demand| demand.has(RequestFlag::OnlyIfCached))
    }
}

/// What the local tier's find is worth.
enum Local<B> {
    Answer(Response<Body<B>>),
    /// An answer for now; the entry wants a refresh.
    Stale(Response<Body<B>>, Arc<Entry>),
    /// No answer, at most something to fall back on.
    Nothing(Option<Arc<Entry>>),
}

/// A buffer for the key on loan from the thread, so that a hit allocates none.
struct Scratch(Vec<u8>);

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Scratch {
    fn borrow() -> Self {
        Self(SCRATCH.take())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        SCRATCH.set(mem::take(&mut self.0));
    }
}
