//! Canonical keys: what identifies a response.
//!
//! A key is the concatenation of its parts, each with a tag and its length before it, so that two
//! different lists of parts never make the same key. Nothing is decoded or normalised but the
//! authority, whose case and default port mean nothing (RFC 9110 section 4.2.3).
//!
//! The key itself stays in the process: outside, an MD5 digest names it and a SHA-256 proves it.

mod authority;
mod digest;
mod fields;
mod forwarded;
mod part;
mod query;
mod rules;
mod writer;

use std::{borrow::Borrow, fmt, sync::Arc};

use sha2::{Digest as _, Sha256};

pub(crate) use self::{
    authority::{Host, exact_uri_tag, uri_tag},
    digest::Digest,
    fields::cookies,
    forwarded::is_forwarding,
    part::push_variant,
    rules::{KeyRules, Own, Unkeyable},
};
pub use self::{
    query::QueryKey,
    writer::{KeyWriter, Keyed},
};

/// A canonical key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(Arc<[u8]>);

impl Key {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same key in another class of use.
    pub(crate) fn in_class(&self, class: Class) -> Self {
        let mut bytes = self.0.to_vec();
        if let Some(first) = bytes.first_mut() {
            *first = class as u8;
        }
        Self(bytes.into())
    }

    /// The key of one variant of this resource.
    pub(crate) fn variant(&self, values: &[u8]) -> Self {
        let mut bytes = self.0.to_vec();
        push_variant(&mut bytes, values);
        Self(bytes.into())
    }

    /// The 128 bits that name the key outside the process.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(self.as_bytes())
    }

    /// What a stored entry carries to show that it belongs to this key and no other.
    pub(crate) fn proof(&self) -> [u8; 32] {
        Sha256::digest(self.as_bytes()).into()
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Key {
    /// Only the digest: a key may hold a cookie or a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.digest())
    }
}

/// The use of a key, its first byte: uses share no entry and no flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// GET, and HEAD answered from a GET's entry.
    Get = b'G' as isize,
    /// HEADs on a cold key, among themselves.
    Head = b'H' as isize,
    /// Ranges on a cold key, which build nothing.
    Look = b'R' as isize,
    /// Requests that renew what is stored, among themselves.
    Renewal = b'N' as isize,
    /// Refreshes of what is fresh, for which nobody waits.
    Early = b'E' as isize,
    /// The one extra build of those whose wait timed out.
    Extra = b'X' as isize,
    /// The same for HEADs.
    ExtraHead = b'Y' as isize,
}

#[cfg(test)]
mod tests;
