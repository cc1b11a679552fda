//! Scaffolding that the tests share.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_in_result,
    dead_code,
    missing_debug_implementations,
    unreachable_pub,
    reason = "each test crate uses its own part of the scaffolding"
)]

pub mod client;
#[cfg(feature = "redis")]
pub mod cluster;
pub mod log;
#[cfg(feature = "memcached")]
pub mod memcached;
pub mod origin;
pub mod pairs;
#[cfg(feature = "redis")]
pub mod process;
#[cfg(feature = "redis")]
pub mod proxy;
#[cfg(feature = "redis")]
pub mod redis;
pub mod serving;
#[cfg(feature = "redis")]
pub mod site;
#[cfg(feature = "redis")]
pub mod tiers;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "redis")]
pub mod wire;
pub mod worker;
