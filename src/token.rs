//! Tokens: who holds a lease or a lock.

use std::fmt;

/// A random name of one holder: 128 bits from the operating system, written as 32 hex digits.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Token(String);

impl Token {
    /// A fresh token.
    ///
    /// # Errors
    ///
    /// The operating system gave no random bytes.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(hex(&bytes)))
    }

    /// A name that is different from all others, and may be guessed.
    pub(crate) fn label() -> Self {
        Self(hex(&fastrand::u128(..).to_be_bytes()))
    }

    /// Reads a token back.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (text.len() == 32 && is_hex).then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Lower-case hex digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 0xf));
    }
    text
}

fn digit(value: u8) -> char {
    char::from(match value {
        0..10 => b'0' + value,
        _ => b'a' + value - 10,
    })
}
