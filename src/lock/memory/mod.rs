//! Locks of one process, kept in memory: the same answers as Redis gives, without the network.

mod book;
mod room;
mod signals;

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use self::{book::Book, signals::Signals};
use super::{
    backend::{
        BoxFuture, Claim, Extension, Family, Grant, Holder, Holding, Key, Lock, Released,
        Remaining, Removed, Terms, Watch,
    },
    error::Error,
};

/// The backend of [`LockManager::in_memory`](super::LockManager::in_memory).
///
/// Every operation is decided at once under a mutex that is held for a few lines; expiry follows
/// tokio's clock.
#[derive(Debug, Default)]
pub struct MemoryLock {
    book: Mutex<Book>,
    signals: Signals,
}

impl MemoryLock {
    /// A backend with no locks in it.
    pub fn new() -> Self {
        Self::default()
    }

    fn decide<T: Send>(&self, decide: impl FnOnce(&mut Book, Instant) -> T) -> T {
        let (answer, woken) = {
            let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = decide(&mut book, Instant::now());
            (answer, book.take_woken())
        };
        self.signals.wake(&woken);
        answer
    }
}

impl Lock for MemoryLock {
    fn is_shared(&self) -> bool {
        false
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        terms: &'a Terms,
    ) -> BoxFuture<'a, Result<Grant, Error>> {
        Box::pin(async move { Ok(self.decide(|book, now| book.acquire(now, claim, terms))) })
    }

    fn release<'a>(&'a self, holder: &'a Holding) -> BoxFuture<'a, Result<Released, Error>> {
        Box::pin(async move { Ok(self.decide(|book, now| book.release(now, holder))) })
    }

    fn extend<'a>(
        &'a self,
        holder: &'a Holding,
        change: &'a Extension,
    ) -> BoxFuture<'a, Result<Option<Remaining>, Error>> {
        Box::pin(async move { Ok(self.decide(|book, now| book.extend(now, holder, change))) })
    }

    fn holders<'a>(
        &'a self,
        key: &'a Key,
        family: Family,
    ) -> BoxFuture<'a, Result<Vec<Holder>, Error>> {
        Box::pin(async move { Ok(self.decide(|book, now| book.holders(now, key, family))) })
    }

    fn force_release<'a>(
        &'a self,
        key: &'a Key,
        family: Family,
    ) -> BoxFuture<'a, Result<Removed, Error>> {
        Box::pin(async move { Ok(self.decide(|book, now| book.force_release(now, key, family))) })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.decide(|book, now| book.withdraw(now, claim));
            Ok(())
        })
    }

    fn watch(&self, key: &Key, family: Family) -> Box<dyn Watch> {
        Box::new(self.signals.watch(key, family))
    }
}
