//! What a response is for: an entry, the flight alone, or its own request alone.

use http::{HeaderMap, Method, StatusCode, header, response::Parts};
use tokio::time::Instant;

use crate::{
    asked::Asked,
    control,
    entry::{Head, Lifetime},
    http::{
        fields,
        freshness::{Freshness, Source},
        storable::{self, Judgement, Lesson, Reason, RequestFacts, Withheld},
        vary::Vary,
    },
    policy::{Etags, Mode, Policy},
    time,
};

/// A response with more fields, of which a map holds 24 576, is passed on as it is.
const MOST_FIELDS: usize = 10_000;

/// What happens to a response.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Its own request's alone.
    Alone(Alone),
    /// Read to its end, for those it fits.
    Together(Box<Judged>),
}

/// Why a response is for its own request alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    Declared(Reason),
    /// The layer's predicate said no.
    Predicate,
    /// There is hardly room for a field more.
    Crowded,
}

/// A response for more than its own request.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) head: Head,
    pub(crate) vary: Vary,
    pub(crate) fate: Fate,
}

/// What becomes of a complete response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Stored(Lifetime),
    /// Given to those who wait for it, with the reason why it is not stored.
    Shared(&'static str),
    /// A server error, given to those who wait, and remembered for a moment.
    Failed(Sharing),
}

/// Whether a failure's own response may be shown to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Response,
    Status(StatusCode),
}

impl Alone {
    /// Whether the next requests need not wait for each other (RFC-free: what nginx and Varnish
    /// call hit-for-miss).
    pub(crate) fn sets_all_free(self) -> bool {
        match self {
            Self::Declared(reason) => reason.lesson() == Lesson::Uncacheable,
            Self::Predicate | Self::Crowded => false,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Declared(reason) => reason.as_str(),
            Self::Predicate => "predicate",
            Self::Crowded => "fields",
        }
    }
}

impl Judged {
    /// Given to those who wait, and not stored after all.
    pub(crate) fn withhold(&mut self, reason: &'static str) {
        if let Fate::Stored(_) = self.fate {
            self.fate = Fate::Shared(reason);
        }
    }

    /// Whether it is to get an entity tag of ours.
    pub(crate) fn wants_tag(&self, policy: &Policy) -> bool {
        policy.etags == Etags::Generated
            && matches!(self.fate, Fate::Stored(_))
            && self.head.status.is_success()
            && !self.head.headers.contains_key(header::ETAG)
    }

    /// Whether it answers only those who asked before it was there: it is not stored, or may not be
    /// used again without validation.
    pub(crate) fn is_of_the_moment(&self) -> bool {
        match self.fate {
            Fate::Shared(_) => true,
            Fate::Stored(lifetime) => lifetime.fresh_for().is_zero(),
            Fate::Failed(_) => false,
        }
    }

    /// Whether those who wait may see the response while it grows.
    pub(crate) fn is_shareable(&self) -> bool {
        matches!(self.fate, Fate::Stored(_) | Fate::Shared(_))
    }
}

/// Judges the response to a build that began at `began`.
pub(crate) fn response(parts: &Parts, asked: &Asked, policy: &Policy, began: Instant) -> Plan {
    if parts.headers.len() > MOST_FIELDS {
        return Plan::Alone(Alone::Crowded);
    }
    let received = Instant::now();
    let facts = RequestFacts {
        authorization: asked.authorization,
        delay: received - began,
    };
    let now = time::wall_clock();
    let steered = control::steered(parts, &policy.rules.targets);
    let judged = steered.as_ref().unwrap_or(parts);
    let judgement = storable::judge(&facts, judged, &policy.rules, now);
    let together = |fate, withheld: &Withheld, age| {
        let mut headers = fields::for_storing(&parts.headers, withheld);
        fields::date(&mut headers, now);
        let head = Head {
            status: parts.status,
            headers,
            variant: None,
            age,
        };
        let vary = vary(&parts.headers, policy);
        Plan::Together(Box::new(Judged { head, vary, fate }))
    };
    let plan = match judgement {
        Judgement::Refuse(reason) => return Plan::Alone(Alone::Declared(reason)),
        Judgement::Fail(None) => together(Fate::Failed(Sharing::Response), &Withheld::default(), 0),
        Judgement::Fail(Some(_)) => together(
            Fate::Failed(Sharing::Status(parts.status)),
            &Withheld::default(),
            0,
        ),
        Judgement::Share(reason, withheld) => {
            let reason = kept_by(policy.mode).err().unwrap_or(reason.as_str());
            together(Fate::Shared(reason), &withheld, 0)
        }
        Judgement::Store(freshness, withheld) => {
            let freshness = steered_freshness(freshness, parts, policy);
            let age = freshness.initial_age.as_secs();
            let fate = match (kept_by(policy.mode), &asked.method) {
                (_, &Method::HEAD) => Fate::Shared("head"),
                (Err(reason), _) => Fate::Shared(reason),
                (Ok(()), _) => Fate::Stored(lifetime(&freshness, parts, policy, received)),
            };
            together(fate, &withheld, age)
        }
    };
    match (&policy.cache_if, &plan) {
        (Some(predicate), Plan::Together(judged)) if judged.is_shareable() && !predicate(parts) => {
            Plan::Alone(Alone::Predicate)
        }
        _ => plan,
    }
}

/// `freshness` as the handler has it, or, where only the layer's own lifetime counts, a little less of it.
fn steered_freshness(mut freshness: Freshness, parts: &Parts, policy: &Policy) -> Freshness {
    if let Some(ttl) = control::ttl_of(parts) {
        freshness.lifetime = freshness.initial_age.saturating_add(ttl);
    }
    if freshness.source == Source::Route {
        let jitter = 1.0 - policy.jitter * fastrand::f64();
        freshness.lifetime = freshness.lifetime.mul_f64(jitter);
    }
    freshness
}

/// Whether a layer in this mode keeps anything, or why not.
fn kept_by(mode: Mode) -> Result<(), &'static str> {
    match mode {
        Mode::Cache => Ok(()),
        Mode::Coalesce | Mode::Bypass => Err("coalesce-only"),
    }
}

/// What the response varies by beyond its key.
fn vary(headers: &HeaderMap, policy: &Policy) -> Vary {
    let vary = Vary::of_response(headers);
    if policy.keys_cookies() {
        // The build saw the cookies that are in the key, and no others.
        vary.without(&header::COOKIE)
    } else {
        vary
    }
}

fn lifetime(freshness: &Freshness, parts: &Parts, policy: &Policy, received: Instant) -> Lifetime {
    let lifetime = Lifetime::of(freshness, received);
    if storable::has_validator(parts) {
        lifetime.kept_for(policy.keep_for_validation)
    } else {
        lifetime
    }
}

/// The length that a response declares for the body it comes with.
pub(crate) fn declared_length(parts: &Parts, asked: &Asked) -> Option<u64> {
    if asked.method == Method::HEAD {
        return None;
    }
    parts
        .headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}
