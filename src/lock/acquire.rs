//! The request for a lock: named, not yet held.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    attempt::{Attempt, Who},
    backend::{
        BoxFuture, Extension, Family, Fencing, Holder, Holding, Key, Mode, Reentry, Released,
        Remaining, Removed, Ttl, Watch,
    },
    error::{Error, ErrorKind, Operation},
    guard::{Guard, OnDrop},
    limits::{self, Fault},
    manager::{Shared, failed},
    obtain,
    plan::{Plan, Renewal},
    retry::Retry,
    run,
    token::Token,
};

/// A lock that is named but not yet held: what is wanted, and on what terms.
///
/// [`LockManager`](super::LockManager) makes it. Nothing is sent before one of the async methods
/// is called, and the request can be used again.
///
/// An argument out of its limits is reported by whichever async method comes next.
#[derive(Clone, Debug)]
#[must_use = "a request takes nothing until it is acquired or run"]
pub struct Acquire {
    pub(super) shared: Arc<Shared>,
    pub(super) keys: Result<Arc<[Key]>, Fault>,
    pub(super) mode: Mode,
    pub(super) ttl: Result<Ttl, Fault>,
    pub(super) wait: Option<Duration>,
    pub(super) deadline: Option<Instant>,
    pub(super) retry: Option<Retry>,
    pub(super) token: Option<Token>,
    pub(super) metadata: Bytes,
    pub(super) reentry: Reentry,
    pub(super) fencing: Fencing,
    pub(super) preference: Preference,
    pub(super) renewal: Renewal,
    pub(super) on_drop: OnDrop,
}

/// Whether a waiting writer holds back new readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preference {
    None,
    Writer,
}

impl Acquire {
    pub(super) fn new(shared: Arc<Shared>, keys: Result<Arc<[Key]>, Fault>, mode: Mode) -> Self {
        Self {
            ttl: limits::whole_millis(shared.ttl).map(Ttl::Millis),
            shared,
            keys,
            mode,
            wait: None,
            deadline: None,
            retry: None,
            token: None,
            metadata: Bytes::new(),
            reentry: Reentry::default(),
            fencing: Fencing::default(),
            preference: Preference::None,
            renewal: Renewal::Off,
            on_drop: OnDrop::default(),
        }
    }

    /// How long the lock lives unless it is extended: whole milliseconds (a part of one is cut
    /// off), at least one, at most [`MAX_DURATION`](super::MAX_DURATION).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = limits::whole_millis(ttl).map(Ttl::Millis);
        self
    }

    /// Lets the lock live until it is released. If the holder dies, only
    /// [`force_release`](Self::force_release) or its token frees it.
    pub fn persistent(mut self) -> Self {
        self.ttl = Ok(Ttl::Persistent);
        self
    }

    /// Waits for the lock for up to `wait`; not at all if it is zero, whatever
    /// [`deadline`](Self::deadline) and [`retry`](Self::retry) say.
    ///
    /// A waiter is woken by the release. Beneath that it tries again when the holder's time is
    /// over, and now and then in between.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Waits until `deadline` at most, and lets the lock not outlive it unless it is extended.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Tries again by this strategy instead of being woken.
    ///
    /// Without [`wait`](Self::wait) and [`deadline`](Self::deadline) it gives up after the time
    /// to live at the latest.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Holds the lock under a token of your own instead of a random one.
    ///
    /// An empty token means a random one, except for read/write locks, where it is refused. What
    /// happens if the token holds the lock already is told by [`reentry`](Self::reentry).
    pub fn token(mut self, token: impl AsRef<[u8]>) -> Self {
        let token = token.as_ref();
        let random = token.is_empty() && self.mode == Mode::Exclusive;
        self.token = (!random).then(|| Token::new(token));
        self
    }

    /// What the holder says about itself, for everyone who asks for the [`holder`](Self::holder).
    pub fn metadata(mut self, metadata: impl Into<Bytes>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// What happens if the [token](Self::token) holds the exclusive lock already; by default it
    /// takes the lock again.
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.reentry = reentry;
        self
    }

    /// Asks for a [fencing number](Guard::fencing_number).
    pub fn fencing(mut self) -> Self {
        self.fencing = Fencing::Numbered;
        self
    }

    /// Lets a writer that waits hold back new readers, so that a stream of readers cannot keep it
    /// out for ever.
    pub fn prefer_writer(mut self) -> Self {
        self.preference = Preference::Writer;
        self
    }

    /// Extends the lock again and again, at a third of its time to live, until its guard is gone.
    ///
    /// If that fails until the validity is over, or someone else has the lock, the guard is
    /// [lost](Guard::lost).
    pub fn auto_extend(mut self) -> Self {
        self.renewal = Renewal::AtAThird;
        self
    }

    /// What dropping the guard does; by default it releases the lock in the background.
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.on_drop = on_drop;
        self
    }

    /// Listens for releases of its one lock.
    pub(crate) fn watch(&self) -> Option<Box<dyn Watch>> {
        let key = self.keys.as_ref().ok()?.first()?;
        Some(self.shared.backend.watch(key, self.family()))
    }

    /// The keys, or nothing if a name is out of its limits.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys
            .iter()
            .flat_map(|keys| keys.iter().map(Key::as_str))
    }

    /// Makes one attempt, and tells if someone else holds the lock.
    ///
    /// # Errors
    ///
    /// An argument is out of its limits, or the backend failed. If the outcome is
    /// [unknown](super::ErrorKind::OutcomeUnknown), the attempt is taken back in the background.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves no lock behind: whatever was sent is taken back in the background.
    pub async fn try_acquire(&self) -> Result<Attempt, Error> {
        let plan = Plan::new(self).map_err(|error| error.during(Operation::Acquire))?;
        obtain::once(&plan).await
    }

    /// Acquires the lock, waiting for it if the request says so.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Busy`] if someone else holds it to the end of the wait, and whatever
    /// [`try_acquire`](Self::try_acquire) reports. While there is time to wait, failures that may
    /// pass (an unreachable backend, one that is loading) lead to another attempt.
    ///
    /// # Cancel safety
    ///
    /// As [`try_acquire`](Self::try_acquire); the place in the waiting line is given up.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.obtain().await?.into_result().map_err(|error| {
            let error = error.during(Operation::Acquire);
            match self.keys.as_ref().ok().and_then(|keys| keys.first()) {
                Some(key) => error.on(key),
                None => error,
            }
        })
    }

    /// Runs `work` while the lock is held, or returns `None` without running it if someone else
    /// holds the lock (to the end of the wait, if the request has one).
    ///
    /// The lock is released before this returns, also if `work` panics, and in the background if
    /// the returned future is dropped. With [`auto_extend`](Self::auto_extend), `work` is dropped
    /// as soon as the lock is lost. A release that fails is logged: the result of the work counts,
    /// and the time to live frees the lock.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), apart from [`ErrorKind::Busy`]; [`ErrorKind::NotHeld`] if
    /// the lock was lost and the work was dropped.
    ///
    /// # Panics
    ///
    /// If `work` does.
    pub async fn run<F: Future>(&self, work: F) -> Result<Option<F::Output>, Error> {
        match Box::pin(self.obtain()).await? {
            Attempt::Acquired(guard) => run::run(guard, Box::pin(work)).await.map(Some),
            Attempt::AlreadyHeld(_) | Attempt::Busy(_) => Ok(None),
        }
    }

    /// Whether anybody holds any of the names. True when it was asked, perhaps not any more when
    /// the answer is read: for a status page, not for a decision.
    ///
    /// # Errors
    ///
    /// A name is out of its limits, or the backend failed.
    pub async fn is_held(&self) -> Result<bool, Error> {
        self.exists(Who::Anyone).await
    }

    /// Whether `who` holds any of the names.
    ///
    /// # Errors
    ///
    /// A name or the token is out of its limits, or the backend failed.
    pub async fn exists(&self, who: Who) -> Result<bool, Error> {
        if let Who::Token(token) = &who {
            self.valid(Operation::Inspect, token.check().map_err(Error::from))?;
        }
        let holders = self.holders().await?;
        Ok(match who {
            Who::Anyone => !holders.is_empty(),
            Who::Token(token) => holders.iter().any(|holder| *holder.token() == token),
        })
    }

    /// Who holds the lock, if anyone does: the first of several.
    ///
    /// # Errors
    ///
    /// A name is out of its limits, or the backend failed.
    pub async fn holder(&self) -> Result<Option<Holder>, Error> {
        Ok(self.holders().await?.into_iter().next())
    }

    /// Everyone who holds one of the names: readers, or the holders of several names.
    ///
    /// # Errors
    ///
    /// A name is out of its limits, or the backend failed.
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        let keys = self.checked_keys(Operation::Inspect)?;
        let ask = |key| self.shared.backend.holders(key, self.family());
        let holders = self.each(Operation::Inspect, &keys, ask).await?;
        Ok(holders.into_iter().flatten().collect())
    }

    /// Removes the lock, whoever holds it, and wakes those who wait; true if there was a holder.
    ///
    /// For operators: the holder is not asked, and if it is alive there may soon be two.
    ///
    /// # Errors
    ///
    /// A name is out of its limits, or the backend failed.
    pub async fn force_release(&self) -> Result<bool, Error> {
        let keys = self.checked_keys(Operation::ForceRelease)?;
        let remove = |key| self.shared.backend.force_release(key, self.family());
        let removed = self.each(Operation::ForceRelease, &keys, remove).await?;
        Ok(removed.contains(&Removed::Some))
    }

    /// Releases what `token` holds, from any process: all names or none.
    ///
    /// # Errors
    ///
    /// A name or the token is out of its limits, or the backend failed.
    pub async fn release(&self, token: &Token) -> Result<Released, Error> {
        self.valid(Operation::Release, token.check().map_err(Error::from))?;
        let keys = self.checked_keys(Operation::Release)?;
        let holding = Holding::of_token(Arc::clone(&keys), self.family(), token.clone());
        let released = self.within(self.shared.backend.release(&holding)).await;
        released.map_err(|error| self.failed(Operation::Release, keys.first(), error))
    }

    /// Lets what `token` holds live for this request's [`ttl`](Self::ttl) from now on (or until it
    /// is released: [`persistent`](Self::persistent)), from any process: all names or none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotHeld`] if the token does not hold the lock, which then stays as it is;
    /// an argument is out of its limits, or the backend failed.
    pub async fn extend(&self, token: &Token) -> Result<(), Error> {
        self.valid(Operation::Extend, token.check().map_err(Error::from))?;
        let change =
            Extension::Replace(self.valid(Operation::Extend, self.ttl.map_err(Error::from))?);
        let keys = self.checked_keys(Operation::Extend)?;
        let holding = Holding::of_token(Arc::clone(&keys), self.family(), token.clone());
        let extended = self
            .within(self.shared.backend.extend(&holding, &change))
            .await;
        extended
            .and_then(|left| left.ok_or_else(|| Error::new(ErrorKind::NotHeld)))
            .map(drop)
            .map_err(|error| self.failed(Operation::Extend, keys.first(), error))
    }

    /// A guard for what `token` holds already, such as a lock taken by another process: with it
    /// the lock can be extended and released. `None` if the token does not hold it.
    ///
    /// It is a guard like any other: dropping it releases the lock, unless it is
    /// [kept](Guard::keep) or the request [says otherwise](Self::on_drop).
    ///
    /// # Errors
    ///
    /// A name or the token is out of its limits, several names were given, or the backend failed.
    pub async fn adopt(&self, token: &Token) -> Result<Option<Guard>, Error> {
        self.valid(Operation::Inspect, token.check().map_err(Error::from))?;
        let keys = self.checked_keys(Operation::Inspect)?;
        let [key] = &*keys else {
            return self.valid(Operation::Inspect, Err(Fault::FixedTokenNeeded.into()));
        };
        let plan = Plan::new(self).map_err(|error| error.during(Operation::Inspect))?;
        let asked = Instant::now();
        let holders = self.holders().await?;
        let holder = holders.iter().find(|holder| holder.token() == token);
        Ok(holder.map(|holder| {
            let ttl = match holder.remaining() {
                Remaining::Millis(millis) => Ttl::Millis(millis),
                Remaining::Persistent => Ttl::Persistent,
            };
            Guard::new(&plan, &holder.claim(key), ttl, asked, None)
        }))
    }

    async fn obtain(&self) -> Result<Attempt, Error> {
        let plan = Plan::new(self).map_err(|error| error.during(Operation::Acquire))?;
        obtain::obtain(&plan).await
    }

    fn family(&self) -> Family {
        self.mode.family()
    }

    fn checked_keys(&self, operation: Operation) -> Result<Arc<[Key]>, Error> {
        let keys = self.keys.clone().map_err(Error::from);
        self.valid(operation, keys)
    }

    fn valid<T>(&self, operation: Operation, checked: Result<T, Error>) -> Result<T, Error> {
        let waited = self.wait.map_or(Ok(Duration::ZERO), limits::wait);
        waited
            .map_err(Error::from)
            .and(checked)
            .map_err(|error| error.during(operation))
    }

    /// Does the same with one key after the other.
    async fn each<'a, T>(
        &self,
        operation: Operation,
        keys: &'a [Key],
        call: impl Fn(&'a Key) -> BoxFuture<'a, Result<T, Error>>,
    ) -> Result<Vec<T>, Error> {
        self.within(async {
            let mut answers = Vec::new();
            for key in keys {
                let answer = call(key).await;
                answers.push(answer.map_err(|error| self.failed(operation, Some(key), error))?);
            }
            Ok(answers)
        })
        .await
        .map_err(|error| match keys.first() {
            Some(first) => error.during(operation).on(first),
            None => error,
        })
    }

    /// Lets a call that does not wait for the lock take no longer than the request would wait.
    async fn within<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match self.wait {
            Some(wait) if !wait.is_zero() => tokio::time::timeout(wait, call)
                .await
                .unwrap_or_else(|late| Err(Error::unknown(late))),
            _ => call.await,
        }
    }

    fn failed(&self, operation: Operation, key: Option<&Key>, error: Error) -> Error {
        match key {
            Some(key) => failed(operation, key, self.token.as_ref(), error),
            None => error,
        }
    }
}
