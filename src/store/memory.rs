//! A store in the memory of one process.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{BoxFuture, Condition, Error, Found, Read, Store, Version, Write, Written};
use crate::time::LONGEST;

/// Below so many records nothing is swept.
const SWEEP: usize = 1024;

/// A store in the memory of this process, for tests: several caches that share one (in an
/// [`Arc`](std::sync::Arc)) behave as several processes do.
///
/// It keeps what it is given until its life is over, however much that is. Time is tokio's, which a test
/// may pause.
///
/// ```
/// use std::sync::Arc;
///
/// use tower_stampede::{Cache, lock::LockManager, store::MemoryStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (store, locks) = (Arc::new(MemoryStore::new()), LockManager::in_memory());
/// let worker = || Cache::builder().store(Arc::clone(&store), locks.clone()).build();
/// let (one, other) = (worker()?, worker()?);
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    by_key: HashMap<String, Record>,
    versions: u64,
    sweep_at: usize,
}

#[derive(Debug)]
struct Record {
    value: Bytes,
    version: Version,
    ends: Instant,
}

impl MemoryStore {
    /// A store with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.with(|records| records.by_key.clear());
    }

    fn with<T>(&self, work: impl FnOnce(&mut Records) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, reads: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(async {
            let now = Instant::now();
            Ok(self.with(|records| reads.iter().map(|read| records.read(read, now)).collect()))
        })
    }

    fn put<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
        Box::pin(async { Ok(self.with(|records| records.write(write, Instant::now()))) })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async {
            self.with(|records| drop(records.by_key.remove(key)));
            Ok(())
        })
    }
}

impl Records {
    fn live(&self, key: &str, now: Instant) -> Option<&Record> {
        self.by_key.get(key).filter(|record| record.ends > now)
    }

    fn read(&self, read: &Read, now: Instant) -> Option<Found> {
        let record = self.live(read.key(), now)?;
        let left = record.ends - now;
        Some(if read.known() == Some(record.version) {
            Found::unchanged(record.version, left)
        } else {
            Found::new(record.version, left, record.value.clone())
        })
    }

    fn write(&mut self, write: &Write, now: Instant) -> Written {
        self.sweep(now);
        let version = self.live(write.key(), now).map(|record| record.version);
        let holds = match write.condition() {
            Condition::Always => true,
            Condition::Absent => version.is_none(),
            Condition::Unchanged(expected) => version == Some(expected),
        };
        if !holds {
            return Written::Refused;
        }
        self.versions += 1;
        let version = Version::new(self.versions);
        let record = Record {
            value: write.value().clone(),
            version,
            ends: now + write.life().min(LONGEST),
        };
        self.by_key.insert(write.key().to_owned(), record);
        Written::Stored(version)
    }

    /// Drops what is over, once in a while.
    fn sweep(&mut self, now: Instant) {
        if self.by_key.len() >= self.sweep_at.max(SWEEP) {
            self.by_key.retain(|_, record| record.ends > now);
            self.sweep_at = self.by_key.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    const LIFE: Duration = Duration::from_secs(60);

    async fn put(store: &MemoryStore, value: &'static str, condition: Condition) -> Written {
        let write = Write::new("key", value, LIFE).only_if(condition);
        store.put(&write).await.unwrap()
    }

    async fn get(store: &MemoryStore, read: Read) -> Option<Found> {
        store.get(&[read]).await.unwrap().remove(0)
    }

    #[tokio::test(start_paused = true)]
    async fn conditions_hold_for_the_record_that_is_there() {
        let store = MemoryStore::new();

        let Written::Stored(first) = put(&store, "a", Condition::Absent).await else {
            panic!("there was nothing");
        };
        assert_eq!(put(&store, "b", Condition::Absent).await, Written::Refused);
        let Written::Stored(second) = put(&store, "c", Condition::Unchanged(first)).await else {
            panic!("it was that version");
        };
        let late = put(&store, "d", Condition::Unchanged(first)).await;

        assert_eq!(late, Written::Refused);
        let found = get(&store, Read::new("key")).await.unwrap();
        assert_eq!(found, Found::new(second, LIFE, "c"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_the_reader_has_is_left_out_and_no_other() {
        let store = MemoryStore::new();
        let Written::Stored(version) = put(&store, "a", Condition::Always).await else {
            panic!("it is stored");
        };

        let known = get(&store, Read::new("key").unless(version)).await;
        assert_eq!(known, Some(Found::unchanged(version, LIFE)));

        put(&store, "b", Condition::Always).await;
        let other = get(&store, Read::new("key").unless(version)).await;
        assert_eq!(other.unwrap().value(), Some(&Bytes::from("b")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_gone_when_its_life_is_over_or_it_is_removed() {
        let store = MemoryStore::new();
        put(&store, "a", Condition::Always).await;
        advance(LIFE / 2).await;
        assert_eq!(
            get(&store, Read::new("key")).await.unwrap().left(),
            LIFE / 2
        );
        advance(LIFE / 2).await;
        assert_eq!(get(&store, Read::new("key")).await, None);

        put(&store, "b", Condition::Absent).await;
        store.remove("key").await.unwrap();
        assert_eq!(get(&store, Read::new("key")).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_takes_no_room_for_ever() {
        let store = MemoryStore::new();
        for key in 0..10 * SWEEP {
            let write = Write::new(key.to_string(), "value", Duration::from_millis(10));
            store.put(&write).await.unwrap();
            advance(Duration::from_millis(1)).await;
        }

        let kept = store.with(|records| records.by_key.len());
        assert!(kept <= 2 * SWEEP, "{kept}");
    }
}
