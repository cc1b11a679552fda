//! [`Redirection`]: what a node says that is not the one to ask.

use super::address::Address;
use crate::slot::SLOTS;

/// Where another node is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::link) struct Redirection {
    pub(super) kind: Kind,
    pub(super) slot: u16,
    /// `None`: the host of the node that answered.
    host: Option<Box<str>>,
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The slot lies there, for now and for what follows.
    Moved,
    /// The slot is on its way there: ask there this once.
    Ask,
}

impl Redirection {
    /// `code`: the error's first word; `place`: its last, `host:port` or `:port`. `None`: it names no node.
    pub(in crate::link) fn read(code: &str, slot: u16, place: &str) -> Option<Self> {
        let kind = match code {
            "MOVED" => Kind::Moved,
            "ASK" => Kind::Ask,
            _ => return None,
        };
        // The host may be an IPv6 address.
        let (host, port) = place.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let known = host != "?" && slot < SLOTS;
        known.then(|| Self {
            kind,
            slot,
            host: (!host.is_empty()).then(|| host.into()),
            port,
        })
    }

    pub(in crate::link) fn code(&self) -> &'static str {
        match self.kind {
            Kind::Moved => "MOVED",
            Kind::Ask => "ASK",
        }
    }

    /// The node to ask, if `answering` said so.
    pub(super) fn target(&self, answering: &Address) -> Address {
        match &self.host {
            Some(host) => Address::new(host, self.port),
            None => answering.beside(self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(place: &str) -> Option<String> {
        let redirection = Redirection::read("MOVED", 5, place)?;
        Some(redirection.target(&Address::new("here", 1)).to_string())
    }

    #[test]
    fn a_redirection_names_a_node() {
        assert_eq!(target("10.0.0.1:7000").unwrap(), "10.0.0.1:7000");
        assert_eq!(target("node.example:7000").unwrap(), "node.example:7000");
        assert_eq!(target("fe80::1:7000").unwrap(), "fe80::1:7000");
    }

    #[test]
    fn without_a_host_it_is_that_of_the_node_that_answered() {
        assert_eq!(target(":7001").unwrap(), "here:7001");
    }

    #[test]
    fn what_names_no_node_is_none() {
        for place in [
            "",
            "host",
            "host:",
            "host:x",
            "host:0",
            "host:70000",
            "?:7000",
        ] {
            assert_eq!(target(place), None, "{place}");
        }
        assert_eq!(Redirection::read("MOVED", SLOTS, "host:1"), None);
        assert_eq!(Redirection::read("ERR", 5, "host:1"), None);
    }

    #[test]
    fn its_code_is_the_one_that_was_read() {
        for code in ["MOVED", "ASK"] {
            assert_eq!(Redirection::read(code, 5, "host:1").unwrap().code(), code);
        }
    }
}
