//! [`RedisConfig`]: what can be said about a Redis, and what of it goes together.

use std::{fmt, sync::Arc};

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};

#[cfg(feature = "tls")]
use super::tls::Files;
use super::{sentinel::Sentinels, server::Server};

/// The largest number that Redis may be told to have databases.
const LAST_DATABASE: u32 = 2_147_483_647;

/// More sentinels than anybody runs.
const SENTINELS: usize = 64;

/// Where Redis is, and as whom to connect to it: for [`CacheBuilder::redis`](crate::CacheBuilder::redis) and
/// [`lock::Builder::redis`](crate::lock::Builder::redis).
///
#[doc = include_str!("../../docs/redis.md")]
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

    /// Checks everything that can be checked without I/O.
    pub(crate) fn server(&self) -> Result<Server, ConfigError> {
        let server = match &self.place {
            Place::Url(url) => Server::one(self.dress(read(url, ConfigFault::Url)?)?),
            Place::Client(client) => Server::one(self.dress(client.get_connection_info().clone())?),
            Place::Sentinel { urls, service } => Server::behind(self.sentinels(urls, service)?),
        };
        #[cfg(feature = "tls")]
        let server = {
            let files = self.checked_files(&server)?;
            server.with_files(files)
        };
        Ok(server)
    }

    /// `info` with what the methods said in place of what the URL said.
    fn dress(&self, info: ConnectionInfo) -> Result<ConnectionInfo, ConfigError> {
        let mut login = info.redis_settings().clone();
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        if let Some(database) = self.database {
            login = login.set_db(database.into());
        }
        if !(0..=i64::from(LAST_DATABASE)).contains(&login.db()) {
            return Err(ConfigFault::Database.into());
        }
        if login.username().is_some() && login.password().is_none() {
            return Err(ConfigFault::User.into());
        }
        Ok(info.set_redis_settings(login))
    }

    fn sentinels(&self, urls: &[String], service: &str) -> Result<Sentinels, ConfigError> {
        if !(1..=SENTINELS).contains(&urls.len()) {
            return Err(ConfigFault::SentinelCount.into());
        }
        if service.is_empty() {
            return Err(ConfigFault::Service.into());
        }
        let sentinels = urls
            .iter()
            .map(|url| sentinel(url))
            .collect::<Result<Vec<_>, _>>()?;
        let secure = sentinels.iter().filter(|info| is_tls(info)).count();
        let Some(first) = sentinels
            .first()
            .filter(|_| [0, urls.len()].contains(&secure))
        else {
            return Err(ConfigFault::SentinelSchemes.into());
        };
        let template = first
            .clone()
            .set_redis_settings(RedisConnectionInfo::default());
        let master = self.dress(template)?;
        Ok(Sentinels::new(sentinels, service, master))
    }

    #[cfg(feature = "tls")]
    fn checked_files(&self, server: &Server) -> Result<Files, ConfigError> {
        if self.files.is_empty() {
            return Ok(self.files.clone());
        }
        if !is_tls(server.template()) {
            return Err(ConfigFault::TlsPlain.into());
        }
        if self.files.paths().any(|path| path.as_os_str().is_empty()) {
            return Err(ConfigFault::TlsPath.into());
        }
        Ok(self.files.clone())
    }
}

fn sentinel(url: &str) -> Result<ConnectionInfo, ConfigError> {
    let info = read(url, ConfigFault::SentinelUrl)?;
    let login = info.redis_settings();
    if matches!(info.addr(), ConnectionAddr::Unix(_)) || login.db() != 0 {
        return Err(ConfigFault::SentinelUrl.into());
    }
    if login.username().is_some() && login.password().is_none() {
        return Err(ConfigFault::User.into());
    }
    Ok(info)
}

/// Reads a URL; `fault` is what an unreadable one is put down to.
fn read(url: &str, fault: ConfigFault) -> Result<ConnectionInfo, ConfigError> {
    let secure = ["rediss:", "valkeys:"]
        .iter()
        .any(|scheme| url.starts_with(scheme));
    if secure && cfg!(not(feature = "tls")) {
        return Err(ConfigFault::Tls.into());
    }
    if secure && url.ends_with("#insecure") {
        return Err(ConfigFault::Insecure.into());
    }
    url.into_connection_info().map_err(|source| ConfigError {
        fault,
        source: Some(Arc::new(source)),
    })
}

fn is_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
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

/// A setting that is impossible, or that does not go with another one.
#[derive(Clone, Debug)]
pub(crate) struct ConfigError {
    fault: ConfigFault,
    source: Option<Arc<redis::RedisError>>,
}

/// Which one; the text begins with the option's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigFault {
    Url,
    Tls,
    Insecure,
    Database,
    User,
    #[cfg(feature = "tls")]
    TlsPlain,
    #[cfg(feature = "tls")]
    TlsPath,
    SentinelCount,
    SentinelUrl,
    SentinelSchemes,
    Service,
}

impl ConfigError {
    pub(crate) fn fault(&self) -> ConfigFault {
        self.fault
    }

    pub(crate) fn cause(self) -> Option<Arc<redis::RedisError>> {
        self.source
    }
}

impl From<ConfigFault> for ConfigError {
    fn from(fault: ConfigFault) -> Self {
        Self {
            fault,
            source: None,
        }
    }
}

impl ConfigFault {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Url => "redis: the URL cannot be read",
            Self::Tls => "redis: TLS needs this crate's feature `tls`",
            Self::Insecure => {
                "redis: `#insecure` is not supported; name the authority with `tls_ca`"
            }
            Self::Database => "database: must be between 0 and 2147483647",
            Self::User => "user: needs a password",
            #[cfg(feature = "tls")]
            Self::TlsPlain => "tls_ca, tls_client: need a `rediss` or `valkeys` URL",
            #[cfg(feature = "tls")]
            Self::TlsPath => "tls_ca, tls_client: a path must not be empty",
            Self::SentinelCount => "sentinel: must be 1 to 64 URLs",
            Self::SentinelUrl => "sentinel: each URL must lead to a TCP port and name no database",
            Self::SentinelSchemes => "sentinel: the URLs must all use TLS, or none of them",
            Self::Service => "sentinel: the service's name must not be empty",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(config: impl Into<RedisConfig>) -> Option<ConfigFault> {
        config.into().server().err().map(|error| error.fault())
    }

    fn behind(urls: &[&str]) -> RedisConfig {
        RedisConfig::sentinel(urls.iter().copied(), "shop")
    }

    #[test]
    fn what_the_methods_say_stands_in_place_of_what_the_url_says() {
        let config = RedisConfig::url("valkey://ann:one@127.0.0.1/3")
            .user("bob")
            .password("t/w@o")
            .database(4);

        let server = config.server().unwrap();

        let login = server.template().redis_settings();
        assert_eq!(login.username(), Some("bob"));
        assert_eq!(login.password(), Some("t/w@o"));
        assert_eq!(login.db(), 4);
    }

    #[test]
    fn a_unix_socket_takes_its_login_and_database_from_the_query() {
        for scheme in ["unix", "redis+unix", "valkey+unix"] {
            let url = format!("{scheme}:///run/redis.sock?db=2&user=ann&pass=one");

            let server = RedisConfig::url(url).server().unwrap();

            let login = server.template().redis_settings();
            assert_eq!((login.username(), login.db()), (Some("ann"), 2));
        }
    }

    #[test]
    fn impossible_settings_are_told_apart() {
        for url in [
            "",
            "127.0.0.1",
            "http://127.0.0.1/",
            "redis://a/x",
            "unix://",
        ] {
            assert_eq!(fault(url), Some(ConfigFault::Url), "{url}");
        }
        assert_eq!(fault("redis://127.0.0.1/-1"), Some(ConfigFault::Database));
        let far = RedisConfig::url("redis://127.0.0.1").database(LAST_DATABASE + 1);
        assert_eq!(fault(far), Some(ConfigFault::Database));
        let last = RedisConfig::url("redis://127.0.0.1").database(LAST_DATABASE);
        assert_eq!(fault(last), None);
        assert_eq!(fault("redis://ann@127.0.0.1"), Some(ConfigFault::User));
    }

    #[test]
    fn sentinels_are_as_many_as_one_to_sixty_four_and_all_alike() {
        let one = "redis://127.0.0.1:26379";
        assert_eq!(fault(behind(&[])), Some(ConfigFault::SentinelCount));
        assert_eq!(fault(behind(&[one; 65])), Some(ConfigFault::SentinelCount));
        assert_eq!(fault(behind(&[one; 64])), None);
        assert_eq!(
            fault(RedisConfig::sentinel([one], "")),
            Some(ConfigFault::Service)
        );
        for url in ["?", "unix:///run/redis.sock", "redis://127.0.0.1/1"] {
            assert_eq!(
                fault(behind(&[one, url])),
                Some(ConfigFault::SentinelUrl),
                "{url}"
            );
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_without_its_feature_is_refused_by_name() {
        for url in ["rediss://127.0.0.1/", "valkeys://127.0.0.1/"] {
            assert_eq!(fault(url), Some(ConfigFault::Tls));
            assert_eq!(fault(behind(&[url])), Some(ConfigFault::Tls));
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_files_go_with_tls_alone() {
        let (plain, secure) = ("redis://127.0.0.1/", "rediss://127.0.0.1/");
        assert_eq!(fault(RedisConfig::url(secure).tls_ca("ca.pem")), None);
        let client = RedisConfig::url(secure).tls_client("a.pem", "a.key");
        assert_eq!(fault(client), None);
        for plain in [RedisConfig::url(plain), behind(&[plain])] {
            let ca = plain.clone().tls_ca("ca.pem");
            assert_eq!(fault(ca), Some(ConfigFault::TlsPlain));
            let client = plain.tls_client("a.pem", "a.key");
            assert_eq!(fault(client), Some(ConfigFault::TlsPlain));
        }
        let half = RedisConfig::url(secure).tls_client("a.pem", "");
        assert_eq!(fault(half), Some(ConfigFault::TlsPath));
        assert_eq!(
            fault("rediss://127.0.0.1/#insecure"),
            Some(ConfigFault::Insecure)
        );
        let mixed = behind(&[secure, plain]);
        assert_eq!(fault(mixed), Some(ConfigFault::SentinelSchemes));
    }

    #[test]
    fn nothing_secret_is_in_the_debug_output() {
        let config = RedisConfig::url("redis://ann:secret@127.0.0.1/").password("hidden");

        let text = format!("{config:?}");

        assert_eq!(text, "RedisConfig { .. }");
    }
}
