//! A `redis-server` that speaks TLS, and the certificates for it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use super::redis::{RedisServer, free_port};

/// A private certificate authority, with a directory for what it signs.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = &mut params.distinguished_name;
        // Each has a name of its own, since certificates name whoever signed them.
        let number = fastrand::u64(..);
        name.push(DnType::CommonName, format!("private authority {number}"));
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    /// The authority's own certificate.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Signs a certificate for `name`, as the files `<stem>.pem` and `<stem>.key`.
    pub fn sign(&self, name: &str, stem: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let signed = Signed::at(self.directory.path(), stem);
        fs::write(&signed.certificate, certificate.pem()).unwrap();
        fs::write(&signed.key, key.serialize_pem()).unwrap();
        signed
    }
}

#[derive(Clone)]
pub struct Signed {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Signed {
    fn at(directory: &Path, stem: &str) -> Self {
        let file = |end: &str| directory.join(format!("{stem}.{end}"));
        Self {
            certificate: file("pem"),
            key: file("key"),
        }
    }

    /// Puts these in the place of `other`, as a renewal does.
    pub fn replace(&self, other: &Self) {
        fs::copy(&self.certificate, &other.certificate).unwrap();
        fs::copy(&self.key, &other.key).unwrap();
    }
}

/// A server with a plain port for the test itself, and one for TLS.
pub struct TlsServer {
    pub redis: RedisServer,
    pub port: u16,
}

impl TlsServer {
    /// Trusts the certificates of `clients`, and asks for them, unless that is `None`.
    pub fn start(own: &Signed, clients: Option<&Authority>, options: &[&str]) -> Self {
        let port = free_port();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let number = port.to_string();
        let (certificate, key) = (text(&own.certificate), text(&own.key));
        let authority =
            clients.map_or_else(|| certificate.clone(), |clients| text(&clients.file()));
        let asks = if clients.is_some() { "yes" } else { "no" };
        let mut words = vec!["--tls-port", &number, "--tls-cert-file", &certificate];
        words.extend(["--tls-key-file", &key, "--tls-ca-cert-file", &authority]);
        words.extend(["--tls-auth-clients", asks]);
        words.extend(options);
        let redis = RedisServer::with_options(&words);
        Self { redis, port }
    }

    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port)
    }
}
