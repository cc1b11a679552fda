//! Integration tests: one binary, real parts.

mod support;
