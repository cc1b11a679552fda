//! Where a server is, as the client library takes it.

use std::str::FromStr;

use crate::store::{Error, ErrorKind};

const PORT: u16 = 11_211;

/// `tcp://host:port`, or `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address(String);

impl Address {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why| Error::new(ErrorKind::InvalidInput, why);
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.starts_with('/') {
                Ok(Self(text.to_owned()))
            } else {
                Err(wrong("memcached: a socket is named by its whole path"))
            };
        }
        let server = text.strip_prefix("tcp://").unwrap_or(text);
        if server.contains("://") {
            return Err(wrong(
                "memcached: an address is host:port, tcp:// or unix://",
            ));
        }
        if server.contains('[') || server.matches(':').count() > 1 {
            return Err(wrong("memcached: the client speaks IPv4 only"));
        }
        let (host, port) = server.split_once(':').unwrap_or((server, ""));
        let port = match port {
            "" => Some(PORT),
            port => port.parse().ok(),
        };
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        match port {
            Some(port) if !host.is_empty() && host.bytes().all(in_name) => {
                Ok(Self(format!("tcp://{host}:{port}")))
            }
            Some(_) => Err(wrong("memcached: there is no host of this name")),
            None => Err(wrong("memcached: the port is not a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_port_and_a_socket_a_path() {
        for (text, address) in [
            ("localhost", "tcp://localhost:11211"),
            ("cache-1.shop_a.example:1", "tcp://cache-1.shop_a.example:1"),
            ("tcp://127.0.0.1:11212", "tcp://127.0.0.1:11212"),
            ("unix:///run/memcached.sock", "unix:///run/memcached.sock"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().as_str(), address);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            ":11211",
            "host:port",
            "host:65536",
            "two words:1",
            "[::1]:11211",
            "::1",
            "redis://127.0.0.1",
            "unix://relative",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        }
    }
}
