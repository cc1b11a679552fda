#![doc = include_str!("../../docs/stores.md")]

mod error;
#[cfg(feature = "memcached")]
mod memcached;
mod memory;
mod words;

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

#[cfg(feature = "memcached")]
pub use self::memcached::MemcachedStore;
pub use self::{
    error::{Error, ErrorKind},
    memory::MemoryStore,
    words::{Condition, Found, Read, Version, Write, Written},
};

/// A boxed future, as the methods of [`Store`] return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place where several processes keep records under short names.
///
/// Hand it to [`CacheBuilder::store`](crate::CacheBuilder::store), together with the locks that elect
/// who builds. What an implementation must hold:
///
/// - A condition is decided and the record written in one step: of two who write
///   [if absent](Condition::Absent) or [if unchanged](Condition::Unchanged), one succeeds.
/// - Each write of a record gives it another [`Version`]; one that was removed and written again has
///   none of its earlier ones.
/// - A record is gone when its life is over, at the latest; it may be gone earlier, at any time, which
///   costs a build.
/// - Names are at most 200 bytes of ASCII letters, digits, `-`, `_`, `.` and `:`; values are bytes.
///
/// It need not retry, nor bound its own time: an operation is dropped when its time is over, and may take
/// effect or not. Failures are for [`Error`]; a value that is too large, or a condition that does not
/// hold, is an answer: [`Written`].
///
/// ```
/// use std::{collections::HashMap, sync::Mutex, time::{Duration, Instant}};
///
/// use tower_stampede::store::{BoxFuture, Condition, Error, Found, Read, Store, Version, Write, Written};
///
/// /// One table, as a database would have it.
/// #[derive(Debug, Default)]
/// struct Table(Mutex<(u64, HashMap<String, (u64, bytes::Bytes, Instant)>)>);
///
/// impl Store for Table {
///     fn get<'a>(&'a self, reads: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
///         let table = self.0.lock().unwrap();
///         let found = reads.iter().map(|read| {
///             let (version, value, end) = table.1.get(read.key())?;
///             let left = end.checked_duration_since(Instant::now())?;
///             Some(Found::new(Version::new(*version), left, value.clone()))
///         });
///         let found = found.collect();
///         Box::pin(async { Ok(found) })
///     }
///
///     fn put<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
///         let mut table = self.0.lock().unwrap();
///         let (next, rows) = &mut *table;
///         rows.retain(|_, (_, _, end)| *end > Instant::now());
///         let version = rows.get(write.key()).map(|row| Version::new(row.0));
///         let holds = match write.condition() {
///             Condition::Always => true,
///             Condition::Absent => version.is_none(),
///             Condition::Unchanged(expected) => version == Some(expected),
///         };
///         let written = if holds {
///             *next += 1;
///             let row = (*next, write.value().clone(), Instant::now() + write.life());
///             rows.insert(write.key().to_owned(), row);
///             Written::Stored(Version::new(*next))
///         } else {
///             Written::Refused
///         };
///         Box::pin(async move { Ok(written) })
///     }
///
///     fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
///         self.0.lock().unwrap().1.remove(key);
///         Box::pin(async { Ok(()) })
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = tower_stampede::Cache::builder()
///     .store(Table::default(), tower_stampede::lock::LockManager::in_memory())
///     .build()?;
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    note = "implement `tower_stampede::store::Store`, or use `MemcachedStore` (feature `memcached`) or `MemoryStore`"
)]
pub trait Store: fmt::Debug + Send + Sync {
    /// Reads records, in one round trip if possible: one answer for each of `reads`, in their order, and
    /// `None` for a record that is not there.
    ///
    /// # Errors
    ///
    /// The store failed; of one record alone there is no failure.
    fn get<'a>(&'a self, reads: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>>;

    /// Writes a record, if its condition holds.
    ///
    /// # Errors
    ///
    /// The store failed; the record may have been written if the error
    /// [says so](ErrorKind::OutcomeUnknown).
    fn put<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, Error>>;

    /// Removes a record, if it is there.
    ///
    /// # Errors
    ///
    /// The store failed.
    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    /// By how much a life may come out shorter than it was asked for. Default: a millisecond; a store
    /// that counts seconds says one second, and nothing that is fresh for less is kept in it.
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn get<'a>(&'a self, reads: &'a [Read]) -> BoxFuture<'a, Result<Vec<Option<Found>>, Error>> {
        (**self).get(reads)
    }

    fn put<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, Error>> {
        (**self).put(write)
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        (**self).remove(key)
    }

    fn resolution(&self) -> Duration {
        (**self).resolution()
    }
}
