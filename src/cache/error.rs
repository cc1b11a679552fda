//! What can go wrong in making a cache, and in purging.

use std::{error::Error, fmt};

use crate::body::BoxError;
#[cfg(feature = "redis")]
use crate::link::{ConfigError, ConfigFault};

/// A [`CacheBuilder`](super::CacheBuilder) was told something impossible.
#[derive(Debug)]
pub struct BuildError {
    kind: BuildErrorKind,
    source: Option<BoxError>,
    /// Names the option and its limit.
    text: &'static str,
}

/// Which option was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildErrorKind {
    /// `redis`: the URL cannot be read.
    RedisUrl,
    /// `redis`: a setting of its `RedisConfig` is impossible or does not go with another one; the
    /// error's text names it and its limit.
    RedisConfig,
    /// `namespace`: empty, longer than 64 bytes, or with characters other than ASCII letters,
    /// digits, `-`, `_`, `.` and `:`.
    Namespace,
    /// `lease_ttl`: shorter than 100 ms or longer than an hour.
    LeaseTtl,
    /// `redis_budget`: shorter than 1 ms or longer than a minute.
    RedisBudget,
    /// `redis` and `store`: a cache has one shared tier.
    TwoTiers,
    /// `event_secret`: shorter than 16 bytes.
    EventSecret,
    /// `event_secret`: it is for `redis`, and would do nothing with a `store`.
    NoEvents,
}

impl BuildError {
    pub(super) fn new(kind: BuildErrorKind) -> Self {
        Self {
            kind,
            source: None,
            text: kind.text(),
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn redis(error: ConfigError) -> Self {
        let kind = match error.fault() {
            ConfigFault::Url => BuildErrorKind::RedisUrl,
            _ => BuildErrorKind::RedisConfig,
        };
        Self {
            kind,
            text: error.fault().text(),
            source: error.cause().map(Into::into),
        }
    }

    /// Which option was wrong.
    pub fn kind(&self) -> BuildErrorKind {
        self.kind
    }
}

impl BuildErrorKind {
    const fn text(self) -> &'static str {
        match self {
            Self::RedisUrl => "redis: the URL cannot be read",
            Self::RedisConfig => "redis: the settings do not go together",
            Self::Namespace => {
                "namespace: must be 1 to 64 ASCII letters, digits, '-', '_', '.' or ':'"
            }
            Self::LeaseTtl => "lease_ttl: must be between 100 ms and an hour",
            Self::TwoTiers => "redis and store: only one of them can be set",
            Self::RedisBudget => "redis_budget: must be between 1 ms and a minute",
            Self::EventSecret => "event_secret: must be at least 16 bytes long",
            Self::NoEvents => "event_secret: needs redis; a store has no events",
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.source {
            Some(source) => Some(&**source),
            None => None,
        }
    }
}
