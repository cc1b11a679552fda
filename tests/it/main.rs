//! Integration tests: one binary, real parts.
#![expect(clippy::disallowed_methods, reason = "tests are the callers that spawn")]

#[cfg(test)]
mod disconnect;
#[cfg(test)]
mod http_answers;
#[cfg(test)]
mod http_support;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod support;
