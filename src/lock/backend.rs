//! What a backend of locks does: the [`Lock`] trait and the words it speaks.
//!
//! Everything here is about one [`Claim`]: who (a token) wants what (one or several keys, alone or
//! shared). A backend decides and stores; waiting in line, retrying, renewing, compensating and all
//! checks of arguments are done once, above it.

use std::{fmt, future::Future, pin::Pin};

use super::error::Error;
pub use super::{
    answer::{Busy, Grant, Obstacle, Released, Remaining, Removed},
    claim::{
        Claim, Extension, Family, Fencing, Holder, Holding, Mode, Queueing, Reentry, Terms, Ttl,
    },
    key::Key,
};

/// A boxed future, as the methods of [`Lock`] return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place where locks are kept.
///
/// Implement it to keep locks elsewhere, and hand it to
/// [`Builder::backend`](super::Builder::backend). Every method must be atomic in itself and
/// idempotent for the claim's [`attempt`](Claim::attempt): the caller, a proxy or a Cluster client
/// may send it twice. A backend may refuse modes or several keys with [`Error::unsupported`].
pub trait Lock: Send + Sync + fmt::Debug {
    /// Whether locks taken here are seen by other processes.
    fn is_shared(&self) -> bool;

    /// Takes the lock if it is free, all of the claim's keys or none of them.
    ///
    /// An attempt that finds itself as the holder was granted before. An attempt that was
    /// [withdrawn](Self::withdraw) is never granted again.
    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        terms: &'a Terms,
    ) -> BoxFuture<'a, Result<Grant, Error>>;

    /// Gives the lock back if `holder` holds it, all keys or none, and tells the watchers.
    fn release<'a>(&'a self, holder: &'a Holding) -> BoxFuture<'a, Result<Released, Error>>;

    /// Changes the time to live if `holder` holds the lock, all keys or none; tells the watchers
    /// if the lock ends sooner now. `None`: it is not held, and stays so.
    fn extend<'a>(
        &'a self,
        holder: &'a Holding,
        change: &'a Extension,
    ) -> BoxFuture<'a, Result<Option<Remaining>, Error>>;

    /// The holders of one key.
    fn holders<'a>(
        &'a self,
        key: &'a Key,
        family: Family,
    ) -> BoxFuture<'a, Result<Vec<Holder>, Error>>;

    /// Removes every holder of one key and tells the watchers; whether there was one.
    fn force_release<'a>(
        &'a self,
        key: &'a Key,
        family: Family,
    ) -> BoxFuture<'a, Result<Removed, Error>>;

    /// Takes back an attempt whose outcome is unknown: removes it if it was granted, forgets that
    /// it waits, and leaves a tombstone so that it cannot be granted later.
    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), Error>>;

    /// Listens for releases of one key, from this moment on.
    fn watch(&self, _key: &Key, _family: Family) -> Box<dyn Watch> {
        Box::new(Silence)
    }

    /// Checks that the backend can be reached.
    fn connect(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

/// What a watcher of one key hears; [`Lock::watch`] makes it.
pub trait Watch: Send + fmt::Debug {
    /// The next change. Dropping the future must lose nothing.
    fn changed(&mut self) -> BoxFuture<'_, Change>;
}

/// Something that a waiter should know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// From now on every release is heard: what happened before may have been missed.
    Listening,
    /// The lock may be free now, or end sooner.
    Released,
    /// The backend refuses to let this key be watched.
    Refused(Error),
}

/// A watch that never says anything: waiters then poll.
#[derive(Debug)]
struct Silence;

impl Watch for Silence {
    fn changed(&mut self) -> BoxFuture<'_, Change> {
        Box::pin(std::future::pending())
    }
}
