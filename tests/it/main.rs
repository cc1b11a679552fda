//! Integration tests: one binary, real parts.
#![expect(
    clippy::disallowed_methods,
    reason = "tests are the callers that spawn"
)]

#[cfg(test)]
mod coalescing;
#[cfg(test)]
mod disconnect;
#[cfg(test)]
mod http_answers;
#[cfg(test)]
mod http_support;
#[cfg(all(test, feature = "redis"))]
mod leases;
mod lock_exclusive;
mod lock_extend;
#[cfg(feature = "redis")]
mod lock_faults;
mod lock_ground;
mod lock_input;
mod lock_model;
mod lock_multi;
mod lock_shared;
mod lock_token;
mod lock_wait;
#[cfg(feature = "redis")]
mod lock_wire;
#[cfg(all(test, feature = "redis"))]
mod redis_faults;
#[cfg(all(test, feature = "redis"))]
mod shared;
#[cfg(test)]
mod support;
