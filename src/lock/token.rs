//! The token of one holder: random by default, or one that the caller brings.

use std::fmt;

use bytes::Bytes;
use md5::{Digest as _, Md5};

use super::{
    error::Error,
    limits::{self, Fault},
};
use crate::token;

/// Who holds a lock.
///
/// A fresh token is 128 random bits from the operating system, written as 32 hex digits. A caller
/// may bring a token of its own (any bytes, such as a job's id). Whoever knows the token can
/// release the lock: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(Bytes);

impl Token {
    /// A fresh random token.
    ///
    /// # Errors
    ///
    /// The operating system gave no random bytes.
    pub fn random() -> Result<Self, Error> {
        let token = token::Token::random().map_err(Error::entropy)?;
        Ok(Self::new(token.as_str()))
    }

    /// A token from bytes of one's own.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Self(Bytes::copy_from_slice(bytes.as_ref()))
    }

    /// The token's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same bytes, not copied.
    pub(super) fn bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// The token as text, if it is UTF-8; a random one always is.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Eight hex digits that tell tokens apart in logs without giving one away.
    pub(super) fn fingerprint(&self) -> String {
        let mut digest = token::hex(&Md5::digest(&self.0));
        digest.truncate(8);
        digest
    }

    pub(super) fn check(&self) -> Result<(), Fault> {
        match self.0.len() {
            0 => Err(Fault::TokenEmpty),
            _ if *self.0 == *b"*" => Err(Fault::TokenReserved),
            length if length > limits::MAX_TOKEN => Err(Fault::TokenTooLong),
            _ => Ok(()),
        }
    }
}

impl AsRef<[u8]> for Token {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_are_32_hex_digits_and_all_different() {
        let tokens: std::collections::HashSet<_> =
            (0..1000).map(|_| Token::random().unwrap()).collect();

        assert_eq!(tokens.len(), 1000);
        assert!(tokens.iter().all(|token| {
            let text = token.as_str().unwrap();
            text.len() == 32 && text.chars().all(|digit| digit.is_ascii_hexdigit())
        }));
    }

    #[test]
    fn empty_reserved_and_overlong_tokens_are_refused() {
        assert_eq!(Token::new(b"").check(), Err(Fault::TokenEmpty));
        assert_eq!(Token::new(b"*").check(), Err(Fault::TokenReserved));
        assert_eq!(Token::new([b'x'; 257]).check(), Err(Fault::TokenTooLong));
        assert_eq!(Token::new([0xff; 256]).check(), Ok(()));
    }
}
