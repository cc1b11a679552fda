//! Which requests may be answered from an entry, and what is kept of one that waits.

use http::{HeaderMap, Method, header, request::Parts};
use http_body::Body;
use tokio::time::Instant;

use crate::{
    answer::Wanted,
    entry::{Entry, Worth},
    http::{
        cache_control::{RequestDirectives, RequestFlag},
        conditional, storable,
    },
    key::{Class, Key, Keyed, Unkeyable},
    policy::{Authorization, Cookies, Policy},
    status::{End, Forward, Outcome},
    survey::Special,
};

/// What a request's answer depends on, once the request itself has gone into a build.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The build's: a HEAD may be built as a GET.
    pub(crate) method: Method,
    /// The client's.
    pub(crate) client_method: Method,
    pub(crate) errand: Errand,
    pub(crate) circle: Circle,
    pub(crate) headers: HeaderMap,
    pub(crate) authorization: storable::Authorization,
    pub(crate) arrived: Instant,
    /// What it asks of an entry, where the layer honours that.
    pub(crate) demand: Option<RequestDirectives>,
}

/// What is done for a request that no local entry answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// An entry answers it, or a build.
    Build,
    /// What the shared tier has answers it; else it passes to the inner service as it is.
    Look,
}

/// With whom it shares what is remembered of builds, and where a shared tier elects who builds,
/// flights: those who take what there is neither wait for those who don't, nor hear from them that a
/// fresh entry could not be renewed. Without a shared tier all are one circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Circle {
    Everybody,
    /// Those who want a new entry though there is a fresh one.
    Renewals,
    /// Refreshes ahead of time, in which nobody waits.
    EarlyRefreshes,
}

impl Asked {
    pub(crate) fn wanted(&self) -> Wanted<'_> {
        Wanted {
            method: &self.client_method,
            special: Some(&self.headers),
        }
    }

    /// Whether no response that is made for it is of any use to it (RFC 9111 section 5.2.1.7).
    pub(crate) fn wants_an_entry_or_nothing(&self) -> bool {
        self.demand
            .is_some_and(|demand| demand.has(RequestFlag::OnlyIfCached))
    }

    /// Whether it takes the entry as it is.
    pub(crate) fn takes(&self, entry: &Entry, now: Instant) -> bool {
        self.demand.is_none_or(|demand| entry.suits(&demand, now))
    }

    /// Why it goes to the inner service: there is at most a `stale` entry for its `key`.
    pub(crate) fn reason(&self, stale: Option<&Entry>, (resource, key): (&Key, &Key)) -> Forward {
        match stale.map(|entry| entry.worth(Instant::now())) {
            Some(Worth::Fresh) if self.demand.is_some() => Forward::Request,
            Some(_) => Forward::Stale,
            None if key == resource => Forward::Miss,
            None => Forward::VaryMiss,
        }
    }

    /// `key` for requests of this kind: what becomes of a HEAD, or of a look, says nothing of GETs.
    pub(crate) fn key_in_class(&self, key: &Key) -> Key {
        self.key_in(self.circle, key)
    }

    /// The same, whatever the circle.
    pub(crate) fn key_of_all(&self, key: &Key) -> Key {
        self.key_in(Circle::Everybody, key)
    }

    fn key_in(&self, circle: Circle, key: &Key) -> Key {
        match (self.errand, &self.method, circle) {
            (Errand::Look, ..) => key.in_class(Class::Look),
            (Errand::Build, &Method::HEAD, _) => key.in_class(Class::Head),
            (Errand::Build, _, Circle::Renewals) => key.in_class(Class::Renewal),
            (Errand::Build, _, Circle::EarlyRefreshes) => key.in_class(Class::Early),
            (Errand::Build, _, Circle::Everybody) => key.clone(),
        }
    }
}

/// Whether a request takes part at all; if not, what `Cache-Status` says of it.
#[inline]
pub(crate) fn eligible<B: Body>(
    parts: &Parts,
    body: &B,
    special: Special,
    policy: &Policy,
) -> Result<(), Outcome> {
    if policy.is_off() {
        return Err(Outcome::bypass("off"));
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Err(Outcome::forward(Forward::Method, End::Unstored));
    }
    // RFC 9110 section 9.3.1: content on a GET has no defined meaning, so its answer is its own.
    if !body.is_end_stream() && body.size_hint().exact() != Some(0) {
        return Err(Outcome::bypass("content"));
    }
    special.among(&parts.headers).map_or(Ok(()), eligible_by)
}

fn eligible_by(headers: &HeaderMap) -> Result<(), Outcome> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(Outcome::bypass("content"));
    }
    if headers.contains_key(header::UPGRADE) {
        return Err(Outcome::bypass("upgrade"));
    }
    if conditional::is_for_origin(headers) {
        return Err(Outcome::bypass("condition"));
    }
    Ok(())
}

/// Whether the credentials that a request carries keep it from being cached, now that its key is
/// known.
#[inline]
pub(crate) fn admitted(
    special: Option<&HeaderMap>,
    keyed: Keyed,
    policy: &Policy,
) -> Result<storable::Authorization, Outcome> {
    let Some(headers) = special else {
        return Ok(storable::Authorization::Absent);
    };
    let identified = keyed == Keyed::Credentials;
    let keyed_by = |name| identified || policy.key.headers.contains(&name);
    let cookies = policy.cookies == Cookies::Bypass && headers.contains_key(header::COOKIE);
    if cookies && !keyed_by(header::COOKIE) {
        policy.tell_of_bypass("cookie");
        return Err(Outcome::bypass("cookie"));
    }
    match (
        headers.contains_key(header::AUTHORIZATION),
        policy.authorization,
    ) {
        (false, _) => Ok(storable::Authorization::Absent),
        (true, _) if keyed_by(header::AUTHORIZATION) => Ok(storable::Authorization::Keyed),
        (true, Authorization::AsDeclared) => Ok(storable::Authorization::Unkeyed),
        (true, Authorization::Bypass) => {
            policy.tell_of_bypass("authorization");
            Err(Outcome::bypass("authorization"))
        }
    }
}

impl From<Unkeyable> for Outcome {
    fn from(reason: Unkeyable) -> Self {
        Self::bypass(match reason {
            Unkeyable::Authority => "authority",
            Unkeyable::TooLong => "key-length",
            Unkeyable::Empty => "key-empty",
            Unkeyable::Closure => "no-key",
        })
    }
}
