//! One route's policy: what its layer decides by.

mod choices;

use std::{
    fmt,
    sync::{Arc, Once},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, Response, header, request, response};
use tokio::time::Instant;

pub use self::choices::{Fallback, Mode, OnDisconnect, RequestDirectives};
use crate::{
    early::Early,
    entry::Entry,
    exchange::Intent,
    flight::Limits,
    http::{
        cache_control, etag,
        negotiate::Offer,
        storable::{self, Rules},
    },
    key::{self, Digest, Key, KeyRules, Own},
    outcome::CacheOutcome,
    pace::Pace,
    switch::Switch,
    tags,
};

/// Everything a [`BufferLayer`](crate::BufferLayer) has been told.
#[derive(Clone)]
pub(crate) struct Policy {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) key_shown: KeyShown,
    pub(crate) mode: Mode,
    pub(crate) key: KeyRules,
    pub(crate) cookies: Cookies,
    pub(crate) authorization: Authorization,
    pub(crate) rules: Rules,
    pub(crate) jitter: f64,
    pub(crate) cache_if: Option<Predicate>,
    pub(crate) ranges: Ranges,
    pub(crate) heads: Heads,
    pub(crate) etags: Etags,
    pub(crate) offers: Vec<Offer>,
    pub(crate) request_directives: RequestDirectives,
    pub(crate) keep_for_validation: Duration,
    pub(crate) max_body: usize,
    pub(crate) max_variants: usize,
    pub(crate) wait_timeout: Duration,
    pub(crate) build_timeout: Duration,
    pub(crate) fallback: Vec<Fallback>,
    /// So many in the fleet, for one key, by those whose wait is over.
    pub(crate) extra_builds: u8,
    pub(crate) waiters: Limits,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) switch: Option<Switch>,
    pub(crate) exposure: Exposure,
    pub(crate) pace: Pace,
    pub(crate) early: Option<Early>,
    pub(crate) stale_after: Option<Duration>,
    /// So many requests before a response is stored.
    pub(crate) min_uses: u32,
    pub(crate) refresh_if: Option<RequestPredicate>,
    /// The tags of every entry.
    pub(crate) tags: Vec<Digest>,
    /// The tags of the entry that a request is answered from.
    pub(crate) tagger: Option<Tagger>,
    pub(crate) tag_fields: TagFields,
    /// Whether it has been said that requests with credentials bypass.
    pub(crate) told: Arc<Once>,
}

pub(crate) type Predicate = Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>;

pub(crate) type RequestPredicate = Arc<dyn Fn(&request::Parts) -> bool + Send + Sync>;

pub(crate) type Tagger = Arc<dyn Fn(&request::Parts) -> Vec<Digest> + Send + Sync>;

/// Where it is said what became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// In `Cache-Status`.
    Field,
    /// In an extension of the response too.
    Extension,
}

impl Exposure {
    pub(crate) fn expose<B>(self, response: &mut Response<B>) {
        if self == Self::Extension
            && let Some(outcome) = CacheOutcome::of(response.headers())
        {
            response.extensions_mut().insert(outcome);
        }
    }
}

/// What becomes of the fields of a response that list its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagFields {
    Strip,
    Forward,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            name: None,
            key_shown: KeyShown::No,
            mode: Mode::default(),
            key: KeyRules::default(),
            cookies: Cookies::Bypass,
            authorization: Authorization::Bypass,
            rules: Rules::default(),
            jitter: 0.05,
            cache_if: None,
            ranges: Ranges::Pass,
            heads: Heads::Themselves,
            etags: Etags::AsGiven,
            offers: Vec::new(),
            request_directives: RequestDirectives::Ignore,
            keep_for_validation: Duration::from_secs(3600),
            max_body: 4 * 1024 * 1024,
            max_variants: 16,
            wait_timeout: Duration::from_secs(5),
            build_timeout: Duration::from_secs(30),
            fallback: vec![Fallback::Stale, Fallback::Build],
            extra_builds: 1,
            waiters: Limits {
                per_flight: 10_000,
                in_all: 50_000,
            },
            on_disconnect: OnDisconnect::default(),
            switch: None,
            exposure: Exposure::Field,
            pace: Pace::default(),
            early: None,
            stale_after: None,
            min_uses: 1,
            refresh_if: None,
            tags: Vec::new(),
            tagger: None,
            tag_fields: TagFields::Strip,
            told: Arc::new(Once::new()),
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .field("key", &self.key)
            .field("max_body", &self.max_body)
            .field("wait_timeout", &self.wait_timeout)
            .field("build_timeout", &self.build_timeout)
            .field("fallback", &self.fallback)
            .field("on_disconnect", &self.on_disconnect)
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// Whether a request that no entry answers is for the inner service as it is.
    pub(crate) fn passes(&self, request: &request::Parts) -> bool {
        self.ranges == Ranges::Pass
            && request.method == Method::GET
            && request.headers.contains_key(header::RANGE)
    }

    /// Whether a stored tag is one that only this cache knows.
    pub(crate) fn made(&self, tag: &HeaderValue) -> bool {
        self.etags == Etags::Generated && etag::is_own(tag)
    }

    /// The method that a request is built with.
    pub(crate) fn build_method(&self, asked: &Method) -> Method {
        match (self.heads, asked) {
            (Heads::Fill, &Method::HEAD) => Method::GET,
            (_, asked) => asked.clone(),
        }
    }

    /// What a request asks of an entry, if that counts.
    pub(crate) fn demand(&self, request: &HeaderMap) -> Option<cache_control::RequestDirectives> {
        let counts = self.request_directives == RequestDirectives::Honour
            && (request.contains_key(header::CACHE_CONTROL)
                || request.contains_key(header::PRAGMA));
        counts.then(|| cache_control::RequestDirectives::of_request(request))
    }

    /// Says, once for each layer, that requests with credentials are not cached.
    pub(crate) fn tell_of_bypass(&self, credentials: &'static str) {
        self.told.call_once(|| {
            tracing::warn!(
                layer = self.name.as_deref(),
                credentials,
                "requests with credentials bypass this layer: key them, or allow it to ignore them"
            );
        });
    }

    /// Whether the answers say no more of themselves than `Cache-Status` does by default.
    #[inline]
    pub(crate) fn is_terse(&self) -> bool {
        self.key_shown == KeyShown::No && self.exposure == Exposure::Field
    }

    /// Whether every request bypasses.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.mode == Mode::Bypass || self.switch.as_ref().is_some_and(|switch| !switch.is_on())
    }

    /// Whether a request is one that renews what is stored.
    #[inline]
    pub(crate) fn intent(&self, request: &request::Parts) -> Intent {
        match &self.refresh_if {
            Some(renews) if renews(request) => Intent::Renew,
            _ => Intent::Answer,
        }
    }

    /// Whether a hit on a fresh entry is the one that refreshes it ahead of time.
    #[inline]
    pub(crate) fn is_early(&self, entry: &Entry, now: Instant) -> bool {
        self.early
            .is_some_and(|early| early.is_due(entry, now, fastrand::f64()))
    }

    /// What an entry for this request can be purged by, as far as the request tells.
    pub(crate) fn tags_of(&self, request: &request::Parts, resource: &Key) -> Arc<[Digest]> {
        let implied = tags::implied(self.key.target(request), &request.headers, resource);
        let own = self.tagger.as_ref().map(|tagger| tagger(request));
        let named = self.tags.iter().copied();
        implied
            .into_iter()
            .chain(named)
            .chain(own.into_iter().flatten())
            .collect()
    }

    /// Takes the fields that list tags off a response, unless they are for caches further on.
    pub(crate) fn strip_tags(&self, headers: &mut HeaderMap) {
        if self.tag_fields == TagFields::Strip {
            tags::strip(headers);
        }
    }

    /// Whether a stored or shared response with these fields may answer a request with this
    /// `Authorization`.
    pub(crate) fn opens(
        &self,
        headers: &HeaderMap,
        authorization: storable::Authorization,
    ) -> bool {
        storable::is_open_to(authorization, headers, &self.rules.targets)
    }

    /// Whether all cookies that a build sees are in its key.
    pub(crate) fn keys_cookies(&self) -> bool {
        self.cookies == Cookies::Keyed && !matches!(self.key.own, Own::Replaces(_))
    }

    /// Takes the cookies that are not in the key off a request that is going to be built.
    pub(crate) fn strip_cookies(&self, headers: &mut HeaderMap) {
        if self.cookies != Cookies::Keyed {
            return;
        }
        let keyed = |name: &[u8]| {
            self.key
                .cookies
                .iter()
                .any(|known| known.as_bytes() == name)
        };
        let kept = key::cookies(headers)
            .filter(|(name, _)| keyed(name))
            .map(|(name, value)| [name, value].concat())
            .collect::<Vec<_>>()
            .join(&b"; "[..]);
        headers.remove(header::COOKIE);
        if let (false, Ok(kept)) = (kept.is_empty(), HeaderValue::from_bytes(&kept)) {
            headers.insert(header::COOKIE, kept);
        }
    }
}

/// What a range request does on a cold key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranges {
    Pass,
    /// Builds the whole, and gets its part of it.
    Fill,
}

/// Whether `Cache-Status` names the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyShown {
    No,
    Digest,
}

/// What a HEAD on a cold key builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heads {
    /// A response to HEAD, which is no entry.
    Themselves,
    /// What a GET would: it is stored, and the HEAD gets its fields.
    Fill,
}

/// Where entity tags come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Etags {
    AsGiven,
    /// Made from the body of what is stored without one.
    Generated,
}

/// What a `Cookie` on the request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cookies {
    Bypass,
    /// Keyed by the named ones; the others never reach the build.
    Keyed,
    /// As if they were not there.
    Ignored,
}

/// What an `Authorization` on the request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authorization {
    Bypass,
    /// RFC 9111 section 3.5: shared only if the response says so.
    AsDeclared,
}
