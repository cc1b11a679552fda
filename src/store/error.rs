//! Why a store failed.

use std::{error, fmt};

use crate::body::BoxError;

/// A failed operation of a store. It names neither a record nor a value.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    source: BoxError,
}

/// What is known of an operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What the store was configured with makes no sense; nothing was sent.
    InvalidInput,
    /// The store cannot be reached; nothing was sent.
    Unavailable,
    /// No answer came: the operation may have happened or may still happen.
    OutcomeUnknown,
    /// The store is there, and refused this one operation.
    Refused,
}

impl Error {
    /// The store cannot be reached and nothing was sent.
    pub fn unavailable(source: impl Into<BoxError>) -> Self {
        Self::new(ErrorKind::Unavailable, source)
    }

    /// No answer came, so nobody knows whether the operation happened.
    pub fn unknown(source: impl Into<BoxError>) -> Self {
        Self::new(ErrorKind::OutcomeUnknown, source)
    }

    /// The operation was answered with an error and did not happen.
    pub fn refused(source: impl Into<BoxError>) -> Self {
        Self::new(ErrorKind::Refused, source)
    }

    pub(super) fn new(kind: ErrorKind, source: impl Into<BoxError>) -> Self {
        let source = source.into();
        Self { kind, source }
    }

    /// What is known of it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ErrorKind::InvalidInput => "the store's settings make no sense",
            ErrorKind::Unavailable => "the store cannot be reached",
            ErrorKind::OutcomeUnknown => "no answer came from the store, the outcome is unknown",
            ErrorKind::Refused => "the store refused it",
        })
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&*self.source)
    }
}
