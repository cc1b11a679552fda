//! [`Digest`]: how keys, variants and tags are named outside the process.

use std::fmt;

use md5::{Digest as _, Md5};

use crate::token::hex;

/// The name of a key, a variant or a tag outside the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 16]);

impl Digest {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Md5::digest(bytes).into())
    }

    /// Reads 32 hex digits.
    pub(crate) fn parse(hex: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        let pairs = hex.chunks_exact(2);
        if hex.len() != 32 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let digits = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
