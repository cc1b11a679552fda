//! Locks on Redis: thin calls of scripts, and the subscription that wakes the waiters.
//!
//! | key | holds |
//! |---|---|
//! | the lock's own | the value of the exclusive lock, with the lock's time to live |
//! | `…:~x:<attempt>` | the tombstone of an attempt that was withdrawn |
//! | `…:~f` | the last fencing number |
//! | `…:~a:<name>` | an addition to the time to live that was made |
//! | `…:~rw`, `…:~rn`, `…:~rq` | the read/write lock: members, notes on them, writers that wait |
//!
//! All of a lock's keys lie in one Cluster slot. The channels are `…:~c` and, of the read/write lock,
//! `…:~rc`.

mod calls;
mod replies;
mod scripts;
mod watch;

use std::{sync::Arc, time::Duration};

use redis::{Client, FromRedisValue};
use tokio::sync::Semaphore;

use self::{calls::channel, watch::RedisWatch};
use super::{
    backend::{
        BoxFuture, Claim, Extension, Family, Grant, Holder, Holding, Key, Lock, Released,
        Remaining, Removed, Terms, Watch,
    },
    error::Error,
};
use crate::link::{Call, Route, Script, Server, Settings, Subscription};

/// So many operations are under way at once; the others wait for those.
const TURNS: usize = 512;

/// The backend of [`LockManager::redis`](super::LockManager::redis).
///
/// One connection for commands, opened by the first one, and one for all waits, opened by the
/// first wait. In a Cluster there is one for commands to each node. A connection that is lost or stalled is replaced in the background; meanwhile
/// operations fail at once.
#[derive(Clone, Debug)]
pub struct RedisLock {
    link: Route,
    subscription: Subscription,
    /// A crowd takes turns, since a link turns away what it has no room for.
    turns: Arc<Semaphore>,
}

impl RedisLock {
    /// A backend on the Redis that `client` connects to, with 250 ms for connecting and for each
    /// command.
    pub fn new(client: Client) -> Self {
        let timeout = Duration::from_millis(250);
        Self::with_timeouts(client, timeout, timeout)
    }

    /// As [`new`](Self::new), with timeouts of your own.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the client is a handle that is given away"
    )]
    pub fn with_timeouts(
        client: Client,
        connect_timeout: Duration,
        command_timeout: Duration,
    ) -> Self {
        Self::on(&Server::from(&client), connect_timeout, command_timeout)
    }

    pub(super) fn on(
        server: &Server,
        connect_timeout: Duration,
        command_timeout: Duration,
    ) -> Self {
        let settings = |name| Settings {
            connect_timeout,
            command_timeout,
            name,
        };
        Self {
            link: Route::new(server, settings("locks")),
            subscription: Subscription::new(server.clone(), settings("lock releases")),
            turns: Arc::new(Semaphore::new(TURNS)),
        }
    }

    async fn invoke<T: FromRedisValue>(
        &self,
        script: &'static Script,
        call: Call,
    ) -> Result<T, Error> {
        let _turn = self.turns.acquire().await.map_err(Error::unavailable)?;
        Ok(self.link.invoke(script, call).await?)
    }

    /// A Cluster handles together only what lies in one slot.
    fn check_slots(&self, keys: &[Key]) -> Result<(), Error> {
        if let Route::One(_) = self.link {
            return Ok(());
        }
        let mut slots = keys.iter().map(Key::slot);
        let first = slots.next();
        if slots.any(|slot| Some(slot) != first) {
            return Err(Error::cross_slot());
        }
        Ok(())
    }
}

impl Lock for RedisLock {
    fn is_shared(&self) -> bool {
        true
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        terms: &'a Terms,
    ) -> BoxFuture<'a, Result<Grant, Error>> {
        Box::pin(async move {
            self.check_slots(claim.keys())?;
            let (script, call) = calls::acquire(claim, terms);
            replies::grant(&self.invoke(script, call).await?)
        })
    }

    fn release<'a>(&'a self, holder: &'a Holding) -> BoxFuture<'a, Result<Released, Error>> {
        Box::pin(async move {
            self.check_slots(holder.keys())?;
            let (script, call) = calls::release(holder);
            replies::released(self.invoke(script, call).await?)
        })
    }

    fn extend<'a>(
        &'a self,
        holder: &'a Holding,
        change: &'a Extension,
    ) -> BoxFuture<'a, Result<Option<Remaining>, Error>> {
        Box::pin(async move {
            self.check_slots(holder.keys())?;
            let (script, call) = calls::extend(holder, change);
            Ok(replies::remaining(self.invoke(script, call).await?))
        })
    }

    fn holders<'a>(
        &'a self,
        key: &'a Key,
        family: Family,
    ) -> BoxFuture<'a, Result<Vec<Holder>, Error>> {
        Box::pin(async move {
            let (script, call) = calls::holders(key, family);
            replies::holders(&self.invoke::<Vec<_>>(script, call).await?, family)
        })
    }

    fn force_release<'a>(
        &'a self,
        key: &'a Key,
        family: Family,
    ) -> BoxFuture<'a, Result<Removed, Error>> {
        Box::pin(async move {
            let (script, call) = calls::force_release(key, family);
            let removed: u64 = self.invoke(script, call).await?;
            Ok(if removed > 0 {
                Removed::Some
            } else {
                Removed::Nothing
            })
        })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.check_slots(claim.keys())?;
            let (script, call) = calls::withdraw(claim);
            self.invoke(script, call).await
        })
    }

    fn watch(&self, key: &Key, family: Family) -> Box<dyn Watch> {
        let listener = self.subscription.listen(&channel(key, family));
        Box::new(RedisWatch::new(listener))
    }

    fn connect(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(self.link.ping().await?) })
    }
}
