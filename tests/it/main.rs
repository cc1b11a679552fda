//! Integration tests: one binary, real parts.

#[cfg(test)]
mod support;
