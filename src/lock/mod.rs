//! Locks for one process and for many: leases with a token and a time to live.

mod acquire;
mod answer;
pub mod backend;
mod builder;
mod claim;
mod error;
mod guard;
mod inflight;
mod key;
mod limits;
mod line;
mod manager;
mod memory;
mod obtain;
mod plan;
#[cfg(feature = "redis")]
mod redis;
mod renew;
mod retry;
mod run;
mod standing;
mod token;
mod value;

#[cfg(feature = "redis")]
pub use self::redis::{RedisLock, Topology};
pub use self::{
    acquire::{Acquire, Attempt, Who},
    answer::{Busy, Obstacle, Released, Remaining},
    backend::Lock,
    builder::Builder,
    claim::{Holder, Mode, Reentry},
    error::{Error, ErrorKind, Operation},
    guard::{Guard, OnDrop},
    key::{DEFAULT_NAMESPACE, Naming},
    limits::{MAX_DURATION, MAX_KEYS, MAX_METADATA, MAX_NAME, MAX_TOKEN},
    manager::LockManager,
    memory::MemoryLock,
    retry::Retry,
    token::Token,
};
