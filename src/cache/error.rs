//! What can go wrong in making a cache, and in purging.

use std::{error::Error, fmt};

use crate::body::BoxError;

/// A [`CacheBuilder`](super::CacheBuilder) was told something impossible.
#[derive(Debug)]
pub struct BuildError {
    kind: BuildErrorKind,
    source: Option<BoxError>,
}

/// Which option was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildErrorKind {
    /// `redis`: the URL cannot be read.
    RedisUrl,
    /// `namespace`: empty, longer than 64 bytes, or with characters other than ASCII letters,
    /// digits, `-`, `_`, `.` and `:`.
    Namespace,
    /// `lease_ttl`: shorter than 100 ms or longer than an hour.
    LeaseTtl,
    /// `redis_budget`: shorter than 1 ms or longer than a minute.
    RedisBudget,
}

impl BuildError {
    pub(super) fn new(kind: BuildErrorKind) -> Self {
        Self { kind, source: None }
    }

    #[cfg(feature = "redis")]
    pub(super) fn redis_url(source: impl Into<BoxError>) -> Self {
        Self {
            kind: BuildErrorKind::RedisUrl,
            source: Some(source.into()),
        }
    }

    /// Which option was wrong.
    pub fn kind(&self) -> BuildErrorKind {
        self.kind
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BuildErrorKind::RedisUrl => "redis: the URL cannot be read",
            BuildErrorKind::Namespace => {
                "namespace: must be 1 to 64 ASCII letters, digits, '-', '_', '.' or ':'"
            }
            BuildErrorKind::LeaseTtl => "lease_ttl: must be between 100 ms and an hour",
            BuildErrorKind::RedisBudget => "redis_budget: must be between 1 ms and a minute",
        })
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
