//! What the tests of locks stand on: the same backend behind two managers, watched by a spy.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::task::JoinHandle;
use tower_stampede::lock::{
    Acquire, Builder, Error, Guard, Lock, LockManager, MemoryLock,
    backend::{
        BoxFuture, Claim, Extension, Family, Grant, Holder, Holding, Key, Released, Remaining,
        Removed, Terms, Watch,
    },
};

#[cfg(feature = "redis")]
use crate::support::redis::RedisServer;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const SHORT: Duration = Duration::from_millis(400);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Writes each scenario as two tests: in memory with a paused clock, and on a server of its own.
macro_rules! on_both {
    ($($(#[$meta:meta])* async fn $name:ident($ground:ident: Ground) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports, clippy::allow_attributes, reason = "each scenario uses its own part")]
            use super::*;

            $(#[$meta])*
            async fn scenario($ground: crate::lock_ground::Ground) $body

            #[tokio::test(start_paused = true)]
            async fn in_memory() {
                Box::pin(scenario(crate::lock_ground::Ground::in_memory())).await;
            }

            #[cfg(feature = "redis")]
            #[tokio::test]
            async fn on_redis() {
                Box::pin(scenario(crate::lock_ground::Ground::on_redis())).await;
            }
        }
    )*};
}
pub(crate) use on_both;

/// Lets every key, and every member of a sorted set of ends, end so much sooner.
#[cfg(feature = "redis")]
const TIME_MACHINE: &str = "
for _, key in ipairs(redis.call('KEYS', '*')) do
    if redis.call('TYPE', key).ok == 'zset' then
        local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
        for i = 1, #all, 2 do
            if all[i + 1] ~= 'inf' then
                redis.call('ZINCRBY', key, -ARGV[1], all[i])
            end
        end
    end
    local ttl = redis.call('PTTL', key)
    if ttl >= 0 and ttl <= tonumber(ARGV[1]) then
        redis.call('DEL', key)
    elseif ttl >= 0 then
        redis.call('PEXPIRE', key, ttl - ARGV[1])
    end
end
return 1";

/// Two managers that do not know each other on one backend.
pub(crate) struct Ground {
    pub(crate) locks: LockManager,
    pub(crate) elsewhere: LockManager,
    pub(crate) spy: Arc<Spy>,
    #[cfg(feature = "redis")]
    pub(crate) server: Option<RedisServer>,
}

impl Ground {
    pub(crate) fn in_memory() -> Self {
        let memory: Arc<dyn Lock> = Arc::new(MemoryLock::new());
        Self::new(Arc::clone(&memory), memory)
    }

    #[cfg(feature = "redis")]
    pub(crate) fn on_redis() -> Self {
        use tower_stampede::lock::RedisLock;

        let server = RedisServer::start();
        let patient = |client| RedisLock::with_timeouts(client, ms(2000), ms(2000));
        let mut ground = Self::new(
            Arc::new(patient(server.client())),
            Arc::new(patient(server.client())),
        );
        ground.server = Some(server);
        ground
    }

    fn new(here: Arc<dyn Lock>, there: Arc<dyn Lock>) -> Self {
        let spy = Arc::new(Spy::new(here));
        let spied: Arc<dyn Lock> = Arc::<Spy>::clone(&spy);
        Self {
            locks: manager(spied, |builder| builder),
            elsewhere: manager(there, |builder| builder),
            spy,
            #[cfg(feature = "redis")]
            server: None,
        }
    }

    /// Another manager on the same backend.
    pub(crate) fn manager(&self, settings: impl FnOnce(Builder) -> Builder) -> LockManager {
        let spied: Arc<dyn Lock> = Arc::<Spy>::clone(&self.spy);
        manager(spied, settings)
    }

    /// Lets time pass for all locks there are, without waiting for it.
    pub(crate) async fn advance(&self, time: Duration) {
        #[cfg(feature = "redis")]
        if let Some(server) = &self.server {
            let millis = time.as_millis().to_string();
            return server.command(&["EVAL", TIME_MACHINE, "0", &millis]);
        }
        tokio::time::advance(time).await;
    }

    /// Forgets all locks, and attempts that are still to arrive.
    pub(crate) fn clear(&self) {
        *self.spy.overtaken.lock().unwrap() = None;
        #[cfg(feature = "redis")]
        if let Some(server) = &self.server {
            server.command::<()>(&["FLUSHALL"]);
        }
    }

    /// Returns when locks of `ttl` that were taken before are over.
    pub(crate) async fn outlive(&self, ttl: Duration) {
        tokio::time::sleep(ttl + ms(15)).await;
    }
}

fn manager(backend: Arc<dyn Lock>, settings: impl FnOnce(Builder) -> Builder) -> LockManager {
    settings(LockManager::builder().backend(backend))
        .build()
        .unwrap()
}

/// One attempt that must succeed.
pub(crate) async fn take(request: &Acquire) -> Guard {
    request.try_acquire().await.unwrap().guard().expect("free")
}

/// One attempt that must find the lock taken.
pub(crate) async fn is_busy(request: &Acquire) -> bool {
    use tower_stampede::lock::Attempt;

    match request.try_acquire().await.unwrap() {
        Attempt::Busy(_) => true,
        Attempt::AlreadyHeld(_) => panic!("held already"),
        Attempt::Acquired(guard) => {
            assert!(guard.release().await.unwrap().was_held());
            false
        }
    }
}

/// What happens to the next operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does not reach the backend, and nobody knows.
    LoseRequest,
    /// It is done, and nobody knows.
    LoseReply,
    /// An acquisition that is done, and comes in once more at [`Spy::arrive`].
    Repeat,
    /// It is known not to have been sent.
    Unavailable,
    /// It is sent twice; the second answer counts.
    Twice,
    /// It is answered with an error.
    Refuse(&'static str),
    /// It is done at once and never answered.
    Hang,
    /// It is not sent, and never answered.
    Stall,
    /// An acquisition that does not arrive before [`Spy::arrive`], and nobody knows.
    Overtake,
    /// It is done, and the answer comes so much later.
    Late(Duration),
}

/// A backend that counts, and fails on demand.
#[derive(Debug)]
pub(crate) struct Spy {
    inner: Arc<dyn Lock>,
    acquires: AtomicUsize,
    extends: AtomicUsize,
    withdrawals: AtomicUsize,
    on_acquire: Mutex<VecDeque<Fault>>,
    on_extend: Mutex<VecDeque<Fault>>,
    on_release: Mutex<VecDeque<Fault>>,
    overtaken: Mutex<Option<(Claim, Terms)>>,
}

impl Spy {
    fn new(inner: Arc<dyn Lock>) -> Self {
        Self {
            inner,
            acquires: AtomicUsize::new(0),
            extends: AtomicUsize::new(0),
            withdrawals: AtomicUsize::new(0),
            on_acquire: Mutex::default(),
            on_extend: Mutex::default(),
            on_release: Mutex::default(),
            overtaken: Mutex::default(),
        }
    }

    pub(crate) fn acquires(&self) -> usize {
        self.acquires.load(SeqCst)
    }

    pub(crate) fn extends(&self) -> usize {
        self.extends.load(SeqCst)
    }

    /// How many withdrawals have been done.
    pub(crate) fn withdrawals(&self) -> usize {
        self.withdrawals.load(SeqCst)
    }

    pub(crate) fn fail_acquires(&self, faults: impl IntoIterator<Item = Fault>) {
        self.on_acquire.lock().unwrap().extend(faults);
    }

    pub(crate) fn fail_extends(&self, faults: impl IntoIterator<Item = Fault>) {
        self.on_extend.lock().unwrap().extend(faults);
    }

    pub(crate) fn fail_releases(&self, faults: impl IntoIterator<Item = Fault>) {
        self.on_release.lock().unwrap().extend(faults);
    }

    /// Lets the attempt that was [overtaken](Fault::Overtake) or [repeated](Fault::Repeat) arrive.
    pub(crate) async fn arrive(&self) -> Option<Result<Grant, Error>> {
        let (claim, terms) = self.overtaken.lock().unwrap().take()?;
        Some(self.inner.acquire(&claim, &terms).await)
    }

    /// Faults that have not happened yet.
    pub(crate) fn faults_left(&self) -> usize {
        [&self.on_acquire, &self.on_extend, &self.on_release]
            .iter()
            .map(|faults| faults.lock().unwrap().len())
            .sum()
    }

    async fn perform<'a, T: Send + 'a>(
        &'a self,
        faults: &'a Mutex<VecDeque<Fault>>,
        operation: impl Fn() -> BoxFuture<'a, Result<T, Error>> + Send + 'a,
    ) -> Result<T, Error> {
        let fault = faults.lock().unwrap().pop_front();
        match fault {
            None | Some(Fault::Repeat) => operation().await,
            Some(Fault::LoseRequest | Fault::Overtake) => {
                Err(Error::unknown("the request was lost"))
            }
            Some(Fault::LoseReply) => {
                drop(operation().await);
                Err(Error::unknown("the reply was lost"))
            }
            Some(Fault::Unavailable) => Err(Error::unavailable("no connection")),
            Some(Fault::Twice) => {
                drop(operation().await);
                operation().await
            }
            Some(Fault::Refuse(code)) => Err(Error::refused(code, "refused")),
            Some(Fault::Hang) => {
                drop(operation().await);
                std::future::pending().await
            }
            Some(Fault::Stall) => std::future::pending().await,
            Some(Fault::Late(delay)) => {
                let answer = operation().await;
                tokio::time::sleep(delay).await;
                answer
            }
        }
    }
}

impl Lock for Spy {
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        terms: &'a Terms,
    ) -> BoxFuture<'a, Result<Grant, Error>> {
        self.acquires.fetch_add(1, SeqCst);
        let next = self.on_acquire.lock().unwrap().front().copied();
        if matches!(next, Some(Fault::Overtake | Fault::Repeat)) {
            *self.overtaken.lock().unwrap() = Some((claim.clone(), terms.clone()));
        }
        Box::pin(self.perform(&self.on_acquire, move || self.inner.acquire(claim, terms)))
    }

    fn release<'a>(&'a self, holder: &'a Holding) -> BoxFuture<'a, Result<Released, Error>> {
        Box::pin(self.perform(&self.on_release, move || self.inner.release(holder)))
    }

    fn extend<'a>(
        &'a self,
        holder: &'a Holding,
        change: &'a Extension,
    ) -> BoxFuture<'a, Result<Option<Remaining>, Error>> {
        self.extends.fetch_add(1, SeqCst);
        Box::pin(self.perform(&self.on_extend, move || self.inner.extend(holder, change)))
    }

    fn holders<'a>(
        &'a self,
        key: &'a Key,
        family: Family,
    ) -> BoxFuture<'a, Result<Vec<Holder>, Error>> {
        self.inner.holders(key, family)
    }

    fn force_release<'a>(
        &'a self,
        key: &'a Key,
        family: Family,
    ) -> BoxFuture<'a, Result<Removed, Error>> {
        self.inner.force_release(key, family)
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let withdrawn = self.inner.withdraw(claim).await;
            self.withdrawals.fetch_add(1, SeqCst);
            withdrawn
        })
    }

    fn watch(&self, key: &Key, family: Family) -> Box<dyn Watch> {
        self.inner.watch(key, family)
    }

    fn connect(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.connect()
    }
}

/// Lets other tasks run until `done` says yes; fails after generous time.
pub(crate) async fn eventually(done: impl AsyncFn() -> bool) {
    let patience = tokio::time::timeout(Duration::from_secs(20), async {
        while !done().await {
            tokio::time::sleep(ms(2)).await;
        }
    });
    patience.await.expect("it never came true");
}

/// Polls `future` once; it must not be ready.
pub(crate) async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) {
    std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
}

/// A task of the test's own.
#[expect(
    clippy::disallowed_methods,
    reason = "tests spawn in one place, this one"
)]
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(future)
}
