//! [`KeyRules`]: how a route makes its keys.

use std::{fmt, sync::Arc};

use http::{HeaderName, Uri, request::Parts};

use super::{Class, KeyWriter, Keyed, QueryKey, authority, fields, forwarded};
use crate::survey::Survey;

/// How a route makes its keys.
#[derive(Clone)]
pub(crate) struct KeyRules {
    pub(crate) original_uri: for<'a> fn(&'a Parts) -> Option<&'a Uri>,
    pub(crate) query: QueryKey,
    pub(crate) headers: Vec<HeaderName>,
    pub(crate) cookies: Vec<String>,
    pub(crate) own: Own,
    pub(crate) max_length: usize,
}

pub(crate) type KeyClosure = Arc<dyn Fn(&Parts, &mut KeyWriter<'_>) -> Keyed + Send + Sync>;

/// A route's own part of its keys.
#[derive(Clone)]
pub(crate) enum Own {
    None,
    Adds(KeyClosure),
    Replaces(KeyClosure),
}

impl Default for KeyRules {
    fn default() -> Self {
        Self {
            original_uri,
            query: QueryKey::default(),
            headers: Vec::new(),
            cookies: Vec::new(),
            own: Own::None,
            max_length: 8 * 1024,
        }
    }
}

impl fmt::Debug for KeyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRules")
            .field("query", &self.query)
            .field("headers", &self.headers)
            .field("cookies", &self.cookies)
            .finish_non_exhaustive()
    }
}

/// The URI as the client sent it, where routers have cut a prefix off the one in `parts`.
#[cfg(feature = "axum")]
fn original_uri(parts: &Parts) -> Option<&Uri> {
    parts
        .extensions
        .get::<axum::extract::OriginalUri>()
        .map(|original| &original.0)
}

#[cfg(not(feature = "axum"))]
fn original_uri(_parts: &Parts) -> Option<&Uri> {
    None
}

/// Why a request has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unkeyable {
    Authority,
    TooLong,
    Empty,
    Closure,
}

impl KeyRules {
    /// The URI that the client asked for.
    pub(crate) fn target<'a>(&self, parts: &'a Parts) -> &'a Uri {
        (self.original_uri)(parts).unwrap_or(&parts.uri)
    }

    /// Writes the key of a request into `bytes`, which it clears first.
    pub(crate) fn write(
        &self,
        parts: &Parts,
        survey: &Survey<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Keyed, Unkeyable> {
        bytes.clear();
        bytes.push(Class::Get as u8);
        let keyed = match &self.own {
            Own::None => {
                self.write_request(parts, survey, bytes)?;
                Keyed::Yes
            }
            Own::Adds(closure) => {
                self.write_request(parts, survey, bytes)?;
                closure(parts, &mut KeyWriter { bytes })
            }
            Own::Replaces(closure) => closure(parts, &mut KeyWriter { bytes }),
        };
        match bytes.len() {
            _ if keyed == Keyed::Bypass => Err(Unkeyable::Closure),
            1 => Err(Unkeyable::Empty),
            length if length > self.max_length => Err(Unkeyable::TooLong),
            _ => Ok(keyed),
        }
    }

    fn write_request(
        &self,
        parts: &Parts,
        survey: &Survey<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Unkeyable> {
        let target = self.target(parts);
        authority::write(target, survey.host, bytes)?;
        if let Some(headers) = survey.forwarding {
            forwarded::write(headers, bytes);
        }
        self.query.write(target, bytes);
        for name in &self.headers {
            fields::write_header(name, &parts.headers, bytes);
        }
        for name in &self.cookies {
            fields::write_cookie(name, &parts.headers, bytes);
        }
        Ok(())
    }
}
