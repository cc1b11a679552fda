//! The authority that a request is for: the one part of a key that is normalised.

use http::{HeaderMap, Uri, header, uri::Authority};

use super::{
    Digest,
    part::{Tag, part},
    rules::Unkeyable,
};

/// The implicit tag of all entries for an authority and a path.
pub(crate) fn uri_tag(uri: &Uri, headers: &HeaderMap) -> Digest {
    let mut bytes = Vec::new();
    if write(uri, headers, &mut bytes).is_err() {
        // An authority that cannot be keyed has no entries either.
        bytes.clear();
    }
    part(&mut bytes, Tag::Path, uri.path().as_bytes());
    Digest::of(&bytes)
}

pub(super) fn write(uri: &Uri, headers: &HeaderMap, bytes: &mut Vec<u8>) -> Result<(), Unkeyable> {
    if let Some(authority) = uri.authority() {
        let ports: &[u16] = match uri.scheme_str() {
            Some("http") => &[80],
            Some("https") => &[443],
            _ => &[80, 443],
        };
        return write_host(authority.as_str(), ports, bytes);
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(()),
        (Some(host), None) => {
            let host = host.to_str().map_err(|_| Unkeyable::Authority)?;
            write_host(host, &[80, 443], bytes)
        }
        (Some(_), Some(_)) => Err(Unkeyable::Authority),
    }
}

fn write_host(host: &str, default_ports: &[u16], bytes: &mut Vec<u8>) -> Result<(), Unkeyable> {
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
    let is_default =
        port.is_empty() || port.parse().is_ok_and(|port| default_ports.contains(&port));
    let start = bytes.len();
    part(
        bytes,
        Tag::Authority,
        if is_default { name } else { host }.as_bytes(),
    );
    if let Some(written) = bytes.get_mut(start + 5..) {
        written.make_ascii_lowercase();
    }
    Ok(())
}

/// The name and the port of `host`, if it is surely a registered name or an IPv4 address with an
/// optional port: the usual case, for which no parser is needed.
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
