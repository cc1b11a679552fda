//! [`Route`]: what commands of one kind go over.

use redis::{Cmd, FromRedisValue};
use tokio::time::Instant;

use super::{Call, Error, Health, Link, Script, Server, Settings, cluster::Router};

/// One link to one Redis, or one to each node of a Cluster; clones share them.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    One(Link),
    Many(Router),
}

impl Route {
    pub(crate) fn new(server: &Server, settings: Settings) -> Self {
        match server.cluster() {
            Some(cluster) => Self::Many(Router::new(cluster, settings)),
            None => Self::One(Link::new(server.clone(), settings)),
        }
    }

    /// Calls a script, in one round trip unless the server does not know it yet, or is not the one that holds the
    /// first key's slot.
    ///
    /// Never sent again after a timeout or a lost connection.
    ///
    /// # Cancel safety
    ///
    /// As [`Link::query_by`].
    pub(crate) async fn invoke<T: FromRedisValue>(
        &self,
        script: &'static Script,
        call: Call,
    ) -> Result<T, Error> {
        self.invoke_by(script, call, self.usual_deadline()).await
    }

    /// As [`invoke`](Self::invoke), for a caller that has less time left than the link's command timeout.
    pub(crate) async fn invoke_by<T: FromRedisValue>(
        &self,
        script: &'static Script,
        call: Call,
        deadline: Instant,
    ) -> Result<T, Error> {
        match self {
            Self::One(link) => link.invoke_by(script, call, deadline).await,
            Self::Many(router) => Box::pin(router.invoke(script, &call, deadline)).await,
        }
    }

    /// Sends one command that is about `key`.
    ///
    /// # Cancel safety
    ///
    /// As [`Link::query_by`].
    pub(crate) async fn query<T: FromRedisValue>(
        &self,
        command: &Cmd,
        key: &str,
    ) -> Result<T, Error> {
        self.query_by(command, key, self.usual_deadline()).await
    }

    /// The value of a key; empty without one.
    pub(crate) async fn read_by(&self, key: &str, deadline: Instant) -> Result<Vec<u8>, Error> {
        let mut get = redis::cmd("GET");
        get.arg(key);
        self.query_by(&get, key, deadline).await
    }

    async fn query_by<T: FromRedisValue>(
        &self,
        command: &Cmd,
        key: &str,
        deadline: Instant,
    ) -> Result<T, Error> {
        match self {
            Self::One(link) => link.query_by(command, deadline).await,
            Self::Many(router) => Box::pin(router.query(command, Some(key), deadline)).await,
        }
    }

    /// Tells those who listen to `channel`; what comes back is how many there are on the server that was asked.
    pub(crate) async fn publish(&self, channel: &str, message: &str) -> Result<i64, Error> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg(message);
        let deadline = self.usual_deadline();
        match self {
            Self::One(link) => link.query_by(&publish, deadline).await,
            Self::Many(router) => Box::pin(router.query(&publish, None, deadline)).await,
        }
    }

    /// Whether a server is there.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        let ping = redis::cmd("PING");
        let deadline = self.usual_deadline();
        match self {
            Self::One(link) => link.query_by(&ping, deadline).await,
            Self::Many(router) => Box::pin(router.query(&ping, None, deadline)).await,
        }
    }

    /// Connects, and has the server know `script`; says whether it is there. If it fails, the next call
    /// sees to both.
    pub(crate) async fn prepare(&self, script: &'static Script) -> bool {
        match self {
            Self::One(link) => link.prepare(script).await,
            Self::Many(router) => router.prepare(script).await,
        }
    }

    pub(crate) fn health(&self) -> Vec<Health> {
        match self {
            Self::One(link) => vec![link.health()],
            Self::Many(router) => router.health(),
        }
    }

    fn usual_deadline(&self) -> Instant {
        match self {
            Self::One(link) => link.usual_deadline(),
            Self::Many(router) => router.usual_deadline(),
        }
    }
}
