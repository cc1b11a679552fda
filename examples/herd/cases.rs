//! The cases: what the expensive handler does, and how the layer before it is set up.

use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use clap::ValueEnum;
use http::{StatusCode, header};
use tokio::time::sleep;
use tower_stampede::{BufferLayer, Cache};

use crate::faults::Fault;

const SMALL: usize = 1024;
/// The layer's limit in the case of a large body, and the body beyond it.
const LARGEST_STORED: usize = 64 * 1024;
const LARGE: usize = 256 * 1024;

/// A lifetime that a herd outlives and that is soon over.
pub(crate) const SHORT_LIFE: Duration = Duration::from_secs(2);

/// What is asked for again and again expires before, while and after Redis fails.
const HOT_LIFE: Duration = Duration::from_secs(1);

/// How the layer is set up beyond what the case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Plain,
    /// What is stale answers while it is refreshed.
    Stale,
    /// Hits refresh what will soon be stale.
    Early,
}

impl Manner {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Stale, Self::Early];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Plain => "/protected",
            Self::Stale => "/protected-stale",
            Self::Early => "/protected-early",
        }
    }

    fn of(self, layer: BufferLayer) -> BufferLayer {
        match self {
            Self::Plain => layer,
            Self::Stale => layer.stale_while_revalidate(Duration::from_secs(60)),
            Self::Early => layer.early_refresh(1.0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// Nothing is stored yet.
    Cold,
    /// What was stored has just expired.
    Expired,
    /// The handler answers 500.
    Failing,
    /// The handler panics.
    Panicking,
    /// The response says `no-store`; then a second wave.
    Uncacheable,
    /// The first client leaves after 20 ms.
    Disconnect,
    /// The build takes twice the time that the layer lets a request wait.
    Slow,
    /// The body is larger than the layer stores.
    Large,
    /// Redis stands still for two seconds: its connections stay open, and nothing answers.
    RedisFrozen,
    /// Redis is killed, and started again after two seconds, with nothing in it.
    RedisKilled,
    /// Redis is killed, started, frozen and thawed, several times in two seconds.
    RedisFlapping,
}

impl Case {
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    /// Whether it is told how many had to wait.
    pub(crate) fn counts_waits(self) -> bool {
        self == Self::Expired
    }

    /// What is run if nothing is asked for: all that needs no server.
    pub(crate) fn usual() -> Vec<Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(|case| case.fault().is_none()).collect()
    }

    /// What is done to Redis meanwhile.
    pub(crate) fn fault(self) -> Option<Fault> {
        match self {
            Self::RedisFrozen => Some(Fault::FROZEN),
            Self::RedisKilled => Some(Fault::KILLED),
            Self::RedisFlapping => Some(Fault::FLAPPING),
            _ => None,
        }
    }

    /// One line for a person.
    pub(crate) fn story(self) -> String {
        self.to_possible_value()
            .and_then(|value| value.get_help().map(ToString::to_string))
            .unwrap_or_default()
    }

    /// The layer under test: its defaults, but for what the case needs.
    pub(crate) fn layer(self, manner: Manner, cache: Cache, build_time: Duration) -> BufferLayer {
        let layer = BufferLayer::new(cache).ttl(Duration::from_secs(60));
        let layer = manner.of(layer);
        match self {
            Self::Expired => layer.ttl(SHORT_LIFE),
            Self::Slow => layer.wait_timeout(build_time / 2),
            Self::Large => layer.max_body(LARGEST_STORED),
            Self::RedisFrozen | Self::RedisKilled | Self::RedisFlapping => layer.ttl(HOT_LIFE),
            _ => layer,
        }
    }

    /// The expensive handler.
    pub(crate) async fn build(self, build_time: Duration) -> Response {
        sleep(build_time).await;
        match self {
            Self::Failing => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            #[expect(clippy::panic, reason = "that is the case")]
            Self::Panicking => panic!("this handler always panics"),
            Self::Uncacheable => {
                ([(header::CACHE_CONTROL, "no-store")], report(SMALL)).into_response()
            }
            Self::Large => report(LARGE).into_response(),
            _ => report(SMALL).into_response(),
        }
    }
}

fn report(length: usize) -> Bytes {
    vec![b'.'; length].into()
}
