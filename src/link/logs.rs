//! One line for each change of a link's state.

use std::error::Error as _;

use super::{error::Error, state::Change};

pub(super) fn changed(link: &'static str, change: &Change) {
    match change {
        Change::Connected => tracing::debug!(link, "connected to Redis"),
        Change::Healed { after } => {
            tracing::info!(link, ?after, "connected to Redis again");
        }
        Change::Broke(cause) => {
            tracing::warn!(link, cause = %Chain(cause), "not connected to Redis: going on without it");
        }
    }
}

/// An error and what led to it, on one line.
struct Chain<'a>(&'a Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
