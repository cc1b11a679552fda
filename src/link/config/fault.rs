//! What is wrong with a [`RedisConfig`](super::RedisConfig).

use std::sync::Arc;

/// A setting that is impossible, or that does not go with another one.
#[derive(Clone, Debug)]
pub(crate) struct ConfigError {
    pub(super) fault: ConfigFault,
    pub(super) source: Option<Arc<redis::RedisError>>,
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
    ClusterCount,
    ClusterUrl,
    ClusterSchemes,
    ClusterLogins,
    ClusterDatabase,
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
            Self::ClusterCount => "cluster: must be 1 to 64 URLs",
            Self::ClusterUrl => "cluster: each URL must lead to a TCP port",
            Self::ClusterSchemes => "cluster: the URLs must all use TLS, or none of them",
            Self::ClusterLogins => "cluster: the URLs must all have the same user and password",
            Self::ClusterDatabase => "database: must be 0 in a Cluster",
        }
    }
}
