//! The flights of a cache, by key.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::BuildHasher as _,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use super::{Flight, Pilot, Seat, Turned};
use crate::{key::Key, purges::Moment};

const SHARDS: usize = 64;

/// All flights under way. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Flights(Arc<Table>);

#[derive(Debug)]
struct Table {
    shards: [Mutex<HashMap<Key, Arc<Flight>, RandomState>>; SHARDS],
    hasher: RandomState,
    waiters: Arc<AtomicUsize>,
    /// A flight has left.
    left: Notify,
}

/// How many may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) per_flight: usize,
    pub(crate) in_all: usize,
}

/// What became of a request that asked to join.
#[derive(Debug)]
pub(crate) enum Joined {
    /// The flight is new: the request has to spawn its task.
    Starter(Seat, Pilot),
    Waiter(Seat),
    /// There are too many waiters.
    Full,
}

/// A place among all waiters of the cache.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(waiters: &Arc<AtomicUsize>) -> Self {
        waiters.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(waiters))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Flights {
    fn default() -> Self {
        Self(Arc::new(Table {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::default(),
            waiters: Arc::default(),
            left: Notify::new(),
        }))
    }
}

impl Flights {
    /// Joins the flight of `key`, or starts one where there is none that takes newcomers.
    ///
    /// `overtaken` says of a running flight that what it builds is no longer for newcomers.
    pub(crate) fn join(
        &self,
        key: &Key,
        now: Moment,
        limits: Limits,
        overtaken: impl FnOnce(&Flight) -> bool,
    ) -> Joined {
        let mut shard = self.shard(key);
        match shard.entry(key.clone()) {
            Entry::Vacant(vacant) => {
                let flight = Arc::new(Flight::new(key.clone(), now));
                self.start(Arc::clone(vacant.insert(flight)), now)
            }
            Entry::Occupied(mut running) => {
                if overtaken(running.get()) {
                    running.get().seal();
                }
                let admission = running.get().state().join(limits.per_flight);
                match admission {
                    Ok(()) => self.wait(running.get(), now, limits.in_all),
                    Err(Turned::Full) => Joined::Full,
                    Err(Turned::Sealed) => {
                        let flight = Arc::new(Flight::new(key.clone(), now));
                        running.insert(Arc::clone(&flight));
                        self.start(flight, now)
                    }
                }
            }
        }
    }

    /// Who starts a flight waits for nobody else: however many wait elsewhere, a key is built.
    fn start(&self, flight: Arc<Flight>, now: Moment) -> Joined {
        let admission = flight.state().join(usize::MAX);
        debug_assert_eq!(admission, Ok(()), "a new flight is open");
        let seat = seat(&flight, now, Place::take(&self.0.waiters));
        let table = self.clone();
        Joined::Starter(seat, Pilot { flight, table })
    }

    /// One more in a flight under way, unless there are too many in all.
    fn wait(&self, flight: &Arc<Flight>, now: Moment, limit: usize) -> Joined {
        let seat = seat(flight, now, Place::take(&self.0.waiters));
        if self.waiters() > limit {
            return Joined::Full;
        }
        Joined::Waiter(seat)
    }

    /// Takes `flight` out, and no other one under its key.
    pub(super) fn remove(&self, flight: &Arc<Flight>) {
        let mut shard = self.shard(&flight.key);
        if shard
            .get(&flight.key)
            .is_some_and(|known| Arc::ptr_eq(known, flight))
        {
            shard.remove(&flight.key);
        }
        drop(shard);
        self.0.left.notify_waiters();
    }

    /// Waits until no flight is under way.
    pub(crate) async fn idle(&self) {
        loop {
            let mut left = pin!(self.0.left.notified());
            left.as_mut().enable();
            if self.len() == 0 {
                return;
            }
            left.await;
        }
    }

    /// The flights under way.
    pub(crate) fn len(&self) -> usize {
        let shards = self.0.shards.iter();
        shards
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len())
            .sum()
    }

    /// The requests that wait in them.
    pub(crate) fn waiters(&self) -> usize {
        self.0.waiters.load(Ordering::Relaxed)
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Arc<Flight>, RandomState>> {
        let hash = self.0.hasher.hash_one(key.as_bytes());
        let at = usize::try_from(hash % SHARDS as u64).expect("a shard's number is small");
        self.0
            .shards
            .get(at)
            .expect("the remainder is below the number of shards")
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn seat(flight: &Arc<Flight>, joined: Moment, place: Place) -> Seat {
    Seat {
        flight: Arc::clone(flight),
        joined,
        _place: place,
    }
}
