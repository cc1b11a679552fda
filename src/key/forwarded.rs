//! What proxies say of the authority and the scheme that a client asked for.

use http::{HeaderMap, HeaderName, header};

use super::{
    fields::write_header,
    part::{Tag, part},
};

/// What a proxy says of the authority and the scheme, which handlers build links with: a client that
/// makes it up must not be able to have others see it.
pub(super) fn write(headers: &HeaderMap, bytes: &mut Vec<u8>) {
    if !headers.keys().any(|name| may_be_forwarding(name.as_str())) {
        return;
    }
    for name in [X_FORWARDED_HOST, X_FORWARDED_PROTO] {
        if headers.contains_key(&name) {
            write_header(&name, headers, bytes);
        }
    }
    let pairs = headers
        .get_all(header::FORWARDED)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| b",;".contains(byte)));
    for pair in pairs.map(<[u8]>::trim_ascii) {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        let name = name.trim_ascii();
        if name.eq_ignore_ascii_case(b"host") || name.eq_ignore_ascii_case(b"proto") {
            part(bytes, Tag::Forwarded, pair);
        }
    }
}

const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// By length alone: cheaper than three look-ups, which are almost always in vain.
fn may_be_forwarding(name: &str) -> bool {
    matches!(name.len(), 9 | 16 | 17)
}
