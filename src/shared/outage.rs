//! What a failing tier means to the one who asked it.

use std::{error::Error, fmt};

use super::breaker::Permit;
use crate::{body::BoxError, chain::Chain};

/// A failure of the tier. `Display` never shows a key or a value.
#[derive(Debug)]
pub(crate) struct Outage {
    pub(crate) effect: Effect,
    pub(crate) fault: Fault,
    pub(crate) source: BoxError,
}

/// Whether what was asked may have taken effect, or may do so later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    Unknown,
}

/// What was the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The tier is not there, or out of service for the moment.
    Unreachable,
    /// No answer came in time.
    TimedOut,
    /// The connection ended before the answer.
    Lost,
    /// So much is under way that it was not even asked.
    Overloaded,
    /// It is there, and the part of it that was asked is not, or is on its way elsewhere.
    Partial,
    /// It is there, and refused this one operation.
    Refused,
    /// It is there, and has no room.
    OutOfMemory,
    /// It is there, and its answer makes no sense.
    Garbled,
}

/// What a fault says to the next one who would ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// The tier is gone: do without.
    Gone,
    /// It is there.
    There,
    /// Too many ask, whether it is there or not.
    None,
}

impl Fault {
    pub(super) fn sign(self) -> Sign {
        match self {
            Self::Unreachable | Self::TimedOut | Self::Lost => Sign::Gone,
            Self::Partial | Self::Refused | Self::OutOfMemory | Self::Garbled => Sign::There,
            Self::Overloaded => Sign::None,
        }
    }

    /// Whether the same will come of it when it is asked again.
    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::Refused | Self::OutOfMemory | Self::Garbled)
    }
}

impl Outage {
    pub(super) fn timed_out(source: impl Into<BoxError>) -> Self {
        Self {
            effect: Effect::Unknown,
            fault: Fault::TimedOut,
            source: source.into(),
        }
    }

    /// What led to it, for a line in the log.
    pub(super) fn reason(&self) -> impl fmt::Display {
        Chain(&*self.source)
    }

    /// Tells the breaker what is to be made of it.
    pub(super) fn tell(&self, permit: Permit) {
        match self.fault.sign() {
            Sign::Gone => permit.failed(self.reason()),
            Sign::There => permit.succeeded(),
            Sign::None => drop(permit),
        }
    }

    /// Nobody is left to ask.
    pub(crate) fn without_runtime() -> Self {
        Self {
            source: "the runtime has ended".into(),
            ..Self::broken()
        }
    }

    /// Nobody asked, since the breaker is open.
    pub(super) fn broken() -> Self {
        Self {
            effect: Effect::None,
            fault: Fault::Unreachable,
            source: "the breaker is open".into(),
        }
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the shared tier failed")
    }
}

impl Error for Outage {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
