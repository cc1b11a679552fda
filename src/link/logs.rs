//! One line for each change of a link's state.

use std::time::Duration;

use super::{error::Error, state::Change};
use crate::chain::Chain;

/// `node`: which one of several servers it leads to.
pub(super) fn changed(link: &'static str, node: Option<&str>, change: &Change) {
    match change {
        Change::Connected => connected(link, node),
        Change::Healed { after } => healed(link, node, *after),
        Change::Broke(cause) => broke(link, node, cause),
    }
}

fn connected(link: &'static str, node: Option<&str>) {
    tracing::debug!(link, node, "connected to Redis");
}

fn healed(link: &'static str, node: Option<&str>, after: Duration) {
    tracing::info!(link, node, ?after, "connected to Redis again");
}

fn broke(link: &'static str, node: Option<&str>, cause: &Error) {
    tracing::warn!(link, node, cause = %Chain(cause), "not connected to Redis: going on without it");
}

pub(super) fn cluster_unknown(cause: &Error) {
    tracing::warn!(cause = %Chain(cause), "no node tells of the Cluster");
}

pub(super) fn cluster_known() {
    tracing::info!("a node tells of the Cluster again");
}

/// Told once for each node, until it has let somebody listen.
pub(super) fn shards_refused(node: &str, cause: &Error) {
    tracing::info!(node, cause = %Chain(cause), "no sharded channels: going on without them");
}
