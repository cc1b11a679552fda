//! TLS: certificates are read from their files for each connection, so that they can be renewed.

use std::{
    error, fmt, fs, io,
    path::{Path, PathBuf},
};

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use tokio::task::spawn_blocking;

use super::error::Error;

/// The files that certificates come from; with none, the system's authorities are trusted.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    pub(super) ca: Option<PathBuf>,
    /// The certificate with its chain, and its key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

impl Files {
    pub(super) fn is_empty(&self) -> bool {
        self.paths().next().is_none()
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let client = self.client.iter().flat_map(|(chain, key)| [chain, key]);
        self.ca.iter().chain(client).map(PathBuf::as_path)
    }

    /// A client that connects with what is in the files now.
    pub(super) async fn client(&self, info: ConnectionInfo) -> Result<Client, Error> {
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Client::open(info).map_err(Error::connect_failed);
        }
        provide_cryptography();
        if self.is_empty() {
            return Client::open(info).map_err(Error::connect_failed);
        }
        let files = self.clone();
        let certificates = spawn_blocking(move || files.read())
            .await
            .map_err(Error::connect_failed)?
            .map_err(Error::connect_failed)?;
        Client::build_with_tls(info, certificates).map_err(Error::connect_failed)
    }

    fn read(&self) -> Result<TlsCertificates, Unreadable> {
        let client = self.client.as_ref().map(|(chain, key)| {
            Ok(ClientTlsConfig {
                client_cert: read("tls_client", chain)?,
                client_key: read("tls_client", key)?,
            })
        });
        let ca = self.ca.as_ref().map(|path| read("tls_ca", path));
        Ok(TlsCertificates {
            client_tls: client.transpose()?,
            root_cert: ca.transpose()?,
        })
    }
}

/// rustls panics without a provider; one that the application chose is left alone.
fn provide_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // If somebody else was quicker, theirs is as good.
        drop(ring::default_provider().install_default());
    }
}

fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, Unreadable> {
    fs::read(path).map_err(|source| Unreadable {
        option,
        path: path.to_owned(),
        source,
    })
}

#[derive(Debug)]
struct Unreadable {
    option: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} cannot be read", self.option, self.path.display())
    }
}

impl error::Error for Unreadable {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.source)
    }
}
