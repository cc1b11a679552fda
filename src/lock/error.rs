//! Why an operation on a lock failed.

use std::{error, fmt, sync::Arc};

use super::{answer::Busy, key::Key, limits::Fault};
#[cfg(feature = "redis")]
use crate::link::ConfigError;

/// A failed operation on a lock.
///
/// It names the operation and the lock's key, never the lock's name or its token. [`kind`](Self::kind)
/// tells what a caller can act on; the cause, if there is one, is the
/// [`source`](error::Error::source).
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    operation: Option<Operation>,
    key: Option<Key>,
    detail: Detail,
    source: Option<Source>,
}

type Source = Arc<dyn error::Error + Send + Sync>;

#[derive(Clone)]
enum Detail {
    None,
    Fault(Fault),
    Busy(Busy),
    Code(Box<str>),
}

/// What a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is out of its limits; nothing was sent.
    InvalidInput,
    /// Someone else holds the lock, and the wait for it is over.
    Busy,
    /// The same token holds the lock already, and the request does not allow to take it again.
    AlreadyHeld,
    /// The lock is not held by this guard or token (any more).
    NotHeld,
    /// The lock was granted, but the answer came when its time was already over.
    TooLate,
    /// The backend cannot be reached; nothing was sent.
    Unavailable,
    /// No answer came: the operation may have happened or may still happen. An acquisition is
    /// compensated in the background.
    OutcomeUnknown,
    /// The backend answered with an error; see [`Error::code`].
    Refused,
    /// The backend's answer could not be understood.
    Protocol,
    /// The keys do not lie in one slot of the Cluster; nothing was sent.
    CrossSlot,
    /// The backend has no such operation.
    Unsupported,
    /// The manager was closed.
    Closed,
    /// The operating system gave no random bytes.
    Entropy,
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Building a manager.
    Build,
    /// Checking that the backend answers.
    Connect,
    /// Taking a lock.
    Acquire,
    /// Taking back an acquisition of unknown outcome.
    Withdraw,
    /// Giving a lock back.
    Release,
    /// Changing a lock's time to live.
    Extend,
    /// Asking who holds a lock.
    Inspect,
    /// Removing every holder.
    ForceRelease,
    /// Listening for releases.
    Watch,
}

impl Error {
    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done.
    pub fn operation(&self) -> Option<Operation> {
        self.0.operation
    }

    /// The key of the lock (the first one of several): a digest of its name, unless the manager
    /// has a key function of its own.
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_ref().map(Key::as_str)
    }

    /// The first word of the error that the backend answered with, such as `"WRONGTYPE"`.
    pub fn code(&self) -> Option<&str> {
        match &self.0.detail {
            Detail::Code(code) => Some(code),
            _ => None,
        }
    }

    /// What is known about the holder that was in the way.
    pub fn busy(&self) -> Option<&Busy> {
        match &self.0.detail {
            Detail::Busy(busy) => Some(busy),
            _ => None,
        }
    }

    /// Whether the operation may have happened, or may still happen.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self.0.kind, ErrorKind::OutcomeUnknown | ErrorKind::Protocol)
    }

    /// For backends: it cannot be reached and nothing was sent.
    pub fn unavailable(source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Unavailable).because(source.into())
    }

    /// For backends: no answer came, so nobody knows whether the operation happened.
    pub fn unknown(source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        Self::new(ErrorKind::OutcomeUnknown).because(source.into())
    }

    /// For backends: the answer has an unexpected shape.
    pub fn protocol(source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Protocol).because(source.into())
    }

    /// For backends: the operation was answered with an error and did not happen.
    pub fn refused(
        code: impl Into<Box<str>>,
        source: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        let mut error = Self::new(ErrorKind::Refused).because(source.into());
        error.0.detail = Detail::Code(code.into());
        error
    }

    /// For backends: the operation does not exist here.
    pub fn unsupported() -> Self {
        Self::new(ErrorKind::Unsupported)
    }

    /// For backends: the keys lie in different slots.
    pub fn cross_slot() -> Self {
        Self::new(ErrorKind::CrossSlot)
    }

    /// Whether trying again later can help without anybody changing anything.
    pub(super) fn is_transient(&self) -> bool {
        match self.0.kind {
            ErrorKind::Unavailable | ErrorKind::OutcomeUnknown | ErrorKind::TooLate => true,
            ErrorKind::Refused => matches!(
                self.code(),
                Some(
                    "LOADING"
                        | "MASTERDOWN"
                        | "CLUSTERDOWN"
                        | "TRYAGAIN"
                        | "BUSY"
                        | "READONLY"
                        | "MOVED"
                        | "ASK"
                )
            ),
            _ => false,
        }
    }

    pub(super) fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Inner {
            kind,
            operation: None,
            key: None,
            detail: Detail::None,
            source: None,
        }))
    }

    pub(super) fn held_by_another(busy: Busy) -> Self {
        let mut error = Self::new(ErrorKind::Busy);
        error.0.detail = Detail::Busy(busy);
        error
    }

    pub(super) fn entropy(source: getrandom::Error) -> Self {
        Self::new(ErrorKind::Entropy).because(source.into())
    }

    #[cfg(feature = "redis")]
    pub(super) fn misconfigured(error: ConfigError) -> Self {
        let mut own = Self::from(Fault::Redis(error.fault()));
        own.0.source = error.cause().map(|cause| -> Source { cause });
        own
    }

    /// Says what was being done, unless that is known already.
    pub(super) fn during(mut self, operation: Operation) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Says which lock it was about, unless that is known already.
    pub(super) fn on(mut self, key: &Key) -> Self {
        self.0.key.get_or_insert_with(|| key.clone());
        self
    }

    fn because(mut self, source: Box<dyn error::Error + Send + Sync>) -> Self {
        self.0.source = Some(source.into());
        self
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let mut error = Self::new(ErrorKind::InvalidInput);
        error.0.detail = Detail::Fault(fault);
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = self.0.operation {
            write!(f, "{operation}")?;
            if let Some(key) = &self.0.key {
                write!(f, " of lock {key}")?;
            }
            f.write_str(" failed: ")?;
        }
        match (&self.0.detail, self.0.kind) {
            (Detail::Fault(fault), _) => write!(f, "{fault}"),
            (Detail::Busy(busy), _) => write!(f, "{busy}"),
            (Detail::Code(code), _) => write!(f, "the backend refused it with {code}"),
            (Detail::None, kind) => write!(f, "{kind}"),
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidInput => "an argument is invalid",
            Self::Busy => "someone else holds it",
            Self::AlreadyHeld => "this token holds it already",
            Self::NotHeld => "it is not held",
            Self::TooLate => "the answer came when the time to live was over",
            Self::Unavailable => "the backend cannot be reached",
            Self::OutcomeUnknown => "no answer came, the outcome is unknown",
            Self::Refused => "the backend refused it",
            Self::Protocol => "the answer has an unexpected shape",
            Self::CrossSlot => "the keys do not lie in one slot",
            Self::Unsupported => "the backend has no such operation",
            Self::Closed => "the manager was closed",
            Self::Entropy => "the operating system gave no random bytes",
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Build => "build",
            Self::Connect => "connect",
            Self::Acquire => "acquire",
            Self::Withdraw => "withdraw",
            Self::Release => "release",
            Self::Extend => "extend",
            Self::Inspect => "inspect",
            Self::ForceRelease => "force release",
            Self::Watch => "watch",
        })
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.0.kind);
        if let Some(operation) = self.0.operation {
            debug.field("operation", &operation);
        }
        if let Some(key) = &self.0.key {
            debug.field("key", &key.as_str());
        }
        match &self.0.detail {
            Detail::None => {}
            Detail::Fault(fault) => drop(debug.field("fault", &fault)),
            Detail::Busy(busy) => drop(debug.field("busy", &busy)),
            Detail::Code(code) => drop(debug.field("code", &code)),
        }
        if let Some(source) = &self.0.source {
            debug.field("source", &source);
        }
        debug.finish()
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        let source: &(dyn error::Error + 'static) = self.0.source.as_deref()?;
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_shows_one_level_and_the_key_and_keeps_the_cause_as_source() {
        let key = Key::new("buffer:lock:00".to_owned()).unwrap();

        let error = Error::unavailable("no route")
            .during(Operation::Release)
            .on(&key);

        assert_eq!(
            error.to_string(),
            "release of lock buffer:lock:00 failed: the backend cannot be reached"
        );
        assert_eq!(
            error::Error::source(&error).unwrap().to_string(),
            "no route"
        );
    }

    #[test]
    fn a_refusal_has_a_code_and_only_passing_ones_are_worth_another_attempt() {
        assert!(Error::refused("LOADING", "x").is_transient());
        assert!(!Error::refused("WRONGTYPE", "x").is_transient());
        assert_eq!(Error::refused("OOM", "x").code(), Some("OOM"));
    }

    /// What a backend of one's own says, as its caller sees it.
    #[test]
    fn each_maker_for_backends_has_its_kind() {
        let cases = [
            (Error::unavailable("x"), ErrorKind::Unavailable, false),
            (Error::unknown("x"), ErrorKind::OutcomeUnknown, true),
            (Error::protocol("x"), ErrorKind::Protocol, true),
            (Error::refused("OOM", "x"), ErrorKind::Refused, false),
            (Error::unsupported(), ErrorKind::Unsupported, false),
            (Error::cross_slot(), ErrorKind::CrossSlot, false),
        ];
        for (error, kind, unknown) in cases {
            assert_eq!(error.kind(), kind);
            assert_eq!(error.outcome_unknown(), unknown, "{kind:?}");
        }
        assert_eq!(
            Error::cross_slot().to_string(),
            "the keys do not lie in one slot"
        );
        assert!(!Error::cross_slot().is_transient());
    }

    #[test]
    fn the_first_operation_and_key_stay() {
        let error = Error::new(ErrorKind::NotHeld)
            .during(Operation::Extend)
            .during(Operation::Release);

        assert_eq!(error.operation(), Some(Operation::Extend));
    }
}
