//! Integration tests: one binary, real parts.

#[cfg(test)]
mod disconnect;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod support;
