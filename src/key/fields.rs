//! The header fields and the cookies that a route has named.

use http::{HeaderMap, HeaderName, header};

use super::part::{Tag, part};

pub(super) fn write_header(name: &HeaderName, headers: &HeaderMap, bytes: &mut Vec<u8>) {
    part(bytes, Tag::Header, name.as_str().as_bytes());
    for value in headers.get_all(name) {
        part(bytes, Tag::HeaderValue, value.as_bytes());
    }
}

pub(super) fn write_cookie(name: &str, headers: &HeaderMap, bytes: &mut Vec<u8>) {
    part(bytes, Tag::Cookie, name.as_bytes());
    for (_name, value) in cookies(headers).filter(|(known, _)| *known == name.as_bytes()) {
        part(bytes, Tag::CookieValue, value);
    }
}

/// The cookies of a request, as name and value (RFC 6265 section 4.2.1).
pub(crate) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .map(|pair| {
            let pair = pair.trim_ascii();
            let at = pair.iter().position(|byte| *byte == b'=');
            let (name, value) = at.map_or((pair, &b""[..]), |at| pair.split_at(at));
            (name.trim_ascii(), value)
        })
}
