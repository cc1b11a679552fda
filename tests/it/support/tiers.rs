//! The kinds of a shared tier: one Redis, and a store with locks, where each hit is confirmed.

use tower_stampede::CacheBuilder;

use super::{
    pairs::Pair,
    redis::RedisServer,
    worker::{builder, until},
};

/// Where the workers of a test share what they have.
pub enum Tier {
    Redis(RedisServer),
    Pair(Pair),
}

impl Tier {
    pub fn all() -> [Self; 2] {
        [
            Self::Redis(RedisServer::start()),
            Self::Pair(Pair::memory()),
        ]
    }

    /// A cache as another worker would have it.
    pub fn builder(&self) -> CacheBuilder {
        match self {
            Self::Redis(redis) => builder(redis.url()),
            Self::Pair(pair) => pair.builder(),
        }
    }

    /// How often it has been asked.
    pub fn asked(&self) -> u64 {
        match self {
            Self::Redis(redis) => redis.count("evalsha"),
            Self::Pair(pair) => pair.in_memory().0.trips().0,
        }
    }

    /// Returns once whoever waits has looked again and again.
    pub async fn is_polled(&self) {
        let before = self.asked();
        until(|| self.asked() >= before + 5).await;
    }
}
