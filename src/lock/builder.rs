//! The settings of a manager.

use std::{fmt, sync::Arc, time::Duration};

#[cfg(feature = "redis")]
use super::redis::RedisLock;
use super::{
    backend::Lock,
    error::{Error, Operation},
    key::{DEFAULT_NAMESPACE, Naming},
    limits::{self, Fault},
    manager::LockManager,
};
#[cfg(feature = "redis")]
use crate::{RedisConfig, link::Server};

/// The default time to live.
pub(super) const TTL: Duration = Duration::from_secs(60);

/// Makes a [`LockManager`]; [`build`](Self::build) alone can fail, and connects to nothing.
///
/// ```
/// use std::time::Duration;
/// use tower_stampede::lock::LockManager;
///
/// let locks = LockManager::builder()
///     .namespace("shop:lock:")
///     .ttl(Duration::from_secs(10))
///     .build()?;
/// assert!(!locks.is_shared());
/// # Ok::<_, tower_stampede::lock::Error>(())
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    namespace: Box<str>,
    naming: Naming,
    ttl: Duration,
    backend: Choice,
    #[cfg(feature = "redis")]
    redis: RedisSettings,
}

enum Choice {
    Memory,
    Given(Arc<dyn Lock>),
    #[cfg(feature = "redis")]
    Redis(Box<Server>),
    Failed(Error),
}

#[cfg(feature = "redis")]
#[derive(Clone, Copy)]
struct RedisSettings {
    connect_timeout: Duration,
    command_timeout: Duration,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            namespace: DEFAULT_NAMESPACE.into(),
            naming: Naming::default(),
            ttl: TTL,
            backend: Choice::Memory,
            #[cfg(feature = "redis")]
            redis: RedisSettings {
                connect_timeout: Duration::from_millis(250),
                command_timeout: Duration::from_millis(250),
            },
        }
    }

    /// The prefix of every key; `buffer:lock:` by default. Applications that share a Redis
    /// database need different ones.
    pub fn namespace(mut self, namespace: impl Into<Box<str>>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// How names become keys; [`Naming::Digest`] by default.
    pub fn naming(mut self, naming: Naming) -> Self {
        self.naming = naming;
        self
    }

    /// How long a lock lives unless its request says otherwise; 60 s by default. It must be longer
    /// than the backend's command timeout.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Keeps the locks in a backend of your own, or in one that several managers share.
    pub fn backend(self, backend: Arc<dyn Lock>) -> Self {
        self.choose(Choice::Given(backend))
    }

    /// Keeps the locks on a Redis: a URL, or a [`RedisConfig`] for what a URL cannot say.
    #[cfg(feature = "redis")]
    pub fn redis(self, redis: impl Into<RedisConfig>) -> Self {
        let choice = match redis.into().server() {
            Ok(server) => Choice::Redis(Box::new(server)),
            Err(error) => Choice::Failed(Error::misconfigured(error)),
        };
        self.choose(choice)
    }

    /// Keeps the locks on the Redis that `client` connects to.
    #[cfg(feature = "redis")]
    pub fn redis_client(self, client: ::redis::Client) -> Self {
        self.redis(client)
    }

    /// How long connecting to Redis may take; 250 ms by default.
    #[cfg(feature = "redis")]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.redis.connect_timeout = timeout;
        self
    }

    /// How long a command to Redis may take; 250 ms by default.
    #[cfg(feature = "redis")]
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.redis.command_timeout = timeout;
        self
    }

    /// The manager.
    ///
    /// # Errors
    ///
    /// A setting is out of its limits, or two backends were given; the error names it.
    pub fn build(self) -> Result<LockManager, Error> {
        let (namespace, naming, ttl) = (self.namespace.clone(), self.naming.clone(), self.ttl);
        let backend = self
            .check()
            .map_err(|error| error.during(Operation::Build))?;
        Ok(LockManager::new(backend, namespace, naming, ttl))
    }

    fn check(self) -> Result<Option<Arc<dyn Lock>>, Error> {
        if self.namespace.is_empty() {
            return Err(Fault::NamespaceEmpty.into());
        }
        limits::whole_millis(self.ttl)?;
        match self.naming {
            Naming::OneSlot if self.namespace.contains(['{', '}']) => {
                return Err(Fault::Braces.into());
            }
            // What a function of one's own makes of a name is seen when it is called.
            Naming::Custom(_) => {}
            Naming::Digest | Naming::OneSlot => drop(self.naming.key(&self.namespace, b"")?),
        }
        match self.backend {
            Choice::Memory => Ok(None),
            Choice::Given(backend) => Ok(Some(backend)),
            #[cfg(feature = "redis")]
            Choice::Redis(server) => Ok(Some(self.redis.open(&server, self.ttl)?)),
            Choice::Failed(error) => Err(error),
        }
    }

    fn choose(mut self, choice: Choice) -> Self {
        self.backend = match self.backend {
            Choice::Memory => choice,
            _ => Choice::Failed(Fault::TwoBackends.into()),
        };
        self
    }
}

#[cfg(feature = "redis")]
impl RedisSettings {
    fn open(self, server: &Server, ttl: Duration) -> Result<Arc<dyn Lock>, Error> {
        if self.connect_timeout.is_zero() || self.command_timeout.is_zero() {
            return Err(Fault::TimeoutZero.into());
        }
        if ttl <= self.command_timeout {
            return Err(Fault::TtlBelowTimeout.into());
        }
        let lock = RedisLock::on(server, self.connect_timeout, self.command_timeout);
        Ok(Arc::new(lock))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("namespace", &self.namespace)
            .field("naming", &self.naming)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}
