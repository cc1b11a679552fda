//! What the cache did with a request: one value for `Cache-Status` (RFC 9211), metrics and logs.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, header::Entry};

use crate::key::Digest;

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) path: Path,
    pub(crate) detail: Option<&'static str>,
    /// The inner service's status, where the response has another one (RFC 9211 section 2.3).
    pub(crate) answered: Option<u16>,
}

/// Where the answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// From an entry; `ttl` is its remaining freshness in seconds.
    Hit {
        ttl: i64,
    },
    Forward {
        reason: Forward,
        end: End,
    },
    /// Nowhere: it is an answer of this layer's own.
    Refused,
}

/// Why the request went to the inner service (RFC 9211 section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forward {
    Bypass,
    Method,
    Miss,
    VaryMiss,
    Stale,
    /// There is a fresh entry, and the request does not take it.
    Request,
}

/// What became of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Stored, with this much freshness in seconds.
    Stored { ttl: i64 },
    /// Used for this request alone.
    Unstored,
    /// Another request's build answered this one (RFC 9211 section 2.6).
    Collapsed,
    /// A stale entry stands in for it; `ttl` is its remaining freshness in seconds.
    StoodIn { ttl: i64 },
    /// The same, for one of those who waited for another request's build.
    CollapsedStoodIn { ttl: i64 },
}

impl Outcome {
    pub(crate) fn hit(ttl: i64) -> Self {
        Self {
            path: Path::Hit { ttl },
            detail: None,
            answered: None,
        }
    }

    pub(crate) fn forward(reason: Forward, end: End) -> Self {
        Self {
            path: Path::Forward { reason, end },
            detail: None,
            answered: None,
        }
    }

    pub(crate) fn bypass(detail: &'static str) -> Self {
        Self::forward(Forward::Bypass, End::Unstored).because(detail)
    }

    pub(crate) fn because(self, detail: &'static str) -> Self {
        Self {
            detail: Some(detail),
            ..self
        }
    }

    /// Neither answered from an entry nor by the inner service.
    pub(crate) fn refused(detail: &'static str) -> Self {
        Self {
            path: Path::Refused,
            detail: Some(detail),
            answered: None,
        }
    }

    /// The inner service confirmed an entry.
    pub(crate) fn confirmed(self) -> Self {
        self.answered(Some(304))
    }

    /// What the inner service answered, if that is not the status of the response.
    pub(crate) fn answered(self, status: Option<u16>) -> Self {
        Self {
            answered: status,
            ..self
        }
    }

    /// Appends this outcome to what caches nearer to the origin have said.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        // Where not one field more finds room, the answer goes without.
        drop(headers.try_append(FIELD, self.into()));
    }
}

/// Adds the key to what was written last (RFC 9211 section 2.8).
pub(crate) fn show_key(headers: &mut HeaderMap, key: Digest) {
    let Entry::Occupied(mut field) = headers.entry(FIELD) else {
        return;
    };
    if let Some(value) = field.iter_mut().next_back() {
        let shown = [value.as_bytes(), format!("; key=\"{key}\"").as_bytes()].concat();
        *value = HeaderValue::try_from(shown).expect("a field value and hex digits are one");
    }
}

/// What this cache is called in it.
pub(crate) const IDENTIFIER: &str = "stampede";

/// The response field that says it all.
pub(crate) const FIELD: HeaderName = HeaderName::from_static("cache-status");

impl From<Outcome> for HeaderValue {
    fn from(outcome: Outcome) -> Self {
        Self::try_from(outcome.to_string()).expect("tokens and numbers are field values")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(IDENTIFIER)?;
        match self.path {
            Path::Hit { ttl } => write!(f, "; hit; ttl={ttl}")?,
            Path::Refused => {}
            Path::Forward { reason, end } => {
                write!(f, "; fwd={}", reason.as_str())?;
                if let Some(status) = self.answered {
                    write!(f, "; fwd-status={status}")?;
                }
                match end {
                    End::Stored { ttl } => write!(f, "; stored; ttl={ttl}")?,
                    End::Collapsed => f.write_str("; collapsed")?,
                    End::StoodIn { ttl } => write!(f, "; ttl={ttl}")?,
                    End::CollapsedStoodIn { ttl } => write!(f, "; collapsed; ttl={ttl}")?,
                    End::Unstored => {}
                }
            }
        }
        match self.detail {
            Some(detail) => write!(f, "; detail={detail}"),
            None => Ok(()),
        }
    }
}

impl Forward {
    fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::Miss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Stale => "stale",
            Self::Request => "request",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_reads_as_rfc_9211_has_it() {
        let stored = Outcome::forward(Forward::Miss, End::Stored { ttl: 60 });
        let collapsed = Outcome::forward(Forward::Stale, End::Collapsed);

        assert_eq!(Outcome::hit(12).to_string(), "stampede; hit; ttl=12");
        assert_eq!(stored.to_string(), "stampede; fwd=uri-miss; stored; ttl=60");
        assert_eq!(collapsed.to_string(), "stampede; fwd=stale; collapsed");
        assert_eq!(
            Outcome::bypass("cookie").to_string(),
            "stampede; fwd=bypass; detail=cookie"
        );
    }

    #[test]
    fn what_stands_in_says_what_it_stands_in_for() {
        let stale = |end| Outcome::forward(Forward::Stale, end).because("stale-if-error");

        assert_eq!(
            stale(End::StoodIn { ttl: -5 })
                .answered(Some(503))
                .to_string(),
            "stampede; fwd=stale; fwd-status=503; ttl=-5; detail=stale-if-error"
        );
        assert_eq!(
            stale(End::CollapsedStoodIn { ttl: -5 }).to_string(),
            "stampede; fwd=stale; collapsed; ttl=-5; detail=stale-if-error"
        );
        assert_eq!(
            HeaderValue::from(Outcome::hit(-5).because("stale-if-error")),
            "stampede; hit; ttl=-5; detail=stale-if-error"
        );
    }

    #[test]
    fn a_key_is_shown_as_its_digest_behind_what_was_written_last() {
        let mut headers = HeaderMap::new();
        headers.insert(FIELD, HeaderValue::from_static("Origin; hit"));
        Outcome::hit(1).write(&mut headers);
        let key = Digest::of(b"a key");

        show_key(&mut headers, key);

        let all: Vec<_> = headers.get_all(FIELD).iter().collect();
        let ours = format!("stampede; hit; ttl=1; key=\"{key}\"");
        assert_eq!(all, ["Origin; hit", ours.as_str()]);
    }

    #[test]
    fn an_outcome_follows_what_a_cache_nearer_to_the_origin_said() {
        let mut headers = HeaderMap::new();
        headers.insert(FIELD, HeaderValue::from_static("Origin; hit"));

        Outcome::hit(1).write(&mut headers);

        let all: Vec<_> = headers.get_all(FIELD).iter().collect();
        assert_eq!(all, ["Origin; hit", "stampede; hit; ttl=1"]);
    }
}
