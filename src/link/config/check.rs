//! Everything that can be checked without I/O.

use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};

use super::{ConfigError, ConfigFault, Place, RedisConfig};
use crate::link::{access::Access, cluster::Cluster, sentinel::Sentinels, server::Server};

/// The largest number that Redis may be told to have databases.
pub(super) const LAST_DATABASE: u32 = 2_147_483_647;

/// More sentinels than anybody runs, and more nodes than anybody names.
const URLS: usize = 64;

impl RedisConfig {
    /// What it leads to.
    pub(crate) fn server(&self) -> Result<Server, ConfigError> {
        match &self.place {
            Place::Url(url) => self.one(read(url, ConfigFault::Url)?),
            Place::Client(client) => self.one(client.get_connection_info().clone()),
            Place::Sentinel { urls, service } => self.behind(urls, service),
            Place::Cluster(urls) => self.of_cluster(urls),
        }
    }

    fn one(&self, info: ConnectionInfo) -> Result<Server, ConfigError> {
        let info = self.dress(info)?;
        let access = self.access(&info)?;
        Ok(Server::one(info, access))
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

    fn behind(&self, urls: &[String], service: &str) -> Result<Server, ConfigError> {
        if !(1..=URLS).contains(&urls.len()) {
            return Err(ConfigFault::SentinelCount.into());
        }
        if service.is_empty() {
            return Err(ConfigFault::Service.into());
        }
        let sentinels = all(urls, sentinel)?;
        let first = alike(&sentinels, ConfigFault::SentinelSchemes)?;
        let template = first
            .clone()
            .set_redis_settings(RedisConnectionInfo::default());
        let master = self.dress(template)?;
        let access = self.access(&master)?;
        Ok(Server::behind(
            Sentinels::new(sentinels, service, master),
            access,
        ))
    }

    fn of_cluster(&self, urls: &[String]) -> Result<Server, ConfigError> {
        if !(1..=URLS).contains(&urls.len()) {
            return Err(ConfigFault::ClusterCount.into());
        }
        let seeds = all(urls, |url| self.node(url))?;
        let template = alike(&seeds, ConfigFault::ClusterSchemes)?.clone();
        let login = |info: &ConnectionInfo| {
            let login = info.redis_settings();
            (
                login.username().map(str::to_owned),
                login.password().map(str::to_owned),
            )
        };
        if seeds.iter().any(|seed| login(seed) != login(&template)) {
            return Err(ConfigFault::ClusterLogins.into());
        }
        let access = self.access(&template)?;
        Ok(Server::any(Cluster::new(seeds, template, access)))
    }

    fn node(&self, url: &str) -> Result<ConnectionInfo, ConfigError> {
        let info = self.dress(read(url, ConfigFault::ClusterUrl)?)?;
        if matches!(info.addr(), ConnectionAddr::Unix(_)) {
            return Err(ConfigFault::ClusterUrl.into());
        }
        if info.redis_settings().db() != 0 {
            return Err(ConfigFault::ClusterDatabase.into());
        }
        Ok(info)
    }

    #[cfg(feature = "tls")]
    fn access(&self, template: &ConnectionInfo) -> Result<Access, ConfigError> {
        if !self.files.is_empty() && !is_tls(template) {
            return Err(ConfigFault::TlsPlain.into());
        }
        if self.files.paths().any(|path| path.as_os_str().is_empty()) {
            return Err(ConfigFault::TlsPath.into());
        }
        Ok(Access {
            files: self.files.clone(),
        })
    }

    #[cfg(not(feature = "tls"))]
    #[expect(
        clippy::unnecessary_wraps,
        clippy::unused_self,
        reason = "with TLS it can fail"
    )]
    fn access(&self, _template: &ConnectionInfo) -> Result<Access, ConfigError> {
        Ok(Access::default())
    }
}

fn all(
    urls: &[String],
    read: impl Fn(&str) -> Result<ConnectionInfo, ConfigError>,
) -> Result<Vec<ConnectionInfo>, ConfigError> {
    urls.iter().map(|url| read(url)).collect()
}

/// The first one, if all of them or none use TLS.
fn alike(infos: &[ConnectionInfo], fault: ConfigFault) -> Result<&ConnectionInfo, ConfigError> {
    let secure = infos.iter().filter(|info| is_tls(info)).count();
    let first = infos.first().filter(|_| [0, infos.len()].contains(&secure));
    first.ok_or_else(|| fault.into())
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
