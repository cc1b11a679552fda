//! [`RedisConfig`]: what can be said about a Redis, and what of it goes together.

mod check;
mod fault;
#[cfg(test)]
mod tests;

use std::fmt;

use redis::Client;

pub(crate) use self::fault::{ConfigError, ConfigFault};

#[cfg(feature = "tls")]
use super::tls::Files;

/// Where Redis is, and as whom to connect to it: for [`CacheBuilder::redis`](crate::CacheBuilder::redis) and
/// [`lock::Builder::redis`](crate::lock::Builder::redis).
///
#[doc = include_str!("../../../docs/redis.md")]
#[derive(Clone)]
#[must_use]
pub struct RedisConfig {
    place: Place,
    user: Option<String>,
    password: Option<String>,
    database: Option<u32>,
    #[cfg(feature = "tls")]
    files: Files,
}

#[derive(Clone)]
enum Place {
    Url(String),
    Client(Box<Client>),
    Sentinel { urls: Vec<String>, service: String },
    Cluster(Vec<String>),
}

impl RedisConfig {
    /// One server at `url`.
    pub fn url(url: impl Into<String>) -> Self {
        Self::new(Place::Url(url.into()))
    }

    /// The master of `service`, as the sentinels at `urls` know it; they are asked for each connection, all at
    /// once.
    ///
    /// User, password and a `rediss` scheme in these URLs are for the sentinels. The master's own login and
    /// database come from the methods; it is spoken to through TLS if the sentinels are.
    pub fn sentinel(
        urls: impl IntoIterator<Item = impl Into<String>>,
        service: impl Into<String>,
    ) -> Self {
        Self::new(Place::Sentinel {
            urls: urls.into_iter().map(Into::into).collect(),
            service: service.into(),
        })
    }

    /// The Redis Cluster that the nodes at `urls` belong to; one that answers is enough to find the others.
    ///
    /// Login and a `rediss` scheme are the same for all nodes.
    pub fn cluster(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::new(Place::Cluster(urls.into_iter().map(Into::into).collect()))
    }

    fn new(place: Place) -> Self {
        Self {
            place,
            user: None,
            password: None,
            database: None,
            #[cfg(feature = "tls")]
            files: Files::default(),
        }
    }

    /// The ACL user to log in as, in place of the URL's.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The password, in place of the URL's; no character needs an escape here.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The database's number, in place of the URL's; 0 by default, and at most 2147483647.
    pub fn database(mut self, database: u32) -> Self {
        self.database = Some(database);
        self
    }

    /// The file of the authorities (PEM) that may sign the server's certificate, in place of the system's.
    ///
    /// Read for each connection, so that a new file needs no restart.
    #[cfg(feature = "tls")]
    pub fn tls_ca(mut self, file: impl Into<std::path::PathBuf>) -> Self {
        self.files.ca = Some(file.into());
        self
    }

    /// The files (PEM) of the certificate to show to the server, with its chain, and of its key.
    ///
    /// Read for each connection, so that a renewed certificate needs no restart.
    #[cfg(feature = "tls")]
    pub fn tls_client(
        mut self,
        certificate: impl Into<std::path::PathBuf>,
        key: impl Into<std::path::PathBuf>,
    ) -> Self {
        self.files.client = Some((certificate.into(), key.into()));
        self
    }
}

impl From<&str> for RedisConfig {
    fn from(url: &str) -> Self {
        Self::url(url)
    }
}

impl From<String> for RedisConfig {
    fn from(url: String) -> Self {
        Self::url(url)
    }
}

impl From<&String> for RedisConfig {
    fn from(url: &String) -> Self {
        Self::url(url)
    }
}

impl From<Client> for RedisConfig {
    fn from(client: Client) -> Self {
        Self::new(Place::Client(Box::new(client)))
    }
}

/// Leaves out the URL and the login, which are secret.
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig").finish_non_exhaustive()
    }
}
