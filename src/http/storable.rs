//! May a response be stored (RFC 9111 section 3), and may it be shared with those who wait for it?
//!
//! The two questions have separate answers. [`judge`] runs once, when the head of a response has
//! arrived, and says which of four things happens to it: it is stored, it is given to the waiters
//! and forgotten, it belongs to its own request alone, or it is a failure.

use std::time::{Duration, SystemTime};

use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{CONTENT_RANGE, ETAG, LAST_MODIFIED, SET_COOKIE},
    response::Parts,
};

use super::{
    cache_control::{Delta, Directives, Flag, Scope},
    content,
    freshness::{Freshness, Heuristic, Revalidation, Source, date},
    targeted::Policy,
    vary::Vary,
};

/// What the judgement needs to know of the request that was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RequestFacts {
    pub(crate) authorization: Authorization,
    /// How long the response took to arrive.
    pub(crate) delay: Duration,
}

/// The request's `Authorization`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Authorization {
    #[default]
    Absent,
    /// The identity is part of the key: nobody else can meet the entry.
    Keyed,
    /// RFC 9111 section 3.5 applies.
    Unkeyed,
}

/// What a layer allows. The default is the strict one.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// The target list of RFC 9213, first match first.
    pub(crate) targets: Vec<HeaderName>,
    pub(crate) ttl: Ttl,
    pub(crate) heuristic: Heuristic,
    pub(crate) stale_while_revalidate: Duration,
    pub(crate) stale_if_error: Duration,
    pub(crate) statuses: Statuses,
    pub(crate) cookies: Cookies,
    pub(crate) nonces: Nonces,
    /// Fields of each response's own.
    pub(crate) personal: Vec<HeaderName>,
}

/// The lifetime of responses that state none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ttl {
    /// For 200, 203, 301 and 308.
    pub(crate) default: Option<Duration>,
    pub(crate) by_status: Vec<(StatusCode, Duration)>,
}

/// Which statuses may be stored with explicit freshness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Statuses {
    /// Any but server errors.
    #[default]
    Strict,
    /// Server errors and unknown ones too, as RFC 9111 section 3 permits.
    Permissive,
}

/// What a `Set-Cookie` does to the response that carries it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Cookies {
    #[default]
    Refuse,
    /// Stored and shared without it.
    Strip,
    /// Stored and shared with it, as RFC 9111 section 7.3 permits.
    Keep,
}

/// Whether a Content-Security-Policy with a nonce may be stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Nonces {
    #[default]
    Refuse,
    Allow,
}

/// What happens to a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Stored, and shared with the waiters it fits.
    Store(Freshness, Withheld),
    /// Shared with the waiters it fits, and not stored.
    Share(Unstored, Withheld),
    /// For the request that caused it alone.
    Refuse(Reason),
    /// A server error. It may be shared as it is unless it has a reason of its own not to be.
    Fail(Option<Reason>),
}

/// Fields that only the request that caused the response may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Withheld(Vec<HeaderName>);

/// Why a shareable response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unstored {
    NoFreshness,
    /// Stale on arrival, with nothing to validate it by and no stale window.
    Stale,
}

/// Why a response is for its own request alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    NoStore,
    Private,
    NoCache,
    SetCookie,
    VaryStar,
    CspNonce,
    Streaming,
    MustUnderstand,
    Authorization,
    Partial,
    NotModified,
    Informational,
    Status,
}

/// What is learnt from a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// The response declares itself uncacheable: the next ones need not wait for each other.
    Uncacheable,
    /// It says nothing of the next response.
    Nothing,
}

/// Judges a response received at `now`.
pub(crate) fn judge(
    request: &RequestFacts,
    response: &Parts,
    rules: &Rules,
    now: SystemTime,
) -> Judgement {
    let policy = Policy::of_response(&response.headers, &rules.targets);
    let reason = refusal(request, response, rules, &policy.directives);
    let failed = response.status.is_server_error();
    if failed && (rules.statuses == Statuses::Strict || reason.is_some()) {
        return Judgement::Fail(reason);
    }
    if let Some(reason) = reason {
        return Judgement::Refuse(reason);
    }
    let head = (response.status, &response.headers);
    let freshness = Freshness::of_response(head, &policy, rules, (request.delay, now));
    let withheld = Withheld::of(&policy.directives, rules);
    match unstored(response, &freshness) {
        None => Judgement::Store(freshness, withheld),
        Some(_) if freshness.revalidation == Revalidation::Always => {
            Judgement::Refuse(Reason::NoCache)
        }
        Some(_) if failed => Judgement::Fail(None),
        Some(Unstored::NoFreshness) if is_personal(response.status) => {
            Judgement::Refuse(Reason::Status)
        }
        Some(why) => Judgement::Share(why, withheld),
    }
}

/// What forbids both storing and sharing.
fn refusal(
    request: &RequestFacts,
    response: &Parts,
    rules: &Rules,
    directives: &Directives,
) -> Option<Reason> {
    let headers = &response.headers;
    let has = |flag| directives.has(flag);
    let understood = is_understood(response.status);
    if let Some(reason) = by_status(response, rules) {
        return Some(reason);
    }
    let table = [
        (content::is_streaming(headers), Reason::Streaming),
        (
            has(Flag::MustUnderstand) && !understood,
            Reason::MustUnderstand,
        ),
        (
            has(Flag::NoStore) && !has(Flag::MustUnderstand),
            Reason::NoStore,
        ),
        (directives.private == Scope::All, Reason::Private),
        (
            headers.contains_key(SET_COOKIE) && rules.cookies == Cookies::Refuse,
            Reason::SetCookie,
        ),
        (Vary::of_response(headers) == Vary::Any, Reason::VaryStar),
        (
            rules.nonces == Nonces::Refuse && content::has_nonce(headers),
            Reason::CspNonce,
        ),
        (
            request.authorization == Authorization::Unkeyed && !permits_authorization(directives),
            Reason::Authorization,
        ),
    ];
    table
        .into_iter()
        .find_map(|(applies, reason)| applies.then_some(reason))
}

/// The statuses that are never stored, whatever they say.
///
/// 206 and 304 are parts of an exchange this cache does not combine; a `Content-Range` elsewhere
/// has no meaning (RFC 9110 section 14.4), but a strict layer does not trust it; 428, 429, 431 and
/// 511 must not be stored (RFC 6585).
fn by_status(response: &Parts, rules: &Rules) -> Option<Reason> {
    match response.status.as_u16() {
        100..=199 => Some(Reason::Informational),
        206 | 416 => Some(Reason::Partial),
        304 => Some(Reason::NotModified),
        428 | 429 | 431 | 511 => Some(Reason::Status),
        _ if rules.statuses == Statuses::Strict && response.headers.contains_key(CONTENT_RANGE) => {
            Some(Reason::Partial)
        }
        _ => None,
    }
}

/// Why storing would be of no use, or may not be done for want of a lifetime.
fn unstored(response: &Parts, freshness: &Freshness) -> Option<Unstored> {
    let validated = has_validator(response);
    let useful = !freshness.usable().is_zero() || validated;
    match (freshness.revalidation, freshness.source) {
        (Revalidation::Always, _) if validated => None,
        (_, Source::Unstated) => Some(Unstored::NoFreshness),
        (Revalidation::Always, _) => Some(Unstored::Stale),
        _ if useful => None,
        _ => Some(Unstored::Stale),
    }
}

pub(crate) fn has_validator(response: &Parts) -> bool {
    response.headers.contains_key(ETAG) || date(&response.headers, &LAST_MODIFIED).is_some()
}

/// Whether a response with these fields may answer a request with this `Authorization`.
///
/// RFC 9111 section 3.5 restricts what is stored of such a request. What was stored of an anonymous
/// one it lets answer anybody; we ask for the same permission then, since a page made for nobody is
/// not what somebody has asked for.
pub(crate) fn is_open_to(
    authorization: Authorization,
    headers: &HeaderMap,
    targets: &[HeaderName],
) -> bool {
    authorization != Authorization::Unkeyed
        || permits_authorization(&Policy::of_response(headers, targets).directives)
}

/// RFC 9111 section 3.5.
fn permits_authorization(directives: &Directives) -> bool {
    directives.has(Flag::Public)
        || directives.has(Flag::MustRevalidate)
        || matches!(directives.s_maxage, Delta::Seconds(_))
}

/// The statuses that RFC 9110 section 15.1 defines as heuristically cacheable, save 206.
pub(crate) fn heuristically_cacheable(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Final statuses of RFC 9110 section 15 whose caching requirements are implemented here.
fn is_understood(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200..=205 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505
    )
}

/// Statuses that answer who asked rather than what was asked.
fn is_personal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 407 | 408 | 421 | 425)
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            targets: vec![HeaderName::from_static("cdn-cache-control")],
            ttl: Ttl::default(),
            heuristic: Heuristic::default(),
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            statuses: Statuses::default(),
            cookies: Cookies::default(),
            nonces: Nonces::default(),
            personal: Vec::new(),
        }
    }
}

impl Ttl {
    pub(crate) fn of(&self, status: StatusCode) -> Option<Duration> {
        let named = self
            .by_status
            .iter()
            .rev()
            .find(|(named, _)| *named == status);
        named.map(|(_, ttl)| *ttl).or_else(|| {
            let applies = matches!(status.as_u16(), 200 | 203 | 301 | 308);
            self.default.filter(|_| applies)
        })
    }
}

impl Withheld {
    fn of(directives: &Directives, rules: &Rules) -> Self {
        let mut fields = Vec::new();
        fields.extend_from_slice(directives.no_cache.fields());
        fields.extend_from_slice(directives.private.fields());
        fields.extend_from_slice(&rules.personal);
        if rules.cookies == Cookies::Strip {
            fields.push(SET_COOKIE);
        }
        Self(fields)
    }

    pub(crate) fn contains(&self, field: &HeaderName) -> bool {
        self.0.contains(field)
    }
}

impl Unstored {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoFreshness => "no-freshness",
            Self::Stale => "stale",
        }
    }
}

impl Reason {
    /// The label in `Cache-Status`, metrics and logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::NoCache => "no-cache",
            Self::SetCookie => "set-cookie",
            Self::VaryStar => "vary-star",
            Self::CspNonce => "csp-nonce",
            Self::Streaming => "streaming",
            Self::MustUnderstand => "must-understand",
            Self::Authorization => "authorization",
            Self::Partial => "partial",
            Self::NotModified => "not-modified",
            Self::Informational => "informational",
            Self::Status => "status",
        }
    }

    pub(crate) fn lesson(self) -> Lesson {
        match self {
            Self::NoStore
            | Self::Private
            | Self::NoCache
            | Self::SetCookie
            | Self::VaryStar
            | Self::CspNonce
            | Self::Streaming => Lesson::Uncacheable,
            Self::MustUnderstand
            | Self::Authorization
            | Self::Partial
            | Self::NotModified
            | Self::Informational
            | Self::Status => Lesson::Nothing,
        }
    }
}

#[cfg(test)]
mod tests;
