//! [`Address`]: one node of a Cluster.

use std::{fmt, sync::Arc};

use redis::{ConnectionAddr, ConnectionInfo};

/// Host and port of a node, as the Cluster says them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    host: Arc<str>,
    port: u16,
}

impl Address {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// `None`: a unix socket, which no node of a Cluster is reached by.
    pub(super) fn of(address: &ConnectionAddr) -> Option<Self> {
        match address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self::new(host, *port))
            }
            _ => None,
        }
    }

    /// Another port of the same host.
    pub(super) fn beside(&self, port: u16) -> Self {
        Self {
            host: Arc::clone(&self.host),
            port,
        }
    }

    /// How to connect to it: as `template` says of all nodes.
    pub(super) fn in_place_of(&self, template: &ConnectionInfo) -> ConnectionInfo {
        at(template, self.host.to_string(), self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// `template`, led to another host and port.
pub(in crate::link) fn at(template: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let address = match template.addr() {
        ConnectionAddr::TcpTls { .. } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    template.clone().set_addr(address)
}
