//! One line for each change of a link's state.

use std::{
    error::Error as _,
    fmt::{self, Display, Formatter},
    time::Duration,
};

use super::{error::Error, state::Change};

pub(super) fn changed(link: &'static str, change: &Change) {
    match change {
        Change::Connected => connected(link),
        Change::Healed { after } => healed(link, *after),
        Change::Broke(cause) => broke(link, cause),
    }
}

fn connected(link: &'static str) {
    tracing::debug!(link, "connected to Redis");
}

fn healed(link: &'static str, after: Duration) {
    tracing::info!(link, ?after, "connected to Redis again");
}

fn broke(link: &'static str, cause: &Error) {
    tracing::warn!(link, cause = %Chain(cause), "not connected to Redis: going on without it");
}

/// An error and what led to it, on one line.
struct Chain<'a>(&'a Error);

impl Display for Chain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
