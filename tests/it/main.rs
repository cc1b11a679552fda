//! Integration tests: one binary, real parts.

#[cfg(test)]
mod coalescing;
#[cfg(all(test, feature = "redis"))]
mod shared;
#[cfg(test)]
mod support;
