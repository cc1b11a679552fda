//! [`Access`]: how a client of a server is made, whatever the server.

use redis::{Client, ConnectionInfo};

use super::error::Error;
#[cfg(feature = "tls")]
use super::tls::Files;

/// What clients of one Redis have in common besides its address.
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    #[cfg(feature = "tls")]
    pub(super) files: Files,
}

impl Access {
    #[cfg(feature = "tls")]
    pub(super) async fn open(&self, info: ConnectionInfo) -> Result<Client, Error> {
        self.files.client(info).await
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "with TLS, files are read")]
    pub(super) async fn open(&self, info: ConnectionInfo) -> Result<Client, Error> {
        Client::open(info).map_err(Error::connect_failed)
    }
}
