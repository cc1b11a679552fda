//! [`KeyWriter`]: what a route's own closure adds to its keys.

use super::part::{Tag, part};

/// Writes the parts that a closure adds to a key.
///
/// ```
/// # use std::time::Duration;
/// use tower_stampede::{BufferLayer, Cache, Keyed};
///
/// #[derive(Clone)]
/// struct Tenant(String);
///
/// // Set by an authentication layer outside this one.
/// let layer = BufferLayer::new(Cache::in_memory())
///     .ttl(Duration::from_secs(60))
///     .key_with(|request, key| match request.extensions.get::<Tenant>() {
///         Some(Tenant(name)) => {
///             key.part(name);
///             Keyed::Credentials
///         }
///         None => Keyed::Bypass,
///     });
/// ```
#[derive(Debug)]
pub struct KeyWriter<'a> {
    pub(super) bytes: &'a mut Vec<u8>,
}

impl KeyWriter<'_> {
    /// Adds one part. The parts are kept apart, whatever bytes they hold.
    pub fn part(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        part(self.bytes, Tag::Own, value.as_ref());
        self
    }
}

/// What a key closure says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Keyed {
    /// The key is complete.
    Yes,
    /// There is no key: neither cache nor coalesce this request.
    Bypass,
    /// The key is complete and holds the identity of the caller, so that `Authorization` and
    /// `Cookie` on the request no longer keep it from being cached.
    Credentials,
}
