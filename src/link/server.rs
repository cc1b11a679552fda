//! Where to connect to, and as whom.

use std::{sync::Arc, time::Duration};

use redis::{Client, Cmd, ConnectionAddr, ConnectionInfo, Value};

use super::{
    access::Access,
    cluster::Cluster,
    connect,
    error::Error,
    sentinel::{self, Sentinels},
};

/// A Redis, which may be another server for each connection.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    place: Place,
    access: Access,
}

#[derive(Clone, Debug)]
enum Place {
    One(Box<ConnectionInfo>),
    /// The master that the sentinels name.
    Behind(Arc<Sentinels>),
    /// This node of a Cluster.
    Node(Box<ConnectionInfo>),
    /// Any master of a Cluster.
    Any(Arc<Cluster>),
}

impl Server {
    pub(super) fn one(info: ConnectionInfo, access: Access) -> Self {
        Self {
            place: Place::One(Box::new(connect::tuned(info))),
            access,
        }
    }

    pub(super) fn behind(sentinels: Sentinels, access: Access) -> Self {
        Self {
            place: Place::Behind(Arc::new(sentinels)),
            access,
        }
    }

    pub(super) fn node(info: ConnectionInfo, access: Access) -> Self {
        Self {
            place: Place::Node(Box::new(info)),
            access,
        }
    }

    pub(super) fn any(cluster: Cluster) -> Self {
        Self {
            access: cluster.access().clone(),
            place: Place::Any(Arc::new(cluster)),
        }
    }

    /// The Cluster, if it is one: then each command has its own node.
    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.place {
            Place::Any(cluster) => Some(cluster),
            Place::One(_) | Place::Behind(_) | Place::Node(_) => None,
        }
    }

    /// What tells it from others, as it was configured.
    pub(crate) fn address(&self) -> String {
        let service = match &self.place {
            Place::Behind(sentinels) => sentinels.service(),
            Place::One(_) | Place::Node(_) | Place::Any(_) => "",
        };
        let info = self.template();
        format!("{}/{} {service}", info.addr(), info.redis_settings().db())
    }

    /// What all connections to this Redis have in common.
    pub(super) fn template(&self) -> &ConnectionInfo {
        match &self.place {
            Place::One(info) | Place::Node(info) => info,
            Place::Behind(sentinels) => sentinels.template(),
            Place::Any(cluster) => cluster.template(),
        }
    }

    /// A client of the server that is to be connected to now, within some part of `patience`; where the
    /// last connection led is `last`.
    pub(super) async fn client(
        &self,
        patience: Duration,
        last: Option<&ConnectionAddr>,
    ) -> Result<Client, Error> {
        let info = match &self.place {
            Place::One(info) | Place::Node(info) => info.as_ref().clone(),
            Place::Behind(sentinels) => {
                let clients = self.ask_through(sentinels).await?;
                sentinels.master(clients, patience).await?
            }
            Place::Any(cluster) => cluster.any(patience, last).await?,
        };
        self.access.open(info).await
    }

    /// Whether the server at `address` is not the one to talk to any more: the sentinels name another
    /// master, or it has left the Cluster.
    pub(super) async fn has_left(&self, address: &ConnectionAddr, patience: Duration) -> bool {
        match &self.place {
            Place::One(_) | Place::Node(_) => false,
            Place::Any(cluster) => cluster.has_lost(address),
            Place::Behind(sentinels) => match self.ask_through(sentinels).await {
                Ok(clients) => sentinels.have_left(address, clients, patience).await,
                Err(_) => false,
            },
        }
    }

    async fn ask_through(&self, sentinels: &Sentinels) -> Result<Vec<Client>, Error> {
        let mut clients = Vec::new();
        for info in sentinels.nodes() {
            clients.push(self.access.open(info.clone()).await?);
        }
        Ok(clients)
    }

    /// What a new connection is asked before it is used.
    pub(super) fn question(&self) -> Cmd {
        redis::cmd(match self.place {
            Place::One(_) | Place::Node(_) | Place::Any(_) => "PING",
            Place::Behind(_) => "ROLE",
        })
    }

    /// Whether the server that gave this answer is the one to talk to.
    pub(super) fn accepts(&self, answer: &Value) -> Result<(), Error> {
        match &self.place {
            Place::One(_) | Place::Node(_) | Place::Any(_) => Ok(()),
            Place::Behind(_) => sentinel::accept(answer),
        }
    }

    /// Whether only an answer tells if the server is the one to talk to.
    pub(super) fn is_uncertain(&self) -> bool {
        matches!(self.place, Place::Behind(_))
    }

    /// Whether it is one of several servers, so that people want to know which.
    pub(super) fn is_one_of_many(&self) -> bool {
        !matches!(self.place, Place::One(_))
    }
}

impl From<&Client> for Server {
    fn from(client: &Client) -> Self {
        Self::one(client.get_connection_info().clone(), Access::default())
    }
}
