#![doc = include_str!("../../docs/locks.md")]

mod acquire;
mod answer;
mod attempt;
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
pub use self::redis::RedisLock;
pub use self::{
    acquire::Acquire,
    answer::{Busy, Obstacle, Released, Remaining},
    attempt::{Attempt, Who},
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
