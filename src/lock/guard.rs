//! A lock that is held.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{Mutex, watch},
    task::AbortHandle,
    time::{Instant, sleep},
};

use super::{
    backend::{Claim, Extension, Holding, Key, Mode, Released, Remaining, Ttl},
    error::{Error, ErrorKind, Operation},
    limits::{self, Fault},
    manager::{Shared, failed, first},
    plan::{Plan, Renewal},
    renew,
    retry::Retry,
    standing::{Standing, over},
    token::Token,
};
use crate::{task, token::hex};

/// What dropping a [`Guard`] does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDrop {
    /// The lock is released in the background, as well as that is possible: without a running
    /// runtime its time to live ends it.
    #[default]
    Release,
    /// The lock stands until its time to live is over.
    Expire,
}

/// A lock that is held, until [`release`](Self::release), or until its time to live is over.
///
/// What dropping it does was said by the request: see [`OnDrop`]. Prefer `release`, which says
/// whether the lock was still held.
#[must_use = "a guard that is dropped gives its lock up"]
pub struct Guard {
    held: Arc<Held>,
    renewal: Option<AbortHandle>,
    on_drop: OnDrop,
    runtime: Option<Handle>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Done,
}

/// What a guard shares with the task that extends it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) shared: Arc<Shared>,
    pub(super) holding: Holding,
    pub(super) standing: watch::Sender<Standing>,
    /// One extension at a time: a renewal that is under way must not undo a longer time that is
    /// asked for meanwhile.
    pub(super) turn: Mutex<()>,
    mode: Mode,
    metadata: Bytes,
    fence: Option<u64>,
    key: Key,
}

impl Guard {
    /// A guard for a claim that was asked for at `sent` and granted for `ttl`.
    pub(super) fn new(
        plan: &Plan,
        claim: &Claim,
        ttl: Ttl,
        sent: Instant,
        fence: Option<u64>,
    ) -> Self {
        let held = Arc::new(Held {
            shared: Arc::clone(&plan.shared),
            holding: Holding::of_claim(claim),
            standing: watch::Sender::new(Standing::from(ttl, sent)),
            turn: Mutex::new(()),
            mode: claim.mode(),
            metadata: claim.metadata().clone(),
            fence,
            key: first(claim).clone(),
        });
        let renewal = match (plan.renewal, plan.terms.ttl) {
            (Renewal::AtAThird, Ttl::Millis(millis)) => {
                task::spawn(renew::keep_alive(Arc::clone(&held), millis, sent))
            }
            (Renewal::Off, _) | (_, Ttl::Persistent) => None,
        };
        Self {
            held,
            renewal: renewal.map(|task| task.abort_handle()),
            on_drop: plan.on_drop,
            runtime: Handle::try_current().ok(),
            phase: Phase::Held,
        }
    }

    /// The holder's token: with it, any process can release the lock.
    pub fn token(&self) -> &Token {
        self.held.holding.token()
    }

    /// What the holder said about itself.
    pub fn metadata(&self) -> &Bytes {
        &self.held.metadata
    }

    /// How the lock is held.
    pub fn mode(&self) -> Mode {
        self.held.mode
    }

    /// The keys that are held, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.held.holding.keys().iter().map(Key::as_str)
    }

    /// A number greater than that of every earlier grant of the same names, if the request
    /// [asked for one](super::Acquire::fencing).
    ///
    /// Hand it to whatever the lock protects, and let that refuse a smaller number than the
    /// greatest it has seen: that stops a holder that does not know yet that it lost the lock.
    pub fn fencing_number(&self) -> Option<u64> {
        self.held.fence
    }

    /// How long the lock can be trusted without asking: its time to live from the moment it was
    /// asked for, less 1 % and 2 ms for the drift of clocks. `None` if it is persistent.
    pub fn valid_for(&self) -> Option<Duration> {
        self.held.standing.borrow().left()
    }

    /// Whether the lock can be trusted without asking. It does no I/O: see
    /// [`is_still_held`](Self::is_still_held).
    pub fn is_valid(&self) -> bool {
        self.held.standing.borrow().is_valid()
    }

    /// Completes when the lock can no longer be trusted: its validity is over, an extension found
    /// it taken, or the guard was released, kept or dropped.
    ///
    /// The future borrows nothing, so that it can watch over work elsewhere.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        over(self.held.standing.subscribe())
    }

    /// Asks the backend whether the lock is still held by this guard.
    ///
    /// # Errors
    ///
    /// The backend failed.
    pub async fn is_still_held(&self) -> Result<bool, Error> {
        Ok(self.remaining().await?.is_some())
    }

    /// Asks the backend how long the lock remains: the least of several. `None` if it is not held.
    ///
    /// # Errors
    ///
    /// The backend failed.
    pub async fn remaining(&self) -> Result<Option<Remaining>, Error> {
        let told = self.send(&Extension::Tell).await;
        told.map_err(|error| self.held.failed(Operation::Inspect, error))
    }

    /// Lets the lock live for `ttl` from now on, be it longer or shorter than what remains.
    ///
    /// A lock that is over is never taken back to life.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotHeld`] if the lock is not held any more (all names or none are extended);
    /// `ttl` is out of its limits, or the backend failed.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        self.replace(limits::whole_millis(ttl).map(Ttl::Millis))
            .await
    }

    /// As [`extend`](Self::extend), trying again by `retry` when the backend fails; a lock that is
    /// not held any more is reported at once.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend): the last failure when the strategy gives up.
    pub async fn extend_with(&self, ttl: Duration, retry: &Retry) -> Result<(), Error> {
        for pause in retry.pauses() {
            match self.extend(ttl).await {
                Err(error) if error.is_transient() || error.outcome_unknown() => sleep(pause).await,
                done => return done,
            }
        }
        self.extend(ttl).await
    }

    /// Adds `more` to what remains.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend); a persistent lock is refused with
    /// [`ErrorKind::InvalidInput`].
    pub async fn extend_by(&self, more: Duration) -> Result<(), Error> {
        let extended = self.add(more).await;
        extended.map_err(|error| self.held.failed(Operation::Extend, error))
    }

    /// Lets the lock live until it is released.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend).
    pub async fn persist(&self) -> Result<(), Error> {
        self.replace(Ok(Ttl::Persistent)).await
    }

    /// Releases the lock, all names or none, and says whether it was still held.
    ///
    /// # Errors
    ///
    /// The backend failed; the time to live then ends the lock. (A persistent one stays: whoever
    /// keeps its token can [release](super::Acquire::release) it later.)
    ///
    /// # Cancel safety
    ///
    /// A dropped future releases in the background, whatever [`OnDrop`] says.
    pub fn release(mut self) -> impl Future<Output = Result<Released, Error>> + Send + use<> {
        self.release_on_drop();
        self.give_back()
    }

    async fn give_back(mut self) -> Result<Released, Error> {
        self.stop_renewal();
        let released = self.held.shared.backend.release(&self.held.holding).await;
        self.finish();
        released.map_err(|error| self.held.failed(Operation::Release, error))
    }

    /// Gives the guard up and leaves the lock standing until its time to live is over: a claim that
    /// outlives the work, such as "this minute's run has been done".
    pub fn keep(mut self) {
        self.finish();
    }

    pub(super) fn release_on_drop(&mut self) {
        self.on_drop = OnDrop::Release;
    }

    pub(super) fn renews(&self) -> bool {
        self.renewal.is_some()
    }

    async fn replace(&self, ttl: Result<Ttl, Fault>) -> Result<(), Error> {
        let replaced = async {
            let ttl = ttl?;
            let _turn = self.held.turn.lock().await;
            let sent = Instant::now();
            self.held
                .extended(self.send(&Extension::Replace(ttl)).await?)?;
            self.held.stand(Standing::from(ttl, sent));
            Ok(())
        };
        replaced
            .await
            .map_err(|error| self.held.failed(Operation::Extend, error))
    }

    async fn add(&self, more: Duration) -> Result<(), Error> {
        let millis = limits::whole_millis(more)?;
        let mut once = [0_u8; 8];
        getrandom::fill(&mut once).map_err(Error::entropy)?;
        let once = hex(&once).into();
        let _turn = self.held.turn.lock().await;
        let sent = Instant::now();
        let remaining = self.send(&Extension::Add { millis, once }).await?;
        match self.held.extended(remaining)? {
            Remaining::Millis(millis) => {
                self.held.stand(Standing::from(Ttl::Millis(millis), sent));
                Ok(())
            }
            Remaining::Persistent => Err(Fault::PersistentAddition.into()),
        }
    }

    async fn send(&self, change: &Extension) -> Result<Option<Remaining>, Error> {
        if *self.held.standing.borrow() == Standing::Lost {
            return Ok(None);
        }
        let backend = &self.held.shared.backend;
        backend.extend(&self.held.holding, change).await
    }

    fn stop_renewal(&mut self) {
        if let Some(task) = self.renewal.take() {
            task.abort();
        }
    }

    fn finish(&mut self) {
        self.stop_renewal();
        self.phase = Phase::Done;
        self.held.standing.send_replace(Standing::Ended);
    }
}

impl Held {
    /// Notes that the lock was found to be someone else's.
    pub(super) fn extended(&self, remaining: Option<Remaining>) -> Result<Remaining, Error> {
        remaining.ok_or_else(|| {
            self.stand(Standing::Lost);
            Error::new(ErrorKind::NotHeld)
        })
    }

    /// A new standing, unless the lock is lost or the guard is gone.
    pub(super) fn stand(&self, standing: Standing) {
        self.standing.send_if_modified(|now| {
            let open = !matches!(now, Standing::Lost | Standing::Ended);
            if open {
                *now = standing;
            }
            open
        });
    }

    pub(super) fn failed(&self, operation: Operation, error: Error) -> Error {
        let token = Some(self.holding.token());
        failed(operation, &self.key, token, error)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.phase == Phase::Done {
            return;
        }
        self.finish();
        tracing::debug!(key = %self.held.key, on_drop = ?self.on_drop, "a lock's guard was dropped without release");
        if self.on_drop == OnDrop::Release {
            // A guard may be dropped on a thread that knows no runtime.
            let _entered = self.runtime.as_ref().map(Handle::enter);
            drop(task::spawn(release(Arc::clone(&self.held))));
        }
    }
}

async fn release(held: Arc<Held>) {
    for pause in Retry::exponential(Duration::from_millis(50), Duration::from_secs(1))
        .limit(5)
        .pauses()
    {
        match held.shared.backend.release(&held.holding).await {
            Ok(_) => return,
            Err(error) => {
                tracing::debug!(key = %held.key, %error, "a dropped lock could not be released");
            }
        }
        sleep(pause).await;
    }
    tracing::warn!(key = %held.key, "a dropped lock was not released; its time to live ends it");
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.held.key.as_str())
            .field("mode", &self.held.mode)
            .field("standing", &*self.held.standing.borrow())
            .finish_non_exhaustive()
    }
}
