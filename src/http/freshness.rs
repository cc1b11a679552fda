//! How long a response is fresh (RFC 9111 section 4.2), how old it arrived, and how stale it may
//! be served (RFC 5861).

use std::time::{Duration, SystemTime};

use http::{
    HeaderMap, StatusCode,
    header::{AGE, DATE, EXPIRES, HeaderName, LAST_MODIFIED},
};

use super::{
    cache_control::{
        Delta, Directives, Flag, MAX_DELTA, RequestDirectives, RequestFlag, Scope, delta_seconds,
    },
    storable::{Rules, heuristically_cacheable},
    targeted::{Origin, Policy},
};

/// What an entry's instants are computed from, once, when it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Freshness {
    pub(crate) source: Source,
    /// The freshness lifetime, counted from when the response was generated.
    pub(crate) lifetime: Duration,
    /// The age at reception (RFC 9111 section 4.2.3).
    pub(crate) initial_age: Duration,
    /// Zero where serving stale is prohibited.
    pub(crate) stale_while_revalidate: Duration,
    /// Zero where serving stale is prohibited.
    pub(crate) stale_if_error: Duration,
    pub(crate) revalidation: Revalidation,
}

/// Where the lifetime comes from, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    SharedMaxAge,
    MaxAge,
    Expires,
    /// The layer's own rule: the only lifetime that may be jittered.
    Route,
    Heuristic,
    /// None stated: stored only because every use is validated.
    Unstated,
}

/// When an entry must be validated before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revalidation {
    /// Once it is stale; the stale windows apply.
    WhenStale,
    /// Once it is stale, and never served stale: `must-revalidate`, `proxy-revalidate`, `s-maxage`
    /// (RFC 9111 section 4.2.4).
    NeverStale,
    /// Before every use: `no-cache`.
    Always,
}

/// Whether, and for how long, a lifetime is derived from `Last-Modified` (RFC 9111 section 4.2.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Heuristic {
    #[default]
    Off,
    /// A tenth of the time since the last modification, up to `cap`.
    LastModified { cap: Duration },
}

/// An entry's state when a request with directives meets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    FreshFor(Duration),
    StaleSince(Duration),
}

impl Freshness {
    /// Computes the freshness of a response received at `now`.
    ///
    /// `delay` is the time the response took; it counts where an upstream cache states an `Age`.
    pub(crate) fn of_response(
        (status, headers): (StatusCode, &HeaderMap),
        policy: &Policy,
        rules: &Rules,
        (delay, now): (Duration, SystemTime),
    ) -> Self {
        let date = date(headers, &DATE).unwrap_or(now);
        let (source, lifetime) = explicit(headers, policy, date)
            .or_else(|| rules.ttl.of(status).map(|ttl| (Source::Route, ttl)))
            .or_else(|| heuristic(status, headers, (policy, rules), date))
            .unwrap_or((Source::Unstated, Duration::ZERO));
        let revalidation = Revalidation::of(&policy.directives);
        let window = |stated: Delta, default: Duration| match revalidation {
            Revalidation::WhenStale => stated.seconds().unwrap_or(default),
            Revalidation::NeverStale | Revalidation::Always => Duration::ZERO,
        };
        Self {
            source,
            lifetime,
            initial_age: initial_age(headers, delay, now),
            stale_while_revalidate: window(
                policy.directives.stale_while_revalidate,
                rules.stale_while_revalidate,
            ),
            stale_if_error: window(policy.directives.stale_if_error, rules.stale_if_error),
            revalidation,
        }
    }

    /// How long the response stays fresh from its reception on.
    pub(crate) fn remaining(&self) -> Duration {
        self.lifetime.saturating_sub(self.initial_age)
    }

    /// How long after its reception the response may be of any use without validation.
    pub(crate) fn usable(&self) -> Duration {
        let window = self.stale_while_revalidate.max(self.stale_if_error);
        (self.lifetime + window).saturating_sub(self.initial_age)
    }
}

impl Revalidation {
    fn of(directives: &Directives) -> Self {
        if directives.no_cache == Scope::All {
            Self::Always
        } else if directives.has(Flag::MustRevalidate)
            || directives.has(Flag::ProxyRevalidate)
            || directives.s_maxage != Delta::Absent
        {
            Self::NeverStale
        } else {
            Self::WhenStale
        }
    }
}

/// The lifetime that the response itself states.
fn explicit(headers: &HeaderMap, policy: &Policy, date: SystemTime) -> Option<(Source, Duration)> {
    let directives = &policy.directives;
    let shared = directives.s_maxage.seconds();
    let general = directives.max_age.seconds();
    shared
        .map(|lifetime| (Source::SharedMaxAge, lifetime))
        .or_else(|| general.map(|lifetime| (Source::MaxAge, lifetime)))
        .or_else(|| match policy.origin {
            Origin::Targeted => None,
            Origin::General => expires(headers, date).map(|lifetime| (Source::Expires, lifetime)),
        })
}

/// `Expires`, as a lifetime from `date`: zero if it is invalid or says different things
/// (RFC 9111 section 5.3).
fn expires(headers: &HeaderMap, date: SystemTime) -> Option<Duration> {
    let mut lines = headers.get_all(EXPIRES).iter();
    let first = lines.next()?;
    if lines.any(|line| line != first) {
        return Some(Duration::ZERO);
    }
    let lifetime = http_date(first.as_bytes()).and_then(|at| at.duration_since(date).ok());
    Some(lifetime.unwrap_or_default().min(MAX_DELTA))
}

fn heuristic(
    status: StatusCode,
    headers: &HeaderMap,
    (policy, rules): (&Policy, &Rules),
    date: SystemTime,
) -> Option<(Source, Duration)> {
    let Heuristic::LastModified { cap } = rules.heuristic else {
        return None;
    };
    if !heuristically_cacheable(status) && !policy.directives.has(Flag::Public) {
        return None;
    }
    let modified = self::date(headers, &LAST_MODIFIED)?;
    let unchanged = date.duration_since(modified).ok()?;
    Some((Source::Heuristic, (unchanged / 10).min(cap)))
}

/// The corrected initial age of RFC 9111 section 4.2.3.
fn initial_age(headers: &HeaderMap, delay: Duration, now: SystemTime) -> Duration {
    let apparent = date(headers, &DATE)
        .and_then(|date| now.duration_since(date).ok())
        // `Date` has no fractions of a second either.
        .map_or(Duration::ZERO, |age| Duration::from_secs(age.as_secs()));
    let stated = age(headers).map_or(Duration::ZERO, |age| age + delay);
    apparent.max(stated)
}

/// The first member of `Age`, ignored if it is not a number (RFC 9111 section 5.1).
fn age(headers: &HeaderMap) -> Option<Duration> {
    let line = headers.get(AGE)?.as_bytes();
    delta_seconds(line.split(|byte| *byte == b',').next()?.trim_ascii())
}

/// A date field of one valid line.
pub(crate) fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    http_date(headers.get(name)?.as_bytes())
}

/// An HTTP date in any of its three forms (RFC 9110 section 5.6.7), in upper or lower case (RFC 9111
/// section 4.2), whatever day of the week it takes itself for.
pub(crate) fn http_date(text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?;
    let exact = httpdate::parse_http_date(text).ok();
    exact.or_else(|| date_of_any_weekday(&capitalised(text)))
}

const WEEKDAYS: [(&str, &str); 7] = [
    ("Mon", "Monday"),
    ("Tue", "Tuesday"),
    ("Wed", "Wednesday"),
    ("Thu", "Thursday"),
    ("Fri", "Friday"),
    ("Sat", "Saturday"),
    ("Sun", "Sunday"),
];

fn date_of_any_weekday(text: &str) -> Option<SystemTime> {
    let end = text.find(|letter: char| !letter.is_ascii_alphabetic())?;
    let (stated, rest) = text.split_at_checked(end)?;
    let (known, _) = WEEKDAYS
        .into_iter()
        .find(|(short, long)| [*short, *long].contains(&stated))?;
    WEEKDAYS.into_iter().find_map(|(short, long)| {
        let weekday = if stated == known { short } else { long };
        httpdate::parse_http_date(&format!("{weekday}{rest}")).ok()
    })
}

fn capitalised(text: &str) -> String {
    let mut inside = false;
    let word = |letter: char| {
        let letter = if inside {
            letter.to_ascii_lowercase()
        } else {
            letter.to_ascii_uppercase()
        };
        inside = letter.is_ascii_alphabetic();
        letter
    };
    text.chars()
        .map(word)
        .collect::<String>()
        .replace("Gmt", "GMT")
}

impl RequestDirectives {
    /// Whether the request takes an entry of this age and state (RFC 9111 section 5.2.1).
    ///
    /// `limit` is how stale the server allows it to be: `max-stale` never goes past it.
    pub(crate) fn accept(&self, age: Duration, state: State, limit: Duration) -> bool {
        if self.has(RequestFlag::NoCache) || self.max_age.is_some_and(|asked| age > asked) {
            return false;
        }
        match state {
            State::FreshFor(left) => self.min_fresh.is_none_or(|asked| left >= asked),
            State::StaleSince(past) => {
                self.min_fresh.is_none()
                    && self.max_stale.is_some_and(|asked| past <= asked.min(limit))
            }
        }
    }
}

#[cfg(test)]
mod tests;
