//! Tower middleware that protects expensive handlers from cache stampedes.
//!
//! When a popular entry expires, or is cold after a deploy, a thousand requests reach its handler at
//! once. With a [`BufferLayer`] around it one of them does: the others wait for that response, get a
//! stale one, or fall back when they have waited long enough. With Redis the same holds for all
//! workers together. When Redis fails, each worker goes on by itself.
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # fn app() -> Result<axum::Router, Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use axum::{Router, routing::get};
//! use tower_stampede::{BufferLayer, Cache};
//!
//! # async fn report() -> &'static str { "" }
//! let cache = Cache::builder().namespace("shop").build()?; // .redis("redis://127.0.0.1/") for more than one worker
//!
//! let app = Router::new().route("/report", get(report)).layer(
//!     BufferLayer::new(cache.clone())
//!         .ttl(Duration::from_secs(60))
//!         .stale_while_revalidate(Duration::from_secs(30)),
//! );
//! # Ok(app)
//! # }
//! ```
//!
//! # The way of a request
//!
//! ```text
//! request ─► eligible? ── no ──────────────────────────────► inner service, untouched (bypass)
//!               │ yes
//!               ▼
//!              key ─► local entry, fresh ──────────────────► answer: no await, no lock, no Redis
//!               │     stale while it is refreshed ─────────► answer; one refresh in the background
//!               ▼
//!            flight: join it, or start it
//!               │
//!               ▼
//!     claim: one trip to Redis ─► entry ───────────────────► answer all in the flight
//!               │               ─► busy: wait for the worker that builds, then claim again
//!               ▼ leased, or Redis is down
//!             build ─► judge ─► answer all in the flight ─► fill: one trip to Redis
//! ```
//!
//! # What is cached
//!
//! GET and HEAD requests without content, `Authorization` or `Cookie`, whose response states a
//! lifetime (`CDN-Cache-Control`, `s-maxage`, `max-age`, `Expires`) or gets the layer's
//! [`ttl`](BufferLayer::ttl), and does not forbid it (`no-store`, `private`, `Set-Cookie`,
//! `Vary: *`). Responses that state nothing are shared among those who ask at the same time and not
//! stored. Every answer says in `Cache-Status` (RFC 9211) what happened to it.
//!
//! # What fails, and what happens then
//!
//! | failure | what the requests see |
//! |---|---|
//! | the handler answers 5xx | its own request gets it, the others the same response or a stale entry; remembered for a second |
//! | the handler panics or errs | its own request sees that, the others 500 or a stale entry |
//! | the handler hangs | waiters fall back after [`wait_timeout`](BufferLayer::wait_timeout), the build ends at [`build_timeout`](BufferLayer::build_timeout) |
//! | a client goes away | nobody else notices |
//! | a worker dies while it builds | another one takes over when its lease has run out |
//! | Redis is slow, full, frozen or gone | one time budget at most, then one build per worker |
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `redis` | yes | the shared tier, and locks, on Redis |
//! | `tls` | no | `rediss://`: Redis through TLS |
//! | `memcached` | no | a [`store`] on Memcached, to be paired with any locks |
//! | `compression` | no | large bodies may take less room in the shared tier |
//! | `axum` | yes | the key reads axum's `OriginalUri`, so that nested routers do not collide |
//!
//! The [`lock`] module stands on its own: exclusive and shared locks, in memory and on Redis.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "redis"),
    expect(
        dead_code,
        reason = "of the shared tiers only Redis has events, and a server to configure"
    )
)]

mod answer;
mod asked;
pub mod body;
mod cache;
mod caught;
mod chain;
mod control;
mod early;
mod entry;
mod exchange;
mod flight;
mod future;
mod http;
mod invalidation;
mod judge;
mod key;
mod layer;
#[cfg(feature = "redis")]
mod link;
mod local;
pub mod lock;
mod memos;
mod outcome;
mod pace;
mod policy;
mod purges;
mod service;
mod shared;
mod slot;
mod status;
pub mod store;
mod survey;
mod switch;
mod tags;
mod task;
mod telling;
mod time;
mod token;
mod warm;

#[cfg(feature = "redis")]
pub use self::link::RedisConfig;
pub use self::{
    cache::{
        BuildError, BuildErrorKind, Cache, CacheBuilder, Health, LinkHealth, LinkState, PurgeError,
        Purged, SharedFailures, Stats, Target,
    },
    control::{CacheTags, CacheTtl, NoCache},
    future::ResponseFuture,
    key::{KeyWriter, Keyed, QueryKey},
    layer::BufferLayer,
    outcome::CacheOutcome,
    policy::{Fallback, Mode, OnDisconnect, RequestDirectives},
    service::BufferService,
    switch::Switch,
    warm::{Progress, Warm},
};
