//! What a lock's key holds: the token alone, or the token with the attempt and metadata.
//!
//! A random token without metadata is stored as it is, 32 hex digits and nothing else, which is
//! what other implementations of the plain lock write and compare. Everything else is stored as
//! `#<length of the token>:<token>:<attempt>:<metadata>`: the length delimits the token, so that no
//! token is another's prefix, whatever bytes it has. The attempt makes each acquisition's value
//! its own: a holder that took its lock again can no longer be released by its first guard.

use bytes::Bytes;

use super::token::Token;

const MARK: u8 = b'#';
const END: u8 = b':';

/// The two ways to ask whether a stored value belongs to someone.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    /// The whole value.
    pub(crate) exact: Bytes,
    /// How a value with this token and more begins; empty: only the whole value counts.
    pub(crate) prefix: Bytes,
}

impl Proof {
    /// One acquisition, and no other of the same token.
    pub(crate) fn of_value(value: Bytes) -> Self {
        Self {
            exact: value,
            prefix: Bytes::new(),
        }
    }

    /// Any acquisition with this token.
    pub(crate) fn of_token(token: &Token) -> Self {
        let prefix = Bytes::from(prefix(token));
        let bare = token.bytes();
        Self {
            // What has the delimited form is never a bare token, but the value of another one.
            exact: match delimited(&bare) {
                None => bare,
                Some(_) => prefix.clone(),
            },
            prefix,
        }
    }

    pub(crate) fn matches(&self, value: &[u8]) -> bool {
        value == self.exact || (!self.prefix.is_empty() && value.starts_with(&self.prefix))
    }
}

/// A stored value, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) token: Token,
    pub(crate) attempt: Option<Bytes>,
    pub(crate) metadata: Bytes,
}

/// The delimited form.
pub(crate) fn encode(token: &Token, attempt: &str, metadata: &[u8]) -> Bytes {
    let mut value = prefix(token);
    value.extend_from_slice(attempt.as_bytes());
    value.push(END);
    value.extend_from_slice(metadata);
    value.into()
}

/// Takes `value` apart; what has not the delimited form is a token and nothing else.
pub(crate) fn decode(value: &Bytes) -> Parts {
    delimited(value).unwrap_or_else(|| Parts {
        token: Token::new(value),
        attempt: None,
        metadata: Bytes::new(),
    })
}

fn prefix(token: &Token) -> Vec<u8> {
    let token = token.as_bytes();
    let mut value = format!("#{}:", token.len()).into_bytes();
    value.extend_from_slice(token);
    value.push(END);
    value
}

fn delimited(value: &Bytes) -> Option<Parts> {
    let rest = value.strip_prefix(&[MARK])?;
    let (length, rest) = split(rest)?;
    let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
    let (token, rest) = rest.split_at_checked(length)?;
    let (attempt, metadata) = split(rest.strip_prefix(&[END])?)?;
    Some(Parts {
        token: Token::new(token),
        attempt: Some(value.slice_ref(attempt)),
        metadata: value.slice_ref(metadata),
    })
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == END)?;
    let (head, tail) = bytes.split_at(end);
    Some((head, tail.strip_prefix(&[END])?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_was_written_is_read_back(
            token in prop::collection::vec(any::<u8>(), 0..40),
            metadata in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let token = Token::new(token);

            let parts = decode(&encode(&token, "0123456789abcdef", &metadata));

            prop_assert_eq!(parts.token, token);
            prop_assert_eq!(parts.attempt, Some(Bytes::from("0123456789abcdef")));
            prop_assert_eq!(parts.metadata, Bytes::from(metadata));
        }

        #[test]
        fn no_token_proves_the_value_of_another(
            mine in prop::collection::vec(prop::sample::select(b"#:1234ab".to_vec()), 0..8),
            theirs in prop::collection::vec(prop::sample::select(b"#:1234ab".to_vec()), 0..8),
        ) {
            prop_assume!(mine != theirs);
            let value = encode(&Token::new(&theirs), "0123456789abcdef", b"");

            prop_assert!(!Proof::of_token(&Token::new(&mine)).matches(&value));
        }

        #[test]
        fn any_bytes_can_be_taken_apart(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let parts = decode(&bytes.clone().into());

            prop_assert!(parts.attempt.is_some() || parts.token.as_bytes() == bytes);
        }
    }

    #[test]
    fn a_token_that_looks_like_the_value_of_another_does_not_prove_it() {
        let value = encode(&Token::new("foo"), "0123456789abcdef", b"bar");
        let copy = Token::new(&value);

        assert!(!Proof::of_token(&copy).matches(&value));
        assert!(Proof::of_token(&copy).matches(&encode(&copy, "a", b"")));
        assert!(Proof::of_token(&Token::new("#3:foo")).matches(b"#3:foo"));
    }

    #[test]
    fn a_token_proves_both_forms_and_a_value_only_itself() {
        let token = Token::new("foo");
        let value = encode(&token, "a", b"bar");

        assert!(Proof::of_token(&token).matches(b"foo"));
        assert!(Proof::of_token(&token).matches(&value));
        assert!(!Proof::of_token(&token).matches(b"foobar"));
        assert!(Proof::of_value(value).matches(&encode(&token, "a", b"bar")));
        assert!(
            !Proof::of_value(encode(&token, "b", b"bar")).matches(&encode(&token, "a", b"bar"))
        );
    }
}
