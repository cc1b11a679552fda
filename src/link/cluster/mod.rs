//! A Redis Cluster: each command goes to the node that holds its slot.
//!
//! ```text
//!  invoke --slot--> Router --SlotMap--> Link of the node --> Redis
//!                     ^                    | MOVED: the map is corrected, and learnt anew in the background
//!                     |                    | ASK: asked there, this once
//!                     +--- journey.rs <----+ TRYAGAIN, CLUSTERDOWN: again after a pause, within the deadline
//!                                            a node that is down: where the map leads once it is learnt anew
//! ```
//!
//! What may have run is never sent again: after a timeout or a lost connection the outcome is unknown.
//! The client's own Cluster connection does send such things again, waits beyond any deadline while it
//! reconnects and keeps a frozen node's socket; hence this one, over one [`Link`](super::Link) to each node.

mod address;
mod journey;
mod known;
mod look;
mod map;
mod nodes;
mod pace;
mod redirection;
mod router;
mod sharded;
mod topology;

pub(super) use self::{address::at, redirection::Redirection};
pub(crate) use self::{
    known::Cluster,
    router::Router,
    sharded::{Ear, ShardedListener},
};
