//! The locks that elect who builds.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use super::{claims::Ground, gauge::Gauge};
use crate::{
    cache::LinkHealth,
    caught::in_time,
    lock::{self, Acquire, Attempt, ErrorKind, Guard, LockManager, OnDrop, Remaining},
    shared::{Effect, Fault, Held, Outage, breaker::Breaker},
};

/// What an entry's head has room for; microseconds come to it in the year 2286.
const LARGEST_NUMBER: u64 = 9_999_999_999_999_999;

/// Locks by name. They have a breaker of their own: while they fail, entries are still found.
#[derive(Debug)]
pub(super) struct Locks {
    manager: LockManager,
    breaker: Breaker,
    gauge: Gauge,
    /// The latest number of a build that this process knows of.
    latest: AtomicU64,
}

/// What came of asking for a lock.
pub(super) enum Taken {
    Held(Grip),
    /// By somebody else, for so much longer unless it is extended.
    Busy(Duration),
    /// There are none to be had.
    None,
}

/// A lock that is held; dropped, it is given back.
#[derive(Debug)]
pub(super) struct Grip {
    guard: Mutex<Option<Guard>>,
    /// The lock's own number of the grant, if it numbers them.
    pub(super) number: Option<u64>,
}

impl Locks {
    pub(super) fn new(manager: LockManager) -> Self {
        Self {
            manager,
            breaker: Breaker::new("locks"),
            gauge: Gauge::new("locks"),
            latest: AtomicU64::new(0),
        }
    }

    pub(super) fn health(&self) -> LinkHealth {
        self.gauge.health()
    }

    pub(super) fn named(&self, name: &str) -> Acquire {
        self.manager.lock(name)
    }

    /// One attempt, for half of the time until `deadline`: what is in the store is worth more.
    ///
    /// # Cancel safety
    ///
    /// Dropped early or too late, the attempt is taken back in the background.
    pub(super) async fn take(&self, name: &str, ttl: Duration, deadline: Instant) -> Taken {
        let Ok(permit) = self.breaker.admit() else {
            return Taken::None;
        };
        let asked = Instant::now();
        let limit = asked + deadline.saturating_duration_since(asked) / 2;
        let request = self.named(name).ttl(ttl).fencing().on_drop(OnDrop::Release);
        match bounded(limit, request.try_acquire()).await {
            Ok(attempt) => {
                permit.succeeded();
                self.gauge.answered(asked);
                Taken::of(attempt, ttl)
            }
            Err(error) => {
                permit.failed(&error);
                self.gauge.failed(&error);
                Taken::None
            }
        }
    }

    /// A number for a build under `grip`: greater than that of every build for the same key that is known.
    /// Without the lock's own it is the next one after those.
    pub(super) fn number(&self, grip: Option<&Grip>, seen: u64) -> u64 {
        let next = seen.max(self.latest.load(Ordering::Relaxed)) + 1;
        let own = grip.and_then(|grip| grip.number);
        let number = own.unwrap_or(next).min(LARGEST_NUMBER);
        self.know(number);
        number
    }

    /// Notes the number of a build.
    pub(super) fn know(&self, number: u64) {
        self.latest.fetch_max(number, Ordering::Relaxed);
    }
}

impl Taken {
    fn of(attempt: Attempt, ttl: Duration) -> Self {
        match attempt {
            Attempt::Acquired(guard) => Self::Held(Grip {
                number: guard
                    .fencing_number()
                    .filter(|number| (1..LARGEST_NUMBER).contains(number)),
                guard: Mutex::new(Some(guard)),
            }),
            Attempt::Busy(busy) => {
                let left = busy.remaining().and_then(Remaining::duration);
                Self::Busy(left.unwrap_or(ttl))
            }
            // Every attempt has a token of its own.
            Attempt::AlreadyHeld(_) => Self::Busy(ttl),
        }
    }
}

impl Grip {
    async fn is_valid(&self) -> bool {
        let guard = self.guard.lock().await;
        guard.as_ref().is_some_and(Guard::is_valid)
    }

    async fn extend(&self, ttl: Duration, deadline: Instant) -> Result<Held, Outage> {
        let guard = self.guard.lock().await;
        let Some(guard) = guard.as_ref() else {
            return Ok(Held::Lost);
        };
        match bounded(deadline, guard.extend(ttl)).await {
            Ok(()) => Ok(Held::Ours),
            Err(error) if error.kind() == ErrorKind::NotHeld => Ok(Held::Lost),
            Err(error) => Err(outage(error)),
        }
    }

    /// Gives the lock back; an answer that does not come is awaited in the background.
    async fn release(&self, deadline: Instant) -> Result<Held, Outage> {
        let Some(guard) = self.guard.lock().await.take() else {
            return Ok(Held::Lost);
        };
        match bounded(deadline, guard.release()).await {
            Ok(released) if released.was_held() => Ok(Held::Ours),
            Ok(_) => Ok(Held::Lost),
            Err(error) => Err(outage(error)),
        }
    }
}

async fn bounded<T>(
    deadline: Instant,
    operation: impl Future<Output = Result<T, lock::Error>>,
) -> Result<T, lock::Error> {
    let outcome = in_time(deadline, operation).await;
    outcome.unwrap_or_else(|cause| Err(lock::Error::unknown(cause)))
}

/// The store may be there all the same.
fn outage(error: lock::Error) -> Outage {
    let effect = if error.outcome_unknown() {
        Effect::Unknown
    } else {
        Effect::None
    };
    Outage {
        effect,
        fault: Fault::Refused,
        source: error.into(),
    }
}

/// A lease's lock, and what its build has seen before it began.
#[derive(Debug)]
pub(crate) struct Hold {
    /// None: there are no locks to be had.
    pub(super) grip: Option<Grip>,
    pub(super) ground: Ground,
}

impl Hold {
    /// Whether nobody else builds under the same lock, as far as can be told without asking.
    pub(super) async fn is_valid(&self) -> bool {
        match &self.grip {
            Some(grip) => grip.is_valid().await,
            None => true,
        }
    }

    pub(super) async fn extend(&self, ttl: Duration, deadline: Instant) -> Result<Held, Outage> {
        match &self.grip {
            Some(grip) => grip.extend(ttl, deadline).await,
            None => Ok(Held::Ours),
        }
    }

    pub(super) async fn release(&self, deadline: Instant) -> Result<Held, Outage> {
        match &self.grip {
            Some(grip) => grip.release(deadline).await,
            None => Ok(Held::Ours),
        }
    }
}
