//! [`Cache`]: what routes share.

mod builder;
mod error;
mod health;
mod purge;
mod shutdown;
mod stats;

use std::{fmt, sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};

pub(crate) use self::stats::Counters;
pub use self::{
    builder::CacheBuilder,
    error::{BuildError, BuildErrorKind},
    health::{Health, LinkHealth, LinkState},
    purge::{PurgeError, Purged, Target},
    stats::{SharedFailures, Stats},
};
use crate::{
    body::Memory,
    entry::{Entry, Present},
    flight::Flights,
    key::{Digest, Key},
    local::Local,
    memos::{Memos, Note},
    purges::{Moment, Purges},
    shared::{Lease, Place, Shared},
};

/// What the routes of a service share: stored responses, builds under way, and the shared tier.
///
/// Clones are cheap and share everything. Give one to each [`BufferLayer`](crate::BufferLayer), and
/// keep one to [`purge`](Self::purge) with.
///
/// ```
/// use tower_stampede::Cache;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // One process, no server:
/// let cache = Cache::in_memory();
///
/// // Several workers on one Redis. This does not connect yet.
/// # #[cfg(feature = "redis")]
/// let cache = Cache::builder()
///     .redis("redis://127.0.0.1/")
///     .namespace("shop")
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    local: Local,
    memos: Memos,
    flights: Flights,
    purges: Arc<Purges>,
    memory: Memory,
    shared: Option<Arc<Shared>>,
    counters: Counters,
    failure_memo: Duration,
    hit_for_miss: Duration,
    acknowledge_within: Duration,
    refreshes: Arc<Semaphore>,
    closed: watch::Sender<bool>,
    shutdown_grace: Duration,
}

impl Cache {
    /// A cache of this process alone, with the defaults of [`CacheBuilder`].
    pub fn in_memory() -> Self {
        CacheBuilder::default().assemble(None)
    }

    /// A cache to configure.
    pub fn builder() -> CacheBuilder {
        CacheBuilder::default()
    }

    /// Connects to the shared tier, and lets the events of the other workers begin, which the first
    /// request would do and wait for otherwise.
    ///
    /// Call it before the server accepts requests, so that the first herd after a deploy does not pay
    /// for it. It takes the Redis budget at most, and a tier that is not there is no error: the log and
    /// [`health`](Self::health) tell, and requests go on without it until it is. Without a shared tier
    /// nothing is done.
    ///
    /// ```
    /// use axum::Router;
    /// use tower_stampede::Cache;
    ///
    /// async fn serve(app: Router, cache: Cache, listener: tokio::net::TcpListener) -> std::io::Result<()> {
    ///     cache.connect().await;
    ///     axum::serve(listener, app).await
    /// }
    /// ```
    ///
    /// The connections live on the runtime that it is called in: make that the one that serves.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, it goes on in the background.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, if there is a shared tier.
    pub async fn connect(&self) {
        if let Some(shared) = &self.0.shared {
            shared.connect().await;
        }
    }

    /// What has happened so far in this process.
    pub fn stats(&self) -> Stats {
        let (entries, bytes) = self.0.local.size();
        let shared = self.0.shared.as_ref();
        let stats = Stats {
            entries,
            bytes,
            flights: self.0.flights.len(),
            waiters: self.0.flights.waiters(),
            building_bytes: self.0.memory.used(),
            doubtful_events: shared.map_or(0, |shared| shared.coherence.doubts()),
            ..self.0.counters.read()
        };
        match shared {
            Some(shared) => shared.stats(stats),
            None => stats,
        }
    }

    /// How the connections of the shared tier are.
    pub fn health(&self) -> Health {
        let links = self.0.shared.as_ref().map(|shared| shared.health());
        Health {
            links: links.unwrap_or_default(),
        }
    }

    #[inline]
    pub(crate) fn count(&self) -> &Counters {
        &self.0.counters
    }

    #[inline]
    pub(crate) fn find(
        &self,
        key: &mut Vec<u8>,
        request: &HeaderMap,
        now: Instant,
    ) -> Option<Arc<Present>> {
        self.0.local.find(key, request, &self.0.purges, now)
    }

    /// What has been noted beside `key`, unless a purge of one of `tags` has overtaken it.
    pub(crate) fn note(&self, key: &Key, tags: &[Digest]) -> Option<Note> {
        self.0.memos.note(key, tags, &self.0.purges)
    }

    /// Puts an entry into the local tier.
    pub(crate) fn keep(&self, key: &Key, entry: Arc<Entry>) {
        self.0.local.insert(key, entry, &self.0.purges);
    }

    pub(crate) fn memos(&self) -> &Memos {
        &self.0.memos
    }

    pub(crate) fn local(&self) -> &Local {
        &self.0.local
    }

    pub(crate) fn flights(&self) -> &Flights {
        &self.0.flights
    }

    pub(crate) fn purges(&self) -> &Purges {
        &self.0.purges
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    pub(crate) fn shared(&self) -> Option<&Arc<Shared>> {
        self.0.shared.as_ref()
    }

    /// Gives a lease of the shared tier back in the background.
    pub(crate) fn give_back(&self, lease: Lease) {
        if let Some(shared) = self.shared() {
            shared.give_back(Arc::new(lease));
        }
    }

    pub(crate) fn moment(&self) -> Moment {
        self.0.purges.now()
    }

    /// The right to refresh an entry in the background, unless that is being done to enough of them.
    pub(crate) fn refresh_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.refreshes).try_acquire_owned().ok()
    }

    pub(crate) fn failure_memo(&self) -> Duration {
        self.0.failure_memo
    }

    pub(crate) fn hit_for_miss(&self) -> Duration {
        self.0.hit_for_miss
    }

    /// Whether this local entry may be served.
    #[inline]
    pub(crate) fn trusts(&self, entry: &Entry, now: Instant) -> bool {
        self.0
            .shared
            .as_ref()
            .is_none_or(|shared| shared.trusts(entry.lifetime.received, now))
    }

    /// Whether a build in one of them would wait for a build in the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let shared = || Some((self.shared()?, other.shared()?));
        Arc::ptr_eq(&self.0, &other.0) || shared().is_some_and(|(one, other)| one.is_same(other))
    }

    /// Where the shared tier keeps the entry with this key.
    pub(crate) fn place(resource: &Key, key: &Key) -> Place {
        let resource_proof = resource.proof();
        let is_variant = resource != key;
        Place {
            resource: resource.digest(),
            resource_proof,
            variant: is_variant.then(|| key.digest()),
            proof: if is_variant {
                key.proof()
            } else {
                resource_proof
            },
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("shared", &self.0.shared.is_some())
            .finish_non_exhaustive()
    }
}
