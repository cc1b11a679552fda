//! Where to connect to, and as whom.

use std::{sync::Arc, time::Duration};

use redis::{Client, Cmd, ConnectionAddr, ConnectionInfo, Value};

#[cfg(feature = "tls")]
use super::tls::Files;
use super::{
    connect,
    error::Error,
    sentinel::{self, Sentinels},
};

/// A Redis, which may be another server for each connection.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    place: Place,
    #[cfg(feature = "tls")]
    files: Files,
}

#[derive(Clone, Debug)]
enum Place {
    One(Box<ConnectionInfo>),
    /// The master that the sentinels name.
    Behind(Arc<Sentinels>),
}

impl Server {
    pub(super) fn one(info: ConnectionInfo) -> Self {
        Self::at(Place::One(Box::new(connect::tuned(info))))
    }

    pub(super) fn behind(sentinels: Sentinels) -> Self {
        Self::at(Place::Behind(Arc::new(sentinels)))
    }

    fn at(place: Place) -> Self {
        Self {
            place,
            #[cfg(feature = "tls")]
            files: Files::default(),
        }
    }

    #[cfg(feature = "tls")]
    pub(super) fn with_files(self, files: Files) -> Self {
        Self { files, ..self }
    }

    /// What all connections to this Redis have in common.
    #[cfg(any(test, feature = "tls"))]
    pub(super) fn template(&self) -> &ConnectionInfo {
        match &self.place {
            Place::One(info) => info,
            Place::Behind(sentinels) => sentinels.template(),
        }
    }

    /// A client of the server that is to be connected to now, within some part of `patience`.
    pub(super) async fn client(&self, patience: Duration) -> Result<Client, Error> {
        let info = match &self.place {
            Place::One(info) => info.as_ref().clone(),
            Place::Behind(sentinels) => {
                let clients = self.ask_through(sentinels).await?;
                sentinels.master(clients, patience).await?
            }
        };
        self.open(info).await
    }

    /// Whether the sentinels have left the master at `address` for another one.
    pub(super) async fn has_left(&self, address: &ConnectionAddr, patience: Duration) -> bool {
        let Place::Behind(sentinels) = &self.place else {
            return false;
        };
        match self.ask_through(sentinels).await {
            Ok(clients) => sentinels.have_left(address, clients, patience).await,
            Err(_) => false,
        }
    }

    async fn ask_through(&self, sentinels: &Sentinels) -> Result<Vec<Client>, Error> {
        let mut clients = Vec::new();
        for info in sentinels.nodes() {
            clients.push(self.open(info.clone()).await?);
        }
        Ok(clients)
    }

    /// What a new connection is asked before it is used.
    pub(super) fn question(&self) -> Cmd {
        redis::cmd(match self.place {
            Place::One(_) => "PING",
            Place::Behind(_) => "ROLE",
        })
    }

    /// Whether the server that gave this answer is the one to talk to.
    pub(super) fn accepts(&self, answer: &Value) -> Result<(), Error> {
        match &self.place {
            Place::One(_) => Ok(()),
            Place::Behind(_) => sentinel::accept(answer),
        }
    }

    /// Whether only an answer tells if the server is the one to talk to.
    pub(super) fn is_uncertain(&self) -> bool {
        matches!(self.place, Place::Behind(_))
    }

    #[cfg(feature = "tls")]
    async fn open(&self, info: ConnectionInfo) -> Result<Client, Error> {
        self.files.client(info).await
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "with TLS, files are read")]
    async fn open(&self, info: ConnectionInfo) -> Result<Client, Error> {
        Client::open(info).map_err(Error::connect_failed)
    }
}

impl From<&Client> for Server {
    fn from(client: &Client) -> Self {
        Self::one(client.get_connection_info().clone())
    }
}
