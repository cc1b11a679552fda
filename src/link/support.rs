//! The integration tests' scaffolding, for the tests of what is private to the crate.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_in_result,
    dead_code,
    missing_debug_implementations,
    unreachable_pub,
    reason = "each test crate uses its own part of the scaffolding"
)]

#[path = "../../tests/it/support/proxy.rs"]
pub(crate) mod proxy;
#[path = "../../tests/it/support/redis.rs"]
pub(crate) mod redis;
