//! Shared tiers made of a store and of locks: each test runs on all that this build has.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tower_stampede::{
    Cache, CacheBuilder,
    lock::{self, LockManager, MemoryLock, backend},
    store::{BoxFuture, Error, Found, MemoryStore, Read, Store, Write, Written},
};

use super::worker::until;
#[cfg(all(feature = "memcached", feature = "redis"))]
use super::{memcached::MemcachedServer, redis::RedisServer};

/// Where the processes of a fleet keep entries and locks.
pub enum Pair {
    /// Of one process, shared by its caches as if each were a process.
    Memory(Arc<Counted<MemoryStore>>, LockManager),
    #[cfg(all(feature = "memcached", feature = "redis"))]
    Servers(MemcachedServer, RedisServer),
}

impl Pair {
    pub fn memory() -> Self {
        Self::Memory(Arc::default(), LockManager::in_memory())
    }

    /// One of each kind.
    pub fn all() -> Vec<Self> {
        let unnumbered = LockManager::builder().backend(Arc::<Unnumbered>::default());
        vec![
            Self::memory(),
            Self::Memory(Arc::default(), unnumbered.build().unwrap()),
            #[cfg(all(feature = "memcached", feature = "redis"))]
            Self::Servers(MemcachedServer::start(), RedisServer::start()),
        ]
    }

    /// Its parts, if it is in memory.
    pub fn in_memory(&self) -> (&Arc<Counted<MemoryStore>>, &LockManager) {
        match self {
            Self::Memory(store, locks) => (store, locks),
            #[cfg(all(feature = "memcached", feature = "redis"))]
            Self::Servers(..) => panic!("it is on servers"),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Memory(..) => "memory",
            #[cfg(all(feature = "memcached", feature = "redis"))]
            Self::Servers(..) => "memcached and redis",
        }
    }

    /// A cache as another process would have it.
    pub fn cache(&self) -> Cache {
        self.builder().build().unwrap()
    }

    /// Where no timeout is part of the test, a machine under load must not cause one.
    pub fn builder(&self) -> CacheBuilder {
        let ample = Duration::from_secs(10);
        let builder = Cache::builder().redis_budget(ample);
        match self {
            Self::Memory(store, locks) => builder.store(Arc::clone(store), locks.clone()),
            #[cfg(all(feature = "memcached", feature = "redis"))]
            Self::Servers(memcached, redis) => {
                let store = tower_stampede::store::MemcachedStore::new(&memcached.address());
                let locks = LockManager::builder()
                    .redis(redis.url())
                    .command_timeout(ample)
                    .connect_timeout(ample);
                builder.store(store.unwrap().timeout(ample), locks.build().unwrap())
            }
        }
    }

    /// Returns once each of `caches` has found out that another one builds.
    pub async fn asked(&self, caches: &[Cache]) {
        until(|| {
            let waits = |cache: &Cache| {
                let health = cache.health();
                health
                    .links
                    .iter()
                    .any(|link| link.name == "locks" && link.latency.is_some())
            };
            caches.iter().all(waits)
        })
        .await;
    }

    /// Everything in the store is gone, as after an eviction or a restart.
    pub fn evict_all(&self) {
        match self {
            Self::Memory(store, _) => store.inner.clear(),
            #[cfg(all(feature = "memcached", feature = "redis"))]
            Self::Servers(memcached, _) => memcached.flush_all(),
        }
    }
}

/// A store whose operations are counted.
#[derive(Debug, Default)]
pub struct Counted<S> {
    pub inner: S,
    gets: AtomicU64,
    puts: AtomicU64,
    removals: AtomicU64,
    /// Bytes of values that were sent to readers.
    sent: AtomicUsize,
    asked: Mutex<BTreeSet<String>>,
}

impl<S> Counted<S> {
    /// Reads, writes and removals so far.
    pub fn trips(&self) -> (u64, u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (read(&self.gets), read(&self.puts), read(&self.removals))
    }

    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    /// The names of all records that were asked for.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().cloned().collect()
    }

    pub fn reset(&self) {
        for count in [&self.gets, &self.puts, &self.removals] {
            count.store(0, Ordering::SeqCst);
        }
        self.sent.store(0, Ordering::SeqCst);
    }
}

impl<S: Store> Store for Counted<S> {
    fn get<'a>(&'a self, reads: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(async {
            self.gets.fetch_add(1, Ordering::SeqCst);
            let keys = reads.iter().map(|read| read.key().to_owned());
            self.asked.lock().unwrap().extend(keys);
            let found = self.inner.get(reads).await?;
            let values = found.iter().flatten().filter_map(Found::value);
            let sent = values.map(bytes::Bytes::len).sum();
            self.sent.fetch_add(sent, Ordering::SeqCst);
            Ok(found)
        })
    }

    fn put<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        self.inner.put(write)
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.removals.fetch_add(1, Ordering::SeqCst);
        self.inner.remove(key)
    }

    fn resolution(&self) -> Duration {
        self.inner.resolution()
    }
}

/// Locks that do not number their grants, nor can be watched.
#[derive(Debug, Default)]
struct Unnumbered(MemoryLock);

type Answer<'a, T> = backend::BoxFuture<'a, Result<T, lock::Error>>;

impl backend::Lock for Unnumbered {
    fn is_shared(&self) -> bool {
        true
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a backend::Claim,
        terms: &'a backend::Terms,
    ) -> Answer<'a, backend::Grant> {
        Box::pin(async {
            Ok(match self.0.acquire(claim, terms).await? {
                backend::Grant::Granted { .. } => backend::Grant::Granted { fence: None },
                other => other,
            })
        })
    }

    fn release<'a>(&'a self, holder: &'a backend::Holding) -> Answer<'a, lock::Released> {
        self.0.release(holder)
    }

    fn extend<'a>(
        &'a self,
        holder: &'a backend::Holding,
        change: &'a backend::Extension,
    ) -> Answer<'a, Option<lock::Remaining>> {
        self.0.extend(holder, change)
    }

    fn holders<'a>(
        &'a self,
        key: &'a backend::Key,
        family: backend::Family,
    ) -> Answer<'a, Vec<lock::Holder>> {
        self.0.holders(key, family)
    }

    fn force_release<'a>(
        &'a self,
        key: &'a backend::Key,
        family: backend::Family,
    ) -> Answer<'a, backend::Removed> {
        self.0.force_release(key, family)
    }

    fn withdraw<'a>(&'a self, claim: &'a backend::Claim) -> Answer<'a, ()> {
        self.0.withdraw(claim)
    }
}
