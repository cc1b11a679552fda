//! The link to Redis: one supervised connection that fails fast, heals by itself and never panics.
//!
//! ```text
//!  callers --query/invoke--> Link --admit?--> MultiplexedConnection --> Redis
//!                             | state.rs          ^ replaced after 3 timeouts in a row,
//!                             v                   | a lost or garbled stream, READONLY
//!                        supervisor: one task, jittered back-off, a fresh client each time
//! ```
//!
//! The client's own reconnecting manager keeps a frozen socket for ever and lets commands wait while it reconnects;
//! hence this one. In a [`cluster`] there is one to each node.

mod access;
mod backoff;
mod cluster;
mod config;
mod connect;
mod error;
mod health;
#[expect(clippy::module_inception, reason = "the type that the folder is about")]
mod link;
mod logs;
mod request;
mod route;
mod script;
mod sentinel;
mod server;
mod state;
mod subscription;
mod supervisor;
#[cfg(test)]
pub(crate) mod support;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;

pub use self::config::RedisConfig;
pub(crate) use self::{
    cluster::{Ear, Router, ShardedListener},
    config::{ConfigError, ConfigFault},
    error::{Error, Kind},
    health::Health,
    link::Link,
    route::Route,
    script::{Call, Script},
    server::Server,
    state::Phase,
    subscription::{Listener, Signal, Subscription},
};

/// So many commands may be in flight on one link; more are turned away at once.
const QUEUE: usize = 1024;

/// How long a link tries.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// For resolving, connecting and logging in.
    pub(crate) connect_timeout: Duration,
    /// For a command, from the call to the reply.
    pub(crate) command_timeout: Duration,
    /// What logs and health call the link: "commands", "fills".
    pub(crate) name: &'static str,
}
