//! [`BufferService`]: classify, key, local hit; else the exchange.

use std::{
    cell::Cell,
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, Request, Response, request::Parts};
use tokio::time::Instant;
use tower_service::Service;

use crate::{
    answer::{self, Wanted},
    asked::{self, Asked, Circle, Errand},
    body::{Body, BoxError},
    cache::Cache,
    entry::{Entry, Present, Worth},
    exchange::{Building, Exchange, Intent, Parcel},
    future::{Passing, ResponseFuture},
    http::{
        cache_control::{RequestDirectives, RequestFlag},
        fields, storable,
    },
    invalidation::Invalidation,
    key::{Digest, Key},
    policy::{KeyShown, Mode, Policy},
    status::{End, Forward, Outcome},
    survey::{Special, Survey},
    telling::Telling,
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
        let facts = match self.classify(&mut parts, &body, &mut key.0) {
            Ok(facts) => facts,
            Err(outcome) => return self.bypass(parts, body, outcome),
        };
        match self.look(&parts.headers, &facts, &mut key.0) {
            Local::Answer(present) => match facts.wanted(&parts) {
                wanted if wanted.is_whole() && self.policy.is_terse() => {
                    ResponseFuture::hit(present)
                }
                wanted => {
                    let response = answer::hit(&present, wanted);
                    ResponseFuture::ready(self.telling(&key.0, &facts).on(response))
                }
            },
            Local::Closed => {
                let outcome = Outcome::forward(Forward::Request, End::Unstored);
                self.bypass(parts, body, outcome.because("authorization"))
            }
            local => self.go_on((parts, body), &key.0, &facts, local),
        }
    }
}

impl<S> BufferService<S> {
    #[inline(never)]
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
            policy: Arc::clone(&self.policy),
        };
        let request = Request::from_parts(parts, body);
        ResponseFuture::bypass(self.inner.clone(), request, passing)
    }

    /// Decides whether the request takes part, and writes its key.
    #[inline]
    fn classify<ReqBody: http_body::Body>(
        &self,
        parts: &mut Parts,
        body: &ReqBody,
        key: &mut Vec<u8>,
    ) -> Result<Facts, Outcome> {
        let mut survey = Survey::of(&parts.headers);
        asked::eligible(parts, body, survey.special, &self.policy)?;
        if !self.policy.offers.is_empty() {
            self.reduce(&mut parts.headers);
            survey = Survey::of(&parts.headers);
        }
        let special = survey.special;
        let demand = special
            .among(&parts.headers)
            .and_then(|headers| self.policy.demand(headers))
            .map(Box::new);
        if demand
            .as_deref()
            .is_some_and(|demand| demand.has(RequestFlag::NoStore))
        {
            return Err(Outcome::bypass("request-no-store"));
        }
        let keyed = self.policy.key.write(parts, &survey, key)?;
        Ok(Facts {
            special,
            authorization: asked::admitted(special.among(&parts.headers), keyed, &self.policy)?,
            demand,
            intent: self.policy.intent(parts),
            primary: key.len(),
            now: Instant::now(),
        })
    }

    /// Leaves of what a client accepts only what makes a difference here.
    fn reduce(&self, headers: &mut HeaderMap) {
        for offer in &self.policy.offers {
            offer.reduce(headers);
        }
    }

    /// Looks the request up in the local tier.
    #[inline]
    fn look(&self, request: &HeaderMap, facts: &Facts, key: &mut Vec<u8>) -> Local {
        let found = match self.policy.mode {
            Mode::Cache => self.cache.find(key, request, facts.now),
            Mode::Coalesce | Mode::Bypass => None,
        };
        match found {
            Some(present) => self.weigh(present, facts),
            None => Local::Nothing(None),
        }
    }

    fn weigh(&self, present: Arc<Present>, facts: &Facts) -> Local {
        let (entry, worth) = (&present.entry, present.worth);
        if facts.authorization != storable::Authorization::Absent
            && !self.policy.opens(&entry.head.headers, facts.authorization)
        {
            // It is not meant for requests with credentials.
            return match worth {
                Worth::Fresh => Local::Closed,
                _ => Local::Nothing(None),
            };
        }
        let suits = |demand: &RequestDirectives| entry.suits(demand, facts.now);
        let serves = facts.intent == Intent::Answer && self.cache.trusts(entry, facts.now);
        match worth {
            _ if !(serves && facts.demand.as_deref().is_none_or(suits)) => {
                Local::Nothing(Some(Arc::clone(entry)))
            }
            Worth::Fresh if self.policy.is_early(entry, facts.now) => {
                self.cache.count().hit();
                Local::Stale(present)
            }
            Worth::Fresh => {
                self.cache.count().hit();
                Local::Answer(present)
            }
            Worth::StaleWhileRevalidate => {
                self.cache.count().stale();
                Local::Stale(present)
            }
            // It asked for no better.
            Worth::StaleIfError if facts.demand.is_some() => {
                self.cache.count().stale();
                Local::Answer(present)
            }
            Worth::StaleIfError | Worth::Nothing => Local::Nothing(Some(Arc::clone(entry))),
        }
    }

    /// What is no hit: refreshes, passes on, or starts the exchange. (Not inlined: an exchange is
    /// large, and would make the stack frame of every hit as large.)
    #[inline(never)]
    fn go_on<ReqBody, ResBody>(
        &self,
        (parts, body): (Parts, ReqBody),
        key: &[u8],
        facts: &Facts,
        local: Local,
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
        let telling = self.telling(key, facts);
        let stale = match local {
            Local::Stale(present) if !self.is_building(&parts, key, facts.primary) => {
                let response = answer::hit(&present, facts.wanted(&parts));
                let response = telling.on(response);
                let facts = &Facts {
                    intent: Intent::Renew,
                    ..facts.clone()
                };
                if !fields::hides_fields(&parts.headers) {
                    let stale = Some(Arc::clone(&present.entry));
                    let exchange = self.exchange((parts, body), key, facts, stale);
                    exchange.refresh();
                }
                return ResponseFuture::ready(response);
            }
            Local::Answer(present) | Local::Stale(present) => Some(Arc::clone(&present.entry)),
            Local::Nothing(stale) => stale,
            Local::Closed => None,
        };
        if self.is_building(&parts, key, facts.primary) {
            return self.bypass(parts, body, Outcome::bypass("nested"));
        }
        if fields::hides_fields(&parts.headers) {
            return self.bypass(parts, body, Outcome::bypass("connection"));
        }
        let only_an_entry = facts.wants_an_entry_or_nothing();
        let builds_nothing = only_an_entry || self.policy.passes(&parts);
        if builds_nothing && self.is_shared() {
            let exchange = self.exchange((parts, body), key, facts, stale);
            return ResponseFuture::exchange(telling.on_all(exchange.look()));
        }
        if only_an_entry {
            let response = answer::only_if_cached(Wanted::of(&parts));
            return ResponseFuture::ready(telling.on(response));
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
        ResponseFuture::exchange(telling.on_all(exchange.run()))
    }

    /// Whether other processes have part in what is stored.
    fn is_shared(&self) -> bool {
        self.policy.mode == Mode::Cache && self.cache.shared().is_some()
    }

    /// What the answer says of itself beyond the default.
    fn telling(&self, key: &[u8], facts: &Facts) -> Telling {
        let resource = key.get(..facts.primary).unwrap_or_default();
        Telling {
            key: match self.policy.key_shown {
                KeyShown::Digest => Some(Digest::of(resource)),
                KeyShown::No => None,
            },
            exposure: self.policy.exposure,
        }
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
        facts: &Facts,
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
            circle: match facts.intent {
                Intent::Renew if self.is_shared() => Circle::Renewals,
                Intent::Renew | Intent::Answer => Circle::Everybody,
            },
            headers: parts.headers.clone(),
            authorization: facts.authorization,
            arrived: facts.now,
            demand: facts.demand.as_deref().copied(),
        };
        let resource = Key::new(key.get(..facts.primary).unwrap_or_default());
        Exchange {
            inner: self.inner.clone(),
            cache: self.cache.clone(),
            policy: Arc::clone(&self.policy),
            key: Key::new(key),
            tags: self.policy.tags_of(&parts, &resource),
            resource,
            asked,
            intent: facts.intent,
            parcel: Parcel::new(Request::from_parts(parts, body)),
            stale,
        }
    }
}

/// What else of a request decides about an entry.
#[derive(Clone)]
struct Facts {
    special: Special,
    authorization: storable::Authorization,
    /// Boxed, since few have any, and all move it.
    demand: Option<Box<RequestDirectives>>,
    intent: Intent,
    /// How much of the key names the resource; the rest names its variant.
    primary: usize,
    now: Instant,
}

impl Facts {
    fn wants_an_entry_or_nothing(&self) -> bool {
        let demand = self.demand.as_deref();
        demand.is_some_and(|demand| demand.has(RequestFlag::OnlyIfCached))
    }

    fn wanted<'a>(&self, parts: &'a Parts) -> Wanted<'a> {
        Wanted {
            method: &parts.method,
            special: self.special.among(&parts.headers),
        }
    }
}

/// What the local tier's find is worth.
enum Local {
    Answer(Arc<Present>),
    /// An answer for now; the entry wants a refresh, stale or not.
    Stale(Arc<Present>),
    /// No answer, at most something to fall back on.
    Nothing(Option<Arc<Entry>>),
    /// A fresh entry that is not for this request.
    Closed,
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
