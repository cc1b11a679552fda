//! Integration tests: one binary, real parts.

mod lock_exclusive;
mod lock_ground;
mod support;
