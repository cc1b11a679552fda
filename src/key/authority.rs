//! The authority that a request is for: the one part of a key that is normalised.

use std::str;

use http::{HeaderMap, HeaderValue, Uri, header, uri::Authority};

use super::{
    Digest,
    part::{Tag, part},
    rules::Unkeyable,
};

/// What `Host` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host<'a> {
    Absent,
    One(&'a HeaderValue),
    /// Which one counts is anybody's guess.
    Many,
}

impl<'a> Host<'a> {
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        let mut lines = headers.get_all(header::HOST).iter();
        match (lines.next(), lines.next()) {
            (None, _) => Self::Absent,
            (Some(line), None) => Self::One(line),
            (Some(_), Some(_)) => Self::Many,
        }
    }

    /// The same, where `Host` is known to be one of the fields, and mostly the first.
    pub(crate) fn among(headers: &'a HeaderMap) -> Self {
        if headers.len() != headers.keys_len() {
            return Self::of(headers);
        }
        // No field has a second line, and a few comparisons cost less than a hash.
        let mut fields = headers.iter();
        let line = fields.find_map(|(name, line)| (*name == header::HOST).then_some(line));
        line.map_or(Self::Absent, Self::One)
    }

    fn write(self, bytes: &mut Vec<u8>) -> Result<(), Unkeyable> {
        match self {
            Self::Absent => Ok(()),
            Self::One(host) => write_host(host.as_bytes(), &["80", "443"], bytes),
            Self::Many => Err(Unkeyable::Authority),
        }
    }
}

/// The implicit tag of all entries for an authority and a path.
pub(crate) fn uri_tag(uri: &Uri, headers: &HeaderMap) -> Digest {
    let mut bytes = Vec::new();
    let written = match uri.authority() {
        Some(authority) => write_target(uri, authority, &mut bytes),
        None => Host::of(headers).write(&mut bytes),
    };
    if written.is_err() {
        // An authority that cannot be keyed has no entries either.
        bytes.clear();
    }
    part(&mut bytes, Tag::Path, uri.path().as_bytes());
    Digest::of(&bytes)
}

/// The implicit tag of entries for a URI with its query; `of_all_queries` is its [`uri_tag`].
pub(crate) fn exact_uri_tag(of_all_queries: Digest, uri: &Uri) -> Digest {
    let mut bytes = of_all_queries.as_bytes().to_vec();
    let query = uri.query().unwrap_or_default();
    part(&mut bytes, Tag::Query, query.as_bytes());
    Digest::of(&bytes)
}

/// Writes the authority of the target, or else of `Host`. Where they say different things both are
/// written: the target's counts (RFC 9112 section 3.2.2), and handlers read the other all the same.
pub(super) fn write(uri: &Uri, host: Host<'_>, bytes: &mut Vec<u8>) -> Result<(), Unkeyable> {
    let Some(authority) = uri.authority() else {
        return host.write(bytes);
    };
    let start = bytes.len();
    write_target(uri, authority, bytes)?;
    let end = bytes.len();
    host.write(bytes)?;
    if bytes.get(start..end) == bytes.get(end..) {
        bytes.truncate(end);
    }
    Ok(())
}

fn write_target(uri: &Uri, authority: &Authority, bytes: &mut Vec<u8>) -> Result<(), Unkeyable> {
    let ports: &[&str] = match uri.scheme_str() {
        Some("http") => &["80"],
        Some("https") => &["443"],
        _ => &["80", "443"],
    };
    write_host(authority.as_str().as_bytes(), ports, bytes)
}

fn write_host(host: &[u8], default_ports: &[&str], bytes: &mut Vec<u8>) -> Result<(), Unkeyable> {
    if is_canonical(host) {
        part(bytes, Tag::Authority, host);
        return Ok(());
    }
    let host = str::from_utf8(host).map_err(|_| Unkeyable::Authority)?;
    write_any_host(host, default_ports, bytes)
}

/// Whether `host` is surely a name or an IPv4 address in lower case without a port: the usual case,
/// in which it is written as it is. (By eight bytes at once, which the compiler makes few
/// instructions of.)
fn is_canonical(host: &[u8]) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-');
    let all = |eight: &[u8; 8]| eight.iter().fold(true, |all, byte| all & is_plain(byte));
    match host.last_chunk::<8>() {
        // The last eight may be looked at twice.
        Some(last) => all(last) && host.as_chunks::<8>().0.iter().all(all),
        None => !host.is_empty() && host.iter().all(is_plain),
    }
}

fn write_any_host(
    host: &str,
    default_ports: &[&str],
    bytes: &mut Vec<u8>,
) -> Result<(), Unkeyable> {
    let (name, port) = match plain_host(host) {
        Some(plain) => plain,
        None if host.contains(['@', ',']) || host.parse::<Authority>().is_err() => {
            return Err(Unkeyable::Authority);
        }
        // A colon of an IPv6 address is no port's.
        None => match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port),
            _ => (host, ""),
        },
    };
    // To the letter: a handler that makes links of `Host` may repeat what else there is for 80.
    let is_default = port.is_empty() || default_ports.contains(&port);
    let host = if is_default { name } else { host };
    part(bytes, Tag::Authority, host.to_ascii_lowercase().as_bytes());
    Ok(())
}

/// The name and the port of `host`, if it is surely a registered name or an IPv4 address with an
/// optional port, for which no parser is needed.
fn plain_host(host: &str) -> Option<(&str, &str)> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let length = host.bytes().take_while(is_name).count();
    let (name, rest) = host
        .split_at_checked(length)
        .filter(|(name, _)| !name.is_empty())?;
    let port = if rest.is_empty() {
        rest
    } else {
        rest.strip_prefix(':')?
    };
    port.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some((name, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Unkeyable>,
    ) -> Result<Vec<u8>, Unkeyable> {
        let mut bytes = Vec::new();
        write(&mut bytes).map(|()| bytes)
    }

    #[test]
    fn a_host_beside_a_target_counts_only_if_it_says_something_else() {
        let uri = Uri::from_static("http://a.example:80/");
        let beside = |host: &'static str| {
            let host = HeaderValue::from_static(host);
            written(|bytes| write(&uri, Host::One(&host), bytes))
        };

        let alone = written(|bytes| write(&uri, Host::Absent, bytes));

        assert_eq!(beside("A.example"), alone);
        assert_ne!(beside("b.example"), alone);
        assert_ne!(beside("b.example"), beside("c.example"));
        assert_eq!(beside("b example"), Err(Unkeyable::Authority));
        let two = written(|bytes| write(&uri, Host::Many, bytes));
        assert_eq!(two, Err(Unkeyable::Authority));
    }

    #[test]
    fn a_purge_of_a_target_reaches_it_whatever_the_host_beside_it_says() {
        let uri = Uri::from_static("http://a.example/x");
        let host = HeaderValue::from_static("b.example");

        let beside = uri_tag(&uri, &HeaderMap::from_iter([(header::HOST, host)]));

        assert_eq!(beside, uri_tag(&uri, &HeaderMap::new()));
    }

    proptest! {
        #[test]
        fn the_usual_case_is_written_as_any_other(
            host in "[a-z0-9.-]{0,20}([a-zA-Z0-9.:@,_ \\[\\]/é-]{0,4}|:[0-9]{0,5}|\\[::[0-9a-fA-F]{1,2}\\](:[0-9]{1,4})?)",
            ports in prop::sample::select(vec![&["80"][..], &["443"], &["80", "443"]]),
        ) {
            let fast = written(|bytes| write_host(host.as_bytes(), ports, bytes));
            let slow = written(|bytes| write_any_host(&host, ports, bytes));

            prop_assert_eq!(fast, slow);
        }
    }
}
