//! A store on Memcached.

mod address;
mod pool;
mod replies;

use std::{fmt, time::Duration};

use async_memcached::{MetaProtocol as _, MetaValue};
use tokio::time::{Instant, timeout_at};

use self::{address::Address, pool::Pool};
use super::{BoxFuture, Condition, Error, Found, Read, Store, Write, Written};
use crate::time::LONGEST;

/// What a server takes by default, less what it needs for itself.
const LARGEST: usize = 1024 * 1024 - 1024;

const TIMEOUT: Duration = Duration::from_millis(250);

const CONNECTIONS: usize = 16;

/// A store on one Memcached server, 1.6 or later.
///
/// Making one connects to nothing. It keeps a few connections, each for one operation at a time, and opens
/// them as they are needed. A connection that fails, or does not answer in time, is closed with all that were
/// open beside it, and the next operation opens a new one: a server that comes back is found without a
/// restart.
///
/// Lives are counted in whole seconds, rounded down; what is read is said to be there for one second less than
/// the server says.
///
/// ```
/// use tower_stampede::{Cache, lock::LockManager, store::MemcachedStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemcachedStore::new("127.0.0.1:11211")?;
/// # #[cfg(feature = "redis")]
/// let locks = LockManager::redis("redis://127.0.0.1/")?;
/// # #[cfg(not(feature = "redis"))]
/// # let locks = LockManager::in_memory();
/// let cache = Cache::builder().store(store, locks).namespace("shop").build()?;
/// # Ok(()) }
/// ```
pub struct MemcachedStore {
    pool: Pool,
    timeout: Duration,
    max_value: usize,
}

impl MemcachedStore {
    /// A store on the server at `address`: `host:port` or `tcp://host:port` (port 11211 if none is said),
    /// or `unix:///path/of/socket`. A host is a name or an address of IPv4, which is all that the client
    /// library speaks.
    ///
    /// # Errors
    ///
    /// The address is none of these.
    pub fn new(address: &str) -> Result<Self, Error> {
        let address: Address = address.parse()?;
        Ok(Self {
            pool: Pool::new(address, CONNECTIONS),
            timeout: TIMEOUT,
            max_value: LARGEST,
        })
    }

    /// How long one operation may take, with connecting and waiting for a connection. Default: 250 ms.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(LONGEST);
        self
    }

    /// How many connections are open at most, at least one. Default: 16; operations beyond wait for one,
    /// and beyond a thousand fail at once.
    pub fn connections(mut self, connections: usize) -> Self {
        self.pool = self.pool.resized(connections.max(1));
        self
    }

    /// The largest value that is sent, in bytes. Default: 1 MiB less 1 KiB, which is what a server takes by
    /// default; a server that was started with another `-I` takes up to that.
    pub fn max_value(mut self, bytes: usize) -> Self {
        self.max_value = bytes;
        self
    }

    /// The hits among `keys`, by what `flags` ask for.
    async fn hits(&self, keys: &[&str], flags: &[&str]) -> Result<Vec<MetaValue>, Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = self.deadline();
        let mut connection = self.pool.connection(deadline).await?;
        let reading = connection.client().meta_get_multi(keys, Some(flags));
        let outcome = timeout_at(deadline, reading).await;
        connection.landed(outcome)?.map_err(replies::failure)
    }

    /// Those that are asked for with a version the reader has, apart from their values.
    async fn read(&self, reads: &[Read]) -> Result<Vec<Option<Found>>, Error> {
        let of = |known: bool| {
            let asked = reads.iter().filter(|read| read.known().is_some() == known);
            asked.map(Read::key).collect::<Vec<_>>()
        };
        let (plain, known) = (of(false), of(true));
        let (mut hits, versions) = tokio::try_join!(
            self.hits(&plain, &["v", "c", "t"]),
            self.hits(&known, &["c", "t"])
        )?;
        hits.extend(versions);
        let mut found: Vec<_> = reads
            .iter()
            .map(|read| replies::found(read, &hits))
            .collect();
        let is_changed = |(read, found): &(&Read, &Option<Found>)| {
            found.as_ref().is_some_and(|found| {
                found.value().is_none() && read.known() != Some(found.version())
            })
        };
        let changed: Vec<_> = reads.iter().zip(&found).filter(is_changed).collect();
        let keys: Vec<_> = changed.iter().map(|(read, _)| read.key()).collect();
        if !keys.is_empty() {
            let values = self.hits(&keys, &["v", "c", "t"]).await?;
            for (read, found) in reads.iter().zip(&mut found) {
                if keys.contains(&read.key()) {
                    *found = replies::found(read, &values);
                }
            }
        }
        Ok(found)
    }

    async fn write(&self, write: &Write) -> Result<Written, Error> {
        if write.value().len() > self.max_value {
            return Ok(Written::TooLarge);
        }
        let life = replies::seconds(write.life());
        let condition = match write.condition() {
            Condition::Always => "MS".to_owned(),
            Condition::Absent => "ME".to_owned(),
            Condition::Unchanged(version) => format!("C{}", version.number()),
        };
        let flags = ["c", &life, &condition];
        let deadline = self.deadline();
        let mut connection = self.pool.connection(deadline).await?;
        let value: &[u8] = write.value();
        let client = connection.client();
        let writing = client.meta_set(write.key(), value, false, None, Some(&flags));
        let outcome = timeout_at(deadline, writing).await;
        replies::written(connection.landed(outcome)?)
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        let deadline = self.deadline();
        let mut connection = self.pool.connection(deadline).await?;
        let deleting = connection.client().meta_delete(key, false, None, None);
        let outcome = timeout_at(deadline, deleting).await;
        replies::removed(connection.landed(outcome)?)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }
}

impl Store for MemcachedStore {
    fn get<'a>(&'a self, reads: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(self.read(reads))
    }

    fn put<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
        Box::pin(self.write(write))
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.delete(key))
    }

    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }
}

impl fmt::Debug for MemcachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcachedStore")
            .field("address", self.pool.address())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
