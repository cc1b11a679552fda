//! What a layer can be told to do, where it is one of several things.

use std::iter;

/// What a layer does at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Store responses and share builds.
    #[default]
    Cache,
    /// Share builds among those who ask at the same time, and store nothing.
    Coalesce,
    /// Do neither: every request goes straight to the inner service.
    Bypass,
}

/// What a waiter does when its wait timeout passes, or when there are too many waiters.
///
/// Fallbacks are tried in turn; where none applies, the request is rejected.
///
/// ```
/// use tower_stampede::{BufferLayer, Cache, Fallback};
///
/// let layer = BufferLayer::new(Cache::in_memory()).fallback([Fallback::Stale, Fallback::Reject]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// Take a stale entry that may still be served in place of an error.
    Stale,
    /// Build once more: one extra build per key and process, which all waiters whose wait timed out
    /// share for at most the build timeout.
    Build,
    /// Answer 503 with `Retry-After: 1`.
    Reject,
}

impl IntoIterator for Fallback {
    type Item = Self;
    type IntoIter = iter::Once<Self>;

    fn into_iter(self) -> Self::IntoIter {
        iter::once(self)
    }
}

/// What becomes of a build when the last request that waits for it has gone away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// It is completed, and stored for the next request.
    #[default]
    Finish,
    /// It is dropped, and its lease released.
    Cancel,
}

/// What `Cache-Control` in a request means (RFC 9111 section 5.2.1).
///
/// ```
/// use tower_stampede::{BufferLayer, Cache, RequestDirectives};
///
/// let layer = BufferLayer::new(Cache::in_memory()).request_directives(RequestDirectives::Honour);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestDirectives {
    /// Nothing: no client can force a build.
    #[default]
    Ignore,
    /// What it says. `no-cache`, `max-age` and `min-fresh` refuse an entry, which is then validated or
    /// built anew, once for all who ask at the same time; `max-stale` takes a stale one, though none
    /// staler than its stale windows allow; `no-store` bypasses; `only-if-cached` gets 504 where
    /// neither tier has a fresh entry that suits. `Pragma: no-cache` counts where there is no `Cache-Control`.
    Honour,
}
