//! The key that stands for a lock's name, and the naming that makes it.

use std::{fmt, sync::Arc};

use md5::{Digest as _, Md5};

use super::limits::{self, Fault};
use crate::{
    slot::{hash_tag, slot},
    token::hex,
};

/// The default namespace, shared with the plain Redis lock of other implementations.
pub const DEFAULT_NAMESPACE: &str = "buffer:lock:";

/// What begins the suffix of every key that accompanies a lock's own.
const COMPANION: &str = ":~";

type KeyFn = dyn Fn(&str, &[u8]) -> String + Send + Sync;

/// How the name of a lock becomes its key.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Naming {
    /// The namespace, then the MD5 digest of the name in hex digits: the plain form, compatible
    /// with other implementations. Every lock lies in a Cluster slot of its own.
    #[default]
    Digest,
    /// The namespace in braces, then the digest: every lock of the namespace lies in one Cluster
    /// slot, so that any of them can be taken together.
    OneSlot,
    /// Your own function of namespace and name.
    Custom(Arc<KeyFn>),
}

impl Naming {
    /// A key function of your own: it gets the namespace and the name's bytes.
    ///
    /// Two names that it maps to one key are one lock. Braces in the key must enclose a hash tag,
    /// and `:~` is reserved; a key that breaks these rules is refused when it is used.
    pub fn custom<F>(key: F) -> Self
    where
        F: Fn(&str, &[u8]) -> String + Send + Sync + 'static,
    {
        Self::Custom(Arc::new(key))
    }

    pub(super) fn key(&self, namespace: &str, name: &[u8]) -> Result<Key, Fault> {
        if name.len() > limits::MAX_NAME {
            return Err(Fault::NameTooLong);
        }
        Key::new(match self {
            Self::Digest => format!("{namespace}{}", digest(name)),
            Self::OneSlot => format!("{{{namespace}}}{}", digest(name)),
            Self::Custom(key) => key(namespace, name),
        })
    }
}

impl fmt::Debug for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Digest => "Digest",
            Self::OneSlot => "OneSlot",
            Self::Custom(_) => "Custom(..)",
        })
    }
}

/// The key of one lock, as backends see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    pub(super) fn new(text: String) -> Result<Self, Fault> {
        if text.is_empty() {
            return Err(Fault::KeyEmpty);
        }
        if text.contains(COMPANION) {
            return Err(Fault::KeyReserved);
        }
        if hash_tag(text.as_bytes()).is_none() && text.contains(['{', '}']) {
            return Err(Fault::Braces);
        }
        Ok(Self(text.into()))
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A key beside this one, in the same Cluster slot.
    pub fn companion(&self, suffix: &str) -> String {
        match hash_tag(self.0.as_bytes()) {
            Some(_) => [&self.0, COMPANION, suffix].concat(),
            None => ["{", &self.0, "}", COMPANION, suffix].concat(),
        }
    }

    /// The Cluster slot of this key and of its companions.
    pub fn slot(&self) -> u16 {
        slot(self.0.as_bytes())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn digest(name: &[u8]) -> String {
    hex(&Md5::digest(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text.to_owned()).unwrap()
    }

    #[test]
    fn a_plain_key_is_the_namespace_and_the_md5_digest_of_the_name() {
        let key = Naming::Digest
            .key(DEFAULT_NAMESPACE, b"nightly-report")
            .unwrap();

        assert_eq!(key.as_str(), "buffer:lock:c38a6c3afb95f1be3791bd1270b31743");
        assert_eq!(digest(b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(digest("\u{e9}\u{1f512}".as_bytes()).len(), 32);
    }

    #[test]
    fn names_differ_by_case_and_namespaces_differ() {
        let key = |namespace, name: &str| Naming::Digest.key(namespace, name.as_bytes()).unwrap();

        assert_ne!(key("a:", "job"), key("a:", "Job"));
        assert_ne!(key("a:", "job"), key("b:", "job"));
    }

    #[test]
    fn companions_lie_in_the_slot_of_their_key() {
        for text in ["buffer:lock:0123", "{buffer:lock:}0123", "a{b}c"] {
            let companion = key(text).companion("f");

            assert_eq!(slot(companion.as_bytes()), key(text).slot());
        }
    }

    #[test]
    fn one_slot_naming_puts_a_whole_namespace_into_one_slot() {
        let slot = |name: &str| Naming::OneSlot.key("ns:", name.as_bytes()).unwrap().slot();

        assert_eq!(slot("a"), slot("b"));
        assert_ne!(
            Naming::Digest.key("ns:", b"a").unwrap().slot(),
            Naming::Digest.key("ns:", b"b").unwrap().slot()
        );
    }

    #[test]
    fn keys_that_would_confuse_slots_or_companions_are_refused() {
        for (text, fault) in [
            ("", Fault::KeyEmpty),
            ("a{}b", Fault::Braces),
            ("a}b", Fault::Braces),
            ("a{b", Fault::Braces),
            ("a:~f", Fault::KeyReserved),
        ] {
            assert_eq!(Key::new(text.to_owned()), Err(fault));
        }
    }
}
