//! Who wants or holds what: claims before the grant, holdings after it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{answer::Remaining, error::Error, key::Key, token::Token, value};
use crate::token::hex;

/// How many hex digits name an attempt.
const ATTEMPT: usize = 16;

/// The two kinds of locks. One name can be used with both, and the two do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Family {
    /// One holder.
    Exclusive,
    /// One writer or many readers.
    ReadWrite,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Together with other readers.
    Read,
    /// Alone, and no reader beside it.
    Write,
}

impl Mode {
    /// The kind of lock that is held in this mode.
    pub fn family(self) -> Family {
        match self {
            Self::Exclusive => Family::Exclusive,
            Self::Read | Self::Write => Family::ReadWrite,
        }
    }
}

/// One attempt of one token to take some keys.
#[derive(Clone, Debug)]
pub struct Claim {
    keys: Arc<[Key]>,
    mode: Mode,
    token: Token,
    attempt: Arc<str>,
    metadata: Bytes,
    value: Bytes,
}

impl Claim {
    /// A claim of a fresh random token, or of `token`, with a fresh attempt.
    pub(super) fn new(
        keys: Arc<[Key]>,
        mode: Mode,
        token: Option<Token>,
        metadata: Bytes,
    ) -> Result<Self, Error> {
        let mut random = [0_u8; 24];
        getrandom::fill(&mut random).map_err(Error::entropy)?;
        let random = hex(&random);
        let (attempt, fresh) = random.split_at(ATTEMPT);
        let plain = token.is_none() && metadata.is_empty();
        let token = token.unwrap_or_else(|| Token::new(fresh));
        let value = if plain {
            token.bytes()
        } else {
            value::encode(&token, attempt, &metadata)
        };
        Ok(Self {
            keys,
            mode,
            token,
            attempt: attempt.into(),
            metadata,
            value,
        })
    }

    /// The keys: at least one, sorted, each once. Only exclusive claims have several.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// How they shall be held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// By whom.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// The name of this attempt, 16 hex digits: no two attempts share it.
    pub fn attempt(&self) -> &str {
        &self.attempt
    }

    /// What the holder says about itself.
    pub fn metadata(&self) -> &Bytes {
        &self.metadata
    }

    /// What an exclusive lock's key holds: the token alone if it is random and there is no
    /// metadata, else token, attempt and metadata, delimited.
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    /// Whether the value is a random token and nothing else.
    #[cfg(feature = "redis")]
    pub(super) fn is_plain(&self) -> bool {
        self.value == self.token.as_bytes()
    }
}

/// On what terms a claim is made.
#[derive(Clone, Debug)]
pub struct Terms {
    pub(super) ttl: Ttl,
    pub(super) reentry: Reentry,
    pub(super) fencing: Fencing,
    pub(super) queue: Queueing,
}

impl Terms {
    /// How long the lock lives without being extended.
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// What happens if the token holds the lock already.
    pub fn reentry(&self) -> Reentry {
        self.reentry
    }

    /// Whether the grant carries a fencing number.
    pub fn fencing(&self) -> Fencing {
        self.fencing
    }

    /// Whether a refused writer holds back new readers.
    pub fn queueing(&self) -> Queueing {
        self.queue
    }
}

/// How long a lock lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// So many milliseconds, at least one.
    Millis(u64),
    /// Until it is released.
    Persistent,
}

impl Ttl {
    /// As a duration; `None` if persistent.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::Millis(millis) => Some(Duration::from_millis(millis)),
            Self::Persistent => None,
        }
    }

    /// No longer than `most`, but a millisecond at least.
    pub(super) fn shortened(self, most: Duration) -> Self {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX).max(1);
        match self {
            Self::Millis(millis) => Self::Millis(millis.min(most)),
            Self::Persistent => Self::Millis(most),
        }
    }
}

/// What happens if the claim's token holds the exclusive lock already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reentry {
    /// It takes the lock again: metadata and time to live are replaced, and the earlier guard is
    /// no longer the holder. Only all keys together can be taken again.
    ///
    /// If the answer is lost, the lock is given up altogether: the earlier guard cannot have it
    /// back, since it may have been released meanwhile.
    #[default]
    Replace,
    /// Nothing changes, and the answer is [`Grant::AlreadyHeld`](super::backend::Grant::AlreadyHeld).
    Report,
}

/// Whether a grant carries a fencing number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fencing {
    /// It does not.
    #[default]
    Off,
    /// It does: greater than that of every earlier grant of the same keys.
    Numbered,
}

/// Whether a writer that has to wait holds back new readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queueing {
    /// It does not.
    #[default]
    Silent,
    /// It does, for so long after its latest attempt.
    HoldBack(Duration),
}

/// Someone who is meant to hold some keys, for the operations after the grant.
#[derive(Clone, Debug)]
pub struct Holding {
    keys: Arc<[Key]>,
    family: Family,
    token: Token,
    attempt: Option<Arc<str>>,
    proof: value::Proof,
}

impl Holding {
    /// The holding that `claim` was granted, and no other of its token.
    pub(super) fn of_claim(claim: &Claim) -> Self {
        Self {
            keys: Arc::clone(&claim.keys),
            family: claim.mode.family(),
            token: claim.token.clone(),
            attempt: Some(Arc::clone(&claim.attempt)),
            proof: value::Proof::of_value(claim.value.clone()),
        }
    }

    /// Whatever `token` holds of `keys`.
    pub(super) fn of_token(keys: Arc<[Key]>, family: Family, token: Token) -> Self {
        Self {
            keys,
            family,
            proof: value::Proof::of_token(&token),
            token,
            attempt: None,
        }
    }

    /// The keys.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The kind of lock.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The token.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// The attempt that was granted, or `None` for any of the token's.
    pub fn attempt(&self) -> Option<&str> {
        self.attempt.as_deref()
    }

    /// Whether what an exclusive lock's key holds is this holding's.
    pub fn matches(&self, value: &[u8]) -> bool {
        self.proof.matches(value)
    }

    #[cfg(feature = "redis")]
    pub(super) fn proof(&self) -> &value::Proof {
        &self.proof
    }
}

/// One holder of a lock, as anyone can see it.
#[derive(Clone, Debug)]
pub struct Holder {
    token: Token,
    mode: Mode,
    metadata: Bytes,
    remaining: Remaining,
    attempt: Option<Bytes>,
}

impl Holder {
    /// A holder that a backend found, with the attempt that was granted if that is known.
    pub fn new(mode: Mode, token: Token, attempt: Option<Bytes>, remaining: Remaining) -> Self {
        Self {
            token,
            mode,
            metadata: Bytes::new(),
            remaining,
            attempt,
        }
    }

    /// The same holder with what it says about itself.
    pub fn with_metadata(mut self, metadata: Bytes) -> Self {
        self.metadata = metadata;
        self
    }

    /// Who it is: this is all that is needed to release the lock.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// How it holds the lock.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What it says about itself; empty if nothing.
    pub fn metadata(&self) -> &Bytes {
        &self.metadata
    }

    /// How long it still holds the lock.
    pub fn remaining(&self) -> Remaining {
        self.remaining
    }

    /// An exclusive holder, from what its key holds.
    pub(super) fn from_value(value: &Bytes, remaining: Remaining) -> Self {
        let parts = value::decode(value);
        Self::new(Mode::Exclusive, parts.token, parts.attempt, remaining)
            .with_metadata(parts.metadata)
    }

    /// The claim that must have been granted to this holder.
    pub(super) fn claim(&self, key: &Key) -> Claim {
        let attempt = self.attempt.as_deref().unwrap_or_default();
        let attempt: Arc<str> = String::from_utf8_lossy(attempt).into();
        let value = match self.attempt {
            Some(_) => value::encode(&self.token, &attempt, &self.metadata),
            None => self.token.bytes(),
        };
        Claim {
            keys: [key.clone()].into(),
            mode: self.mode,
            token: self.token.clone(),
            attempt,
            metadata: self.metadata.clone(),
            value,
        }
    }
}

/// How a time to live changes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Extension {
    /// It is this long from now on, whatever it was.
    Replace(Ttl),
    /// So many milliseconds are added to what remains; adding to a persistent lock changes nothing.
    Add {
        /// How many.
        millis: u64,
        /// The name of this addition: it takes effect once, though it may be sent twice.
        once: Arc<str>,
    },
    /// Nothing changes; only what remains is told.
    Tell,
}
