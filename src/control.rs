//! How a handler steers the entry that its own response becomes.
//!
//! Each of these is an extension of the response, so that it works in any framework; in axum they are
//! response parts too:
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use std::time::Duration;
//!
//! use axum::response::IntoResponse;
//! use tower_stampede::{CacheTags, CacheTtl, NoCache};
//!
//! async fn report() -> impl IntoResponse {
//!     let ttl = CacheTtl::new(Duration::from_secs(300));
//!     (ttl, CacheTags::new(["reports", "customer-7"]), "a report")
//! }
//!
//! async fn degraded() -> impl IntoResponse {
//!     (NoCache, "the best we have right now")
//! }
//! # }
//! ```

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, header, response::Parts};

use crate::{key::Digest, tags};

/// For how long the response is fresh, from now on, whatever its other fields say to other caches.
///
/// It alone decides, as a targeted field would (RFC 9213): `Cache-Control` and `Expires` are for the
/// caches further on. What must not be stored for another reason, such as `Set-Cookie`, is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheTtl(Duration);

impl CacheTtl {
    /// Fresh for `ttl`.
    pub fn new(ttl: Duration) -> Self {
        Self(ttl)
    }
}

/// Tags that the response's entry can be purged by ([`Target::tag`](crate::Target::tag)).
///
/// A response with more than 128 tags in all is not stored: a purge could not reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheTags(Arc<[Digest]>);

impl CacheTags {
    /// These tags.
    pub fn new<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Self {
        let tags = names.into_iter().map(|name| tags::named(name.as_ref()));
        Self(tags.collect())
    }
}

/// The response is for its own request alone, as with `Cache-Control: no-store`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCache;

/// The tags that a response names: in its extensions, and in its fields.
pub(crate) fn tags_of(parts: &Parts) -> Vec<Digest> {
    let own = parts.extensions.get::<CacheTags>();
    let own = own.map_or(&[][..], |tags| &tags.0).iter().copied();
    own.chain(tags::of_fields(&parts.headers)).collect()
}

/// For how long the handler has said that the response is fresh.
pub(crate) fn ttl_of(parts: &Parts) -> Option<Duration> {
    parts.extensions.get().map(|CacheTtl(ttl)| *ttl)
}

/// The response with what its handler said in place of what its fields say to all caches; `None` if it
/// said nothing.
pub(crate) fn steered(parts: &Parts, targeted: &[HeaderName]) -> Option<Parts> {
    let directives = match (parts.extensions.get::<NoCache>(), ttl_of(parts)) {
        (Some(NoCache), _) => HeaderValue::from_static("no-store"),
        (None, Some(ttl)) => HeaderValue::try_from(format!("max-age={}", ttl.as_secs().max(1)))
            .expect("a number is a field value"),
        (None, None) => return None,
    };
    let mut steered = parts.clone();
    steered.headers.remove(header::EXPIRES);
    for field in targeted {
        steered.headers.remove(field);
    }
    steered.headers.insert(header::CACHE_CONTROL, directives);
    Some(steered)
}

#[cfg(feature = "axum")]
mod parts {
    use std::convert::Infallible;

    use axum::response::{IntoResponseParts, ResponseParts};

    use super::{CacheTags, CacheTtl, NoCache};

    macro_rules! extend {
        ($($part:ty)*) => {$(
            impl IntoResponseParts for $part {
                type Error = Infallible;

                fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
                    parts.extensions_mut().insert(self);
                    Ok(parts)
                }
            }
        )*};
    }

    extend!(CacheTtl CacheTags NoCache);
}
