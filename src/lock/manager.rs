//! The manager: one backend, one namespace, and the locks named in it.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    acquire::Acquire,
    answer::Busy,
    backend::{Claim, Key, Lock, Mode, Obstacle},
    builder::{Builder, TTL},
    error::{Error, ErrorKind, Operation},
    key::{DEFAULT_NAMESPACE, Naming},
    limits::{self, Fault},
    line::Lines,
    memory::MemoryLock,
    token::Token,
};

/// Makes locks by name, all of them in one backend and one namespace.
///
/// Cheap to clone; the clones share their waiting lines and, on Redis, their connections. Making
/// one connects to nothing.
///
/// ```
/// use std::time::Duration;
/// use tower_stampede::lock::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower_stampede::lock::Error> {
/// let locks = LockManager::in_memory();
///
/// let built = locks
///     .lock("nightly-report")
///     .ttl(Duration::from_secs(30))
///     .run(async { "built" })
///     .await?;
///
/// assert_eq!(built, Some("built"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockManager {
    shared: Arc<Shared>,
    reach: Reach,
}

/// Whether the locks reach other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    AsTheBackendSays,
    Declared,
}

/// What the clones of a manager, its requests and its guards share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) backend: Arc<dyn Lock>,
    pub(super) lines: Lines,
    pub(super) namespace: Box<str>,
    pub(super) naming: Naming,
    pub(super) ttl: Duration,
    pub(super) phase: watch::Sender<Phase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    Closed,
}

impl LockManager {
    /// Locks of this process alone.
    pub fn in_memory() -> Self {
        Self::new(None, DEFAULT_NAMESPACE.into(), Naming::default(), TTL)
    }

    /// Locks on the Redis at `url`, which is connected to when the first lock is asked for.
    ///
    /// # Errors
    ///
    /// The URL is not a Redis URL.
    #[cfg(feature = "redis")]
    pub fn redis(url: &str) -> Result<Self, Error> {
        Self::builder().redis(url).build()
    }

    /// A manager with other settings.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(super) fn new(
        backend: Option<Arc<dyn Lock>>,
        namespace: Box<str>,
        naming: Naming,
        ttl: Duration,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                backend: backend.unwrap_or_else(|| Arc::new(MemoryLock::new())),
                lines: Lines::default(),
                namespace,
                naming,
                ttl,
                phase: watch::Sender::new(Phase::Open),
            }),
            reach: Reach::AsTheBackendSays,
        }
    }

    /// A lock with one holder.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.request([name], Mode::Exclusive)
    }

    /// Several locks that are taken together, all of them or none. Names that are given twice
    /// count once.
    ///
    /// The keys are those of [`lock`](Self::lock): who holds one of the names alone is in the way.
    pub fn lock_all<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Acquire {
        self.request(names, Mode::Exclusive)
    }

    /// A read/write lock, to be held together with other readers.
    ///
    /// A read/write lock and a plain lock of one name are two locks that do not meet.
    pub fn read(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.request([name], Mode::Read)
    }

    /// A read/write lock, to be held alone.
    ///
    /// With the [token](Acquire::token) of the only reader, that reader is promoted. (Two readers
    /// that both wait for that wait for each other, until the time of one is over.)
    pub fn write(&self, name: impl AsRef<[u8]>) -> Acquire {
        self.request([name], Mode::Write)
    }

    /// Whether the locks are seen by other processes: what must hold before "only one machine runs
    /// the job" is true.
    pub fn is_shared(&self) -> bool {
        self.reach == Reach::Declared || self.shared.backend.is_shared()
    }

    /// The same manager, taken at the caller's word that its locks are seen by other processes.
    ///
    /// For a backend of your own that cannot tell. Nothing checks the claim.
    pub fn declared_shared(mut self) -> Self {
        self.reach = Reach::Declared;
        self
    }

    /// Checks that the backend can be reached, for a service that shall not start without it.
    ///
    /// # Errors
    ///
    /// The backend cannot be reached, or refuses to talk to us.
    pub async fn connect(&self) -> Result<(), Error> {
        let reached = self.shared.backend.connect().await;
        reached.map_err(|error| error.during(Operation::Connect))
    }

    /// Ends all waits, in every clone: they and all further acquisitions fail with
    /// [`ErrorKind::Closed`]. Locks that are held stay held, and their guards go on working.
    pub fn close(&self) {
        self.shared.phase.send_replace(Phase::Closed);
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<dyn Lock> {
        &self.shared.backend
    }

    /// The prefix of every key.
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    fn request<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>, mode: Mode) -> Acquire {
        Acquire::new(Arc::clone(&self.shared), self.shared.keys(names), mode)
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("backend", &self.shared.backend)
            .field("namespace", &self.shared.namespace)
            .field("naming", &self.shared.naming)
            .finish()
    }
}

impl Shared {
    pub(super) fn check_open(&self) -> Result<(), Error> {
        let phase = *self.phase.borrow();
        match phase {
            Phase::Open => Ok(()),
            Phase::Closed => Err(Error::new(ErrorKind::Closed)),
        }
    }

    /// Returns when the manager is closed.
    pub(super) async fn closed(&self) {
        let mut phase = self.phase.subscribe();
        // The sender lives in `self`.
        drop(phase.wait_for(|phase| *phase == Phase::Closed).await);
    }

    fn keys<N: AsRef<[u8]>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Arc<[Key]>, Fault> {
        let mut keys: Vec<_> = Vec::new();
        for name in names {
            keys.push(self.naming.key(&self.namespace, name.as_ref())?);
            if keys.len() > limits::MAX_KEYS {
                // Names that are given twice count once.
                keys.sort();
                keys.dedup();
            }
            if keys.len() > limits::MAX_KEYS {
                return Err(Fault::TooManyKeys);
            }
        }
        keys.sort();
        keys.dedup();
        if keys.is_empty() {
            return Err(Fault::NoKeys);
        }
        Ok(keys.into())
    }
}

/// Says what failed and on what; a backend's own errors are logged here, once.
pub(super) fn failed(
    operation: Operation,
    key: &Key,
    token: Option<&Token>,
    error: Error,
) -> Error {
    let error = error.during(operation).on(key);
    if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Protocol) {
        tracing::warn!(
            %operation,
            %key,
            holder = token.map(Token::fingerprint),
            code = error.code(),
            "a lock operation was refused by its backend"
        );
    }
    error
}

/// The first key of a claim, which stands for all of them in errors.
pub(super) fn first(claim: &Claim) -> &Key {
    claim.keys().first().expect("a claim has at least one key")
}

/// A wait that ended before anybody was asked.
pub(super) fn too_late() -> Busy {
    Busy::new(Obstacle::Holder, None).at_deadline()
}
