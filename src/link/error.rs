//! Why a command failed, as far as the caller can act on it.

use std::{error, fmt, sync::Arc};

use redis::RedisError;

use super::cluster::Redirection;

/// A failed command or a failed connection.
///
/// `Display` shows one level and never a key or a value: of what the server said only the code is kept,
/// since its messages may quote arguments.
#[derive(Clone, Debug)]
pub(crate) struct Error {
    reason: Reason,
    source: Option<Source>,
}

type Source = Arc<dyn error::Error + Send + Sync>;

/// What is known about a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// It was not sent: the link is broken, its queue is full, or connecting failed.
    Unavailable,
    /// It was sent and no reply came in time: it may have run, or may run later.
    TimedOut,
    /// It was sent and the connection ended before the reply: it may have run.
    Lost,
    /// The server answered with an error, named by [`Error::code`].
    Refused,
    /// It ran, and the reply has an unexpected shape.
    Garbled,
}

#[derive(Clone, Debug)]
enum Reason {
    Broken,
    Overloaded,
    ConnectTimedOut,
    ConnectFailed,
    TimedOut,
    Lost,
    Protocol,
    Deposed,
    Refused(Box<str>),
    Redirected(Box<Redirection>),
    PartlyDown,
    Garbled,
}

impl Error {
    pub(crate) fn kind(&self) -> Kind {
        match self.reason {
            Reason::Broken
            | Reason::Overloaded
            | Reason::ConnectTimedOut
            | Reason::ConnectFailed
            | Reason::PartlyDown => Kind::Unavailable,
            Reason::TimedOut => Kind::TimedOut,
            Reason::Lost | Reason::Protocol | Reason::Deposed => Kind::Lost,
            Reason::Refused(_) | Reason::Redirected(_) => Kind::Refused,
            Reason::Garbled => Kind::Garbled,
        }
    }

    /// The first word of the server's error, such as `"OOM"`, `"NOPERM"` or `"READONLY"`.
    pub(crate) fn code(&self) -> Option<&str> {
        match &self.reason {
            Reason::Refused(code) => Some(code),
            Reason::Redirected(redirection) => Some(redirection.code()),
            _ => None,
        }
    }

    /// Whether the command may have taken effect, now or later, so that it must be compensated.
    pub(crate) fn outcome_unknown(&self) -> bool {
        matches!(self.kind(), Kind::TimedOut | Kind::Lost | Kind::Garbled)
    }

    /// Whether it was not sent because of all that is under way already.
    pub(crate) fn is_overload(&self) -> bool {
        matches!(self.reason, Reason::Overloaded)
    }

    /// Whether the one node of a Cluster is down that the command is for, while others are there: trying
    /// others costs nobody any time.
    pub(crate) fn is_partial(&self) -> bool {
        matches!(self.reason, Reason::PartlyDown)
    }

    /// The node that is to be asked in place of the one that answered.
    pub(super) fn redirection(&self) -> Option<&Redirection> {
        match &self.reason {
            Reason::Redirected(redirection) => Some(redirection),
            _ => None,
        }
    }

    /// Whether nothing was sent, since nothing leads to the server.
    pub(super) fn is_down(&self) -> bool {
        matches!(
            self.reason,
            Reason::Broken | Reason::ConnectTimedOut | Reason::ConnectFailed | Reason::PartlyDown
        )
    }

    /// The same, where other nodes are there.
    pub(super) fn partial(self) -> Self {
        Self {
            reason: Reason::PartlyDown,
            source: self.source,
        }
    }

    /// Not sent, since the link is down because of `cause`.
    pub(super) fn broken(cause: Option<&Arc<Self>>) -> Self {
        let source = cause.cloned().map(|cause| -> Source { cause });
        Self {
            reason: Reason::Broken,
            source,
        }
    }

    pub(super) fn overloaded() -> Self {
        Reason::Overloaded.into()
    }

    pub(super) fn connect_timed_out() -> Self {
        Reason::ConnectTimedOut.into()
    }

    pub(super) fn connect_failed(source: impl error::Error + Send + Sync + 'static) -> Self {
        Self {
            reason: Reason::ConnectFailed,
            source: Some(Arc::new(source)),
        }
    }

    pub(super) fn timed_out() -> Self {
        Reason::TimedOut.into()
    }

    /// Whoever sent it has ended before the reply.
    pub(crate) fn interrupted() -> Self {
        Self::lost()
    }

    pub(super) fn lost() -> Self {
        Reason::Lost.into()
    }

    pub(super) fn deposed() -> Self {
        Reason::Deposed.into()
    }

    pub(super) fn garbled() -> Self {
        Reason::Garbled.into()
    }

    pub(super) fn refused(code: &str) -> Self {
        Reason::Refused(code.into()).into()
    }

    pub(super) fn redirected(redirection: Redirection) -> Self {
        Reason::Redirected(Box::new(redirection)).into()
    }

    /// An error that the client reported for a command it was given.
    pub(super) fn from_reply(error: RedisError) -> Self {
        if let Some(code) = error.code() {
            let redirection = error
                .redirect_node()
                .and_then(|(place, slot)| Redirection::read(code, slot, place));
            return redirection.map_or_else(|| Self::refused(code), Self::redirected);
        }
        if error.kind() == redis::ErrorKind::Parse {
            return Reason::Protocol.into();
        }
        Self {
            reason: Reason::Lost,
            source: Some(Arc::new(error)),
        }
    }

    /// Whether the connection that this came from must not be used any more.
    pub(super) fn condemns_connection(&self) -> bool {
        match self.kind() {
            Kind::Lost => true,
            // A demoted primary keeps its connections; only a new one may lead to its successor.
            Kind::Refused => matches!(self.code(), Some("READONLY" | "NOAUTH")),
            Kind::Unavailable | Kind::TimedOut | Kind::Garbled => false,
        }
    }
}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            source: None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.reason {
            Reason::Broken => "the connection to Redis is down",
            Reason::Overloaded => "too many commands to Redis are in flight",
            Reason::ConnectTimedOut => "connecting to Redis took too long",
            Reason::ConnectFailed => "connecting to Redis failed",
            Reason::TimedOut => "Redis did not answer in time",
            Reason::Lost => "the connection to Redis was lost before the reply",
            Reason::Protocol => "what came from Redis breaks its protocol",
            Reason::Deposed => "the server is not the one to talk to any more",
            Reason::Garbled => "the reply from Redis has an unexpected shape",
            Reason::PartlyDown => "this part of the Redis Cluster is down",
            Reason::Refused(_) | Reason::Redirected(_) => {
                let code = self.code().unwrap_or_default();
                return write!(f, "Redis refused the command: {code}");
            }
        })
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        let source: &(dyn error::Error + 'static) = self.source.as_deref()?;
        Some(source)
    }
}
