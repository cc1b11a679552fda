//! Tower middleware that protects expensive handlers from cache stampedes.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod asked;
pub mod body;
mod cache;
mod entry;
mod exchange;
mod flight;
mod future;
mod http;
mod judge;
mod key;
mod layer;
#[cfg(feature = "redis")]
mod link;
mod local;
pub mod lock;
mod policy;
mod purges;
mod service;
mod shared;
mod status;
mod task;
mod time;
mod token;

pub use self::{
    cache::{BuildError, BuildErrorKind, Cache, CacheBuilder, PurgeError, Stats},
    future::ResponseFuture,
    key::{KeyWriter, Keyed, QueryKey},
    layer::BufferLayer,
    policy::{Fallback, Mode, OnDisconnect},
    service::BufferService,
};
