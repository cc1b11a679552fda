//! What a failing tier means to the one who asked it.

use std::{error::Error, fmt};

use crate::body::BoxError;

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

/// Whether the next one who asks would fare better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The tier is not there.
    Unreachable,
    /// It is there, and refused this one operation.
    Refused,
}

impl Outage {
    pub(super) fn timed_out(source: impl Into<BoxError>) -> Self {
        Self {
            effect: Effect::Unknown,
            fault: Fault::Unreachable,
            source: source.into(),
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
