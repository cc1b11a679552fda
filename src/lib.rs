//! Tower middleware that protects expensive handlers from cache stampedes.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod http;
#[cfg(feature = "redis")]
mod link;
pub mod lock;
mod task;
mod time;
mod token;
