//! Purges: what can be purged, how, and what comes of it.

use std::{error::Error, fmt, future::Future, time::Duration};

use http::{HeaderMap, Uri};

use super::Cache;
use crate::{
    key::{self, Key},
    purges::{Purge, Reach},
    shared::Outage,
    tags, task,
};

/// What to purge.
///
/// ```
/// use tower_stampede::{Cache, Target};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = Cache::in_memory();
///
/// cache.purge(&"http://shop.example/report".parse()?).await?;
/// cache.purge(Target::tag("prices")).await?;
/// cache.soft_purge(Target::all()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target(Reach);

impl Target {
    /// All entries of the cache, and of those that share its namespace.
    pub fn all() -> Self {
        Self(Reach::All)
    }

    /// The entries that carry a tag: given by [`BufferLayer::tags`](crate::BufferLayer::tags) or
    /// [`tags_with`](crate::BufferLayer::tags_with), by [`CacheTags`](crate::CacheTags), or by one of
    /// the fields `Cache-Tag`, `Surrogate-Key` and `xkey` of the response.
    pub fn tag(name: impl AsRef<str>) -> Self {
        Self(Reach::Tag(tags::named(name.as_ref())))
    }

    /// All entries for the authority and path of `uri`, whatever their query and variant.
    ///
    /// `uri` is absolute (`http://shop.example/report`); for a service that gets requests without
    /// `Host`, a path alone (`/report`) names what it stores.
    pub fn uri(uri: &Uri) -> Self {
        Self::uri_at(uri, &HeaderMap::new())
    }

    /// As [`uri`](Self::uri), with this query and no other.
    pub fn exact_uri(uri: &Uri) -> Self {
        let of_all_queries = key::uri_tag(uri, &HeaderMap::new());
        Self(Reach::Tag(key::exact_uri_tag(of_all_queries, uri)))
    }

    /// As [`uri`](Self::uri), with the authority of `host` where the URI has none.
    pub(crate) fn uri_at(uri: &Uri, host: &HeaderMap) -> Self {
        Self(Reach::Tag(key::uri_tag(uri, host)))
    }

    pub(crate) fn key(resource: &Key) -> Self {
        Self(Reach::Tag(tags::of_key(resource)))
    }
}

/// As [`Target::uri`].
impl From<&Uri> for Target {
    fn from(uri: &Uri) -> Self {
        Self::uri(uri)
    }
}

/// How far a purge has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// The processes that have heeded it, this one included: they serve nothing any more that was
    /// purged, to any request that comes from now on.
    pub acknowledged: usize,
    /// How many processes share the cache's namespace and listen to its events; `None` where they
    /// cannot be counted.
    pub processes: Option<usize>,
}

impl Purged {
    /// Whether every process has heeded it.
    pub fn is_complete(&self) -> bool {
        self.processes == Some(self.acknowledged)
    }
}

impl Cache {
    /// Purges: what `target` reaches is not served any more, and builds of it that are under way are
    /// not stored, in any process that shares the cache's namespace. They answer only those who were
    /// already waiting.
    ///
    /// This process has purged when this returns, and so has every other one that it counts as
    /// having acknowledged it, within the time of
    /// [`CacheBuilder::acknowledge_within`](crate::CacheBuilder::acknowledge_within). The others follow
    /// as soon as they hear of it; one that cannot hear serves nothing that it has not asked Redis for.
    ///
    /// # Errors
    ///
    /// The shared tier could not be told. This process has purged all the same; other processes
    /// still serve what they have.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, this process has purged, and goes on telling the shared tier.
    pub async fn purge(&self, target: impl Into<Target>) -> Result<Purged, PurgeError> {
        let Target(reach) = target.into();
        self.carry_out(Purge::hard(reach)).await
    }

    /// As [`purge`](Self::purge) of [`Target::tag`].
    ///
    /// # Errors
    ///
    /// As for [`purge`](Self::purge).
    pub async fn purge_tag(&self, name: impl AsRef<str>) -> Result<Purged, PurgeError> {
        self.purge(Target::tag(name)).await
    }

    /// Marks as stale what `target` reaches, from now on: it is served while it is refreshed, or in
    /// place of a failure, for as long as its stale windows say (RFC 5861), and what has none is gone.
    /// Of several soft purges the last one counts, though nothing is served past the lifetime and the
    /// stale window that it was stored with. All else is as for [`purge`](Self::purge).
    ///
    /// # Errors
    ///
    /// As for [`purge`](Self::purge).
    ///
    /// # Cancel safety
    ///
    /// As for [`purge`](Self::purge).
    pub async fn soft_purge(&self, target: impl Into<Target>) -> Result<Purged, PurgeError> {
        let Target(reach) = target.into();
        self.carry_out(Purge::soft(reach)).await
    }

    async fn carry_out(&self, purge: Purge) -> Result<Purged, PurgeError> {
        let told = self.tell(purge, Some(self.0.acknowledge_within));
        match told.await {
            // This process has purged, whether it was told of it or not.
            Ok((acknowledged, processes)) => Ok(Purged {
                acknowledged: acknowledged.max(1),
                processes: processes.map(|processes| processes.max(1)),
            }),
            Err(source) => Err(PurgeError { source }),
        }
    }

    /// Purges here at once, elsewhere in the background.
    pub(crate) fn invalidate(&self, target: Target) {
        // A failure is logged where it happens.
        drop(self.tell(Purge::hard(target.0), None));
    }

    /// Purges here at once, and begins to tell the others. What comes back says how that went.
    fn tell(
        &self,
        purge: Purge,
        limit: Option<Duration>,
    ) -> impl Future<Output = Result<(usize, Option<usize>), Outage>> + use<> {
        self.0.purges.purge(purge);
        let telling = self.0.shared.clone().map(|shared| {
            // A task: a caller that goes away does not leave the others untold.
            task::spawn(async move { shared.purge(purge, limit).await })
        });
        async {
            match telling {
                None => Ok((1, Some(1))),
                Some(Some(task)) => task
                    .await
                    .unwrap_or_else(|_ended| Err(Outage::without_runtime())),
                Some(None) => Err(Outage::without_runtime()),
            }
        }
    }
}

/// The shared tier could not be told of a purge: other processes still serve what they have.
#[derive(Debug)]
pub struct PurgeError {
    source: Outage,
}

impl fmt::Display for PurgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("purged in this process only")
    }
}

impl Error for PurgeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}
