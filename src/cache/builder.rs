//! [`CacheBuilder`].

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use tokio::sync::{Semaphore, watch};

use super::{BuildError, BuildErrorKind, Cache, Counters, Inner};
#[cfg(feature = "redis")]
use crate::{RedisConfig, shared::redis::Secret};
use crate::{
    body::Memory,
    entry::codec::Compression,
    flight::Flights,
    local::Local,
    lock::LockManager,
    memos::Memos,
    purges::Purges,
    shared::{Coherence, Shared, Tier, paired::PairedTier},
    store::Store,
    time::LONGEST,
};

/// So many purged tags are remembered; beyond, the local tier starts anew.
const REMEMBERED_PURGES: usize = 100_000;

/// So many memos (hit-for-miss, failures) are kept at most, and as many KiB of them.
const MEMOS: usize = 10_000;

/// Configures a [`Cache`].
#[derive(Debug)]
#[must_use]
pub struct CacheBuilder {
    capacity: u64,
    building: usize,
    failure_memo: Duration,
    hit_for_miss: Duration,
    acknowledge_within: Duration,
    max_refreshes: usize,
    shutdown_grace: Duration,
    namespace: String,
    lease_ttl: Duration,
    redis_budget: Duration,
    #[cfg(feature = "redis")]
    redis: Option<RedisConfig>,
    pair: Option<(Arc<dyn Store>, LockManager)>,
    trust_local: Duration,
    #[cfg(feature = "redis")]
    event_secret: Option<Secret>,
    #[cfg(feature = "compression")]
    compress_over: Option<usize>,
}

impl Default for CacheBuilder {
    fn default() -> Self {
        Self {
            capacity: 64 * 1024 * 1024,
            building: 64 * 1024 * 1024,
            failure_memo: Duration::from_secs(1),
            hit_for_miss: Duration::from_secs(30),
            acknowledge_within: Duration::from_secs(1),
            max_refreshes: 100,
            shutdown_grace: Duration::from_secs(10),
            namespace: "stampede".to_owned(),
            lease_ttl: Duration::from_secs(3),
            redis_budget: Duration::from_millis(250),
            #[cfg(feature = "redis")]
            redis: None,
            pair: None,
            trust_local: Duration::ZERO,
            #[cfg(feature = "redis")]
            event_secret: None,
            #[cfg(feature = "compression")]
            compress_over: None,
        }
    }
}

impl CacheBuilder {
    /// The bytes that local entries may take, keys and fields counted. Default: 64 MiB. One entry
    /// may take nearly an eighth of it, or nearly 32 MiB where that is more; a larger one is not kept
    /// in this tier.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// The bytes that all bodies together may take while they are being built. Default: 64 MiB.
    /// Responses that find no room are passed on and not stored.
    pub fn building_capacity(mut self, bytes: usize) -> Self {
        self.building = bytes;
        self
    }

    /// For how long a failed build answers those who come after it, in this process. Default: 1 s.
    pub fn failure_memo(mut self, period: Duration) -> Self {
        self.failure_memo = period.min(LONGEST);
        self
    }

    /// For how long nobody waits for a response that has declared itself uncacheable. Default:
    /// 30 s; the first storable response ends it early.
    pub fn hit_for_miss(mut self, period: Duration) -> Self {
        self.hit_for_miss = period.min(LONGEST);
        self
    }

    /// How long a purge waits for the other processes to acknowledge it. Default: 1 s.
    pub fn acknowledge_within(mut self, limit: Duration) -> Self {
        self.acknowledge_within = limit;
        self
    }

    /// How many entries may be refreshed in the background at the same time, so that a purge of many
    /// does not become a stampede of its own. Default: 100; what finds no place is served as it is,
    /// and the next hit tries again.
    pub fn max_refreshes(mut self, refreshes: usize) -> Self {
        self.max_refreshes = refreshes;
        self
    }

    /// How long [`Cache::shutdown`] lets builds go on. Default: 10 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.shutdown_grace = grace;
        self
    }

    /// What tells this service's keys in a shared Redis from those of others. Default: `stampede`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Shares entries and builds with other processes through a Redis: a URL, or a [`RedisConfig`]
    /// for what a URL cannot say.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, redis: impl Into<RedisConfig>) -> Self {
        self.redis = Some(redis.into());
        self
    }

    /// As [`redis`](Self::redis), with a client made elsewhere.
    #[cfg(feature = "redis")]
    pub fn redis_client(self, client: redis::Client) -> Self {
        self.redis(client)
    }

    /// Shares entries with other processes through a store, and builds through locks: any store with any
    /// locks, such as a Memcached with a Redis. What is weaker than with [`redis`](Self::redis) alone is
    /// in the documentation of [`store`](crate::store).
    pub fn store(mut self, store: impl Store + 'static, locks: LockManager) -> Self {
        self.pair = Some((Arc::new(store), locks));
        self
    }

    /// For how long a local entry is served without asking the [`store`](Self::store) once more whether it
    /// has been purged. Default: not at all; each hit asks, since a store has no events. A purge in another
    /// process is seen here after that time at the latest. With [`redis`](Self::redis), whose events
    /// tell of purges, it changes nothing as long as they flow.
    pub fn trust_local(mut self, period: Duration) -> Self {
        self.trust_local = period.min(LONGEST);
        self
    }

    /// Signs the messages by which the processes tell each other what happened (HMAC-SHA-256), and believes
    /// only those that are signed so. At least 16 bytes, from a source of random numbers. Default: none are
    /// signed, and all are believed. It does not go with a [`store`](Self::store), which has no events.
    ///
    /// For a Redis where others may publish who are not this service. No message can make a process
    /// serve what it should not, signed or not: they say that something has changed, and never to what.
    /// But whoever can publish can have the local entries of all processes read anew from Redis, again and
    /// again; with a secret, only by repeating messages that he has seen.
    ///
    /// A message that is not signed, or wrongly, is counted
    /// ([`Stats::doubtful_events`](crate::Stats::doubtful_events)), logged once per change of state, and not
    /// acted on. If it tells of a purge, Redis is asked what has been purged, and that is heeded. So
    /// purges reach every process while only a part of a fleet has the secret, or part of it another one;
    /// until all have it, those who wait for another process's build may learn up to a second later that
    /// it has ended, and a purge may not count the others among those that acknowledged it.
    ///
    /// ```
    /// use tower_stampede::Cache;
    ///
    /// # let secret_of_the_fleet = [7; 32];
    /// let cache = Cache::builder()
    ///     .redis("redis://127.0.0.1/")
    ///     .event_secret(secret_of_the_fleet)
    ///     .build()?;
    /// # Ok::<_, tower_stampede::BuildError>(())
    /// ```
    #[cfg(feature = "redis")]
    pub fn event_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.event_secret = Some(Secret::new(secret.as_ref()));
        self
    }

    /// How long a lease outlives the worker that held it: after a crash, the others wait this long
    /// before one of them takes over. Renewed at a third of it while a build runs. Default: 3 s,
    /// shorter than the wait timeout.
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.lease_ttl = ttl;
        self
    }

    /// How long one request may be held up by Redis, or by store and locks, in all. Default: 250 ms.
    pub fn redis_budget(mut self, budget: Duration) -> Self {
        self.redis_budget = budget;
        self
    }

    /// Compresses bodies that are longer than so many bytes before they go into the shared tier, Redis or a
    /// [`store`](Self::store): less of its memory, and less to carry. Default: none are. 16 KiB is a good
    /// beginning.
    ///
    /// The local tier has bodies as they are, so that a hit there costs what it always does. What another
    /// coding has made small already (`Content-Encoding`), and what would not become a tenth smaller, is
    /// stored as it is. Bodies of more than 256 KiB are compressed and decompressed on a thread of
    /// their own, so that they hold up nobody else.
    ///
    /// A worker reads what others have compressed whether it compresses or not, as long as it is built with
    /// this feature. One without it takes such an entry for a miss, and its own build overwrites it: give
    /// all workers the feature first, and then this option.
    ///
    /// No body is decompressed that says it is larger than
    /// [`building_capacity`](Self::building_capacity): it counts as a miss.
    ///
    /// ```
    /// use tower_stampede::Cache;
    ///
    /// # #[cfg(feature = "redis")] {
    /// let cache = Cache::builder()
    ///     .redis("redis://127.0.0.1/")
    ///     .compress_over(16 * 1024)
    ///     .build()?;
    /// # }
    /// # Ok::<_, tower_stampede::BuildError>(())
    /// ```
    #[cfg(feature = "compression")]
    pub fn compress_over(mut self, bytes: usize) -> Self {
        self.compress_over = Some(bytes);
        self
    }

    /// Makes the cache. It never connects and does not fail because Redis is down.
    ///
    /// # Errors
    ///
    /// An option is impossible; the error names it and its limit.
    pub fn build(self) -> Result<Cache, BuildError> {
        self.check()?;
        let tier = self.tier()?;
        Ok(self.assemble(tier))
    }

    fn check(&self) -> Result<(), BuildError> {
        let within = |value, limits: RangeInclusive<Duration>, kind| {
            limits
                .contains(&value)
                .then_some(())
                .ok_or_else(|| BuildError::new(kind))
        };
        let hour = Duration::from_secs(3600);
        let minute = Duration::from_secs(60);
        if !is_namespace(&self.namespace) {
            return Err(BuildError::new(BuildErrorKind::Namespace));
        }
        within(
            self.lease_ttl,
            Duration::from_millis(100)..=hour,
            BuildErrorKind::LeaseTtl,
        )?;
        within(
            self.redis_budget,
            Duration::from_millis(1)..=minute,
            BuildErrorKind::RedisBudget,
        )
    }

    #[cfg(feature = "redis")]
    fn tier(&self) -> Result<Option<Arc<dyn Tier>>, BuildError> {
        use crate::shared::redis::{RedisTier, Settings};

        if self.event_secret.as_ref().is_some_and(Secret::is_too_short) {
            return Err(BuildError::new(BuildErrorKind::EventSecret));
        }
        if self.event_secret.is_some() && self.pair.is_some() {
            return Err(BuildError::new(BuildErrorKind::NoEvents));
        }
        let Some(redis) = &self.redis else {
            return Ok(self.paired());
        };
        if self.pair.is_some() {
            return Err(BuildError::new(BuildErrorKind::TwoTiers));
        }
        let server = redis.server().map_err(BuildError::redis)?;
        let settings = Settings {
            namespace: self.namespace.clone(),
            lease_ttl: self.lease_ttl,
            command_timeout: self.redis_budget,
            compression: self.compression(),
            event_secret: self.event_secret.clone(),
        };
        Ok(Some(Arc::new(RedisTier::new(server, settings))))
    }

    #[cfg(feature = "compression")]
    fn compression(&self) -> Compression {
        Compression::new(self.compress_over, self.building)
    }

    #[cfg(not(feature = "compression"))]
    #[expect(clippy::unused_self, reason = "with the feature it has a say")]
    fn compression(&self) -> Compression {
        Compression::NONE
    }

    #[cfg(not(feature = "redis"))]
    #[expect(clippy::unnecessary_wraps, reason = "with Redis it can fail")]
    fn tier(&self) -> Result<Option<Arc<dyn Tier>>, BuildError> {
        Ok(self.paired())
    }

    fn paired(&self) -> Option<Arc<dyn Tier>> {
        let (store, locks) = self.pair.clone()?;
        let namespace = self.namespace.clone();
        let terms = (self.lease_ttl, self.compression());
        Some(Arc::new(PairedTier::new(store, locks, namespace, terms)))
    }

    pub(super) fn assemble(self, tier: Option<Arc<dyn Tier>>) -> Cache {
        let purges = Arc::new(Purges::new(REMEMBERED_PURGES));
        let shared = tier.map(|tier| {
            let coherence = Coherence::new(Arc::clone(&purges));
            let shared = Shared::new(tier, coherence, self.redis_budget);
            Arc::new(shared.trusting(self.trust_local))
        });
        Cache(Arc::new(Inner {
            local: Local::new(self.capacity, MEMOS),
            memos: Memos::new(MEMOS),
            flights: Flights::default(),
            purges,
            memory: Memory::new(self.building),
            shared,
            counters: Counters::default(),
            failure_memo: self.failure_memo,
            hit_for_miss: self.hit_for_miss,
            acknowledge_within: self.acknowledge_within,
            closed: watch::Sender::new(false),
            shutdown_grace: self.shutdown_grace,
            refreshes: Arc::new(Semaphore::new(
                self.max_refreshes.min(Semaphore::MAX_PERMITS),
            )),
        }))
    }
}

/// Braces would move the keys to other Cluster slots.
fn is_namespace(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}
