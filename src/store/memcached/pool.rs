//! A few connections to one server, each for one operation at a time.
//!
//! A connection whose operation failed half-way or was given up is closed: what still comes over it would be
//! taken for the next operation's answer. Those that lie idle beside it are closed too, since they lead to the
//! same server.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_memcached::{Client, Error as ClientError};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, error::Elapsed, timeout_at},
};

use super::{address::Address, replies};
use crate::store::Error;

/// So many operations may wait for a connection.
const QUEUE: usize = 1024;

pub(super) struct Pool {
    address: Address,
    idle: Mutex<Vec<Client>>,
    turns: Semaphore,
    queue: Semaphore,
}

impl Pool {
    pub(super) fn new(address: Address, connections: usize) -> Self {
        Self {
            address,
            idle: Mutex::default(),
            turns: Semaphore::new(connections),
            queue: Semaphore::new(QUEUE),
        }
    }

    /// The same with another number of connections, before there are any.
    pub(super) fn resized(self, connections: usize) -> Self {
        Self::new(self.address, connections.min(Semaphore::MAX_PERMITS))
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// A connection that lies idle, or a new one.
    pub(super) async fn connection(&self, deadline: Instant) -> Result<Connection<'_>, Error> {
        let waiting = self
            .queue
            .try_acquire()
            .map_err(|_full| Error::unavailable("too many operations wait for a connection"))?;
        let ready = async {
            let turn = self.turns.acquire().await.map_err(Error::unavailable)?;
            let idle = self.idle().pop();
            let client = match idle {
                Some(client) => client,
                None => Client::new(self.address.as_str())
                    .await
                    .map_err(replies::failure)?,
            };
            Ok(Connection {
                pool: self,
                client: Some(client),
                _turn: turn,
            })
        };
        let ready = timeout_at(deadline, ready).await;
        drop(waiting);
        match ready {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => {
                self.idle().clear();
                Err(error)
            }
            Err(late) => {
                self.idle().clear();
                Err(Error::unavailable(late))
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in use; dropped before its operation has landed, it is closed.
pub(super) struct Connection<'a> {
    pool: &'a Pool,
    client: Option<Client>,
    _turn: SemaphorePermit<'a>,
}

impl Connection<'_> {
    pub(super) fn client(&mut self) -> &mut Client {
        self.client
            .as_mut()
            .expect("it is there until the operation has landed")
    }

    /// Takes note of how the operation ended. What comes back is the server's answer.
    pub(super) fn landed<T>(
        mut self,
        outcome: Result<Result<T, ClientError>, Elapsed>,
    ) -> Result<Result<T, ClientError>, Error> {
        let client = self.client.take().filter(|client| !client.is_closed());
        let mut idle = self.pool.idle();
        match client {
            Some(client) if outcome.is_ok() => idle.push(client),
            _ => idle.clear(),
        }
        drop(idle);
        outcome.map_err(Error::unknown)
    }
}
