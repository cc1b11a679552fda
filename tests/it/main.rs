//! Integration tests: one binary, real parts.

#[cfg(test)]
mod disconnect;
#[cfg(test)]
mod http_answers;
#[cfg(test)]
mod http_options;
#[cfg(test)]
mod http_revalidation;
#[cfg(test)]
mod http_support;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod support;
