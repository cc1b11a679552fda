//! How an attempt ended, and whom one can ask for.

use super::{
    backend::{Busy, Remaining},
    error::{Error, ErrorKind},
    guard::Guard,
    token::Token,
};

/// Whom [`Acquire::exists`](super::Acquire::exists) looks for.
#[derive(Clone, Debug)]
pub enum Who {
    /// Any holder.
    Anyone,
    /// The holder with this token.
    Token(Token),
}

/// How a single attempt ended.
#[derive(Debug)]
#[must_use = "the guard releases the lock when it is dropped"]
pub enum Attempt {
    /// The lock is held.
    Acquired(Guard),
    /// The same token held it before: see [`Acquire::reentry`](super::Acquire::reentry) and [`LockManager::read`](super::LockManager::read).
    AlreadyHeld(Remaining),
    /// Someone else is in the way.
    Busy(Busy),
}

impl Attempt {
    /// The guard, if the lock was acquired.
    pub fn guard(self) -> Option<Guard> {
        match self {
            Self::Acquired(guard) => Some(guard),
            Self::AlreadyHeld(_) | Self::Busy(_) => None,
        }
    }

    pub(super) fn into_result(self) -> Result<Guard, Error> {
        match self {
            Self::Acquired(guard) => Ok(guard),
            Self::AlreadyHeld(_) => Err(Error::new(ErrorKind::AlreadyHeld)),
            Self::Busy(busy) => Err(Error::held_by_another(busy)),
        }
    }
}
