//! Which fields of a message are kept, and which stay behind.

use std::time::SystemTime;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CONNECTION, DATE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
        IF_UNMODIFIED_SINCE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, RANGE, TE, TRANSFER_ENCODING,
        UPGRADE,
    },
};

use super::storable::Withheld;

/// Fields of one connection (RFC 9110 section 7.6.1) or of one proxy (RFC 9111 section 3.1).
const NOT_STORED: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-authentication-info"),
    PROXY_AUTHORIZATION,
    HeaderName::from_static("http2-settings"),
];

/// What selects a part of a response, or none of it: a build always makes the whole.
const SELECTIVE: [HeaderName; 6] = [
    RANGE,
    IF_RANGE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
];

/// The fields of a response that are stored and shared, byte for byte and in order within a name.
pub(crate) fn for_storing(headers: &HeaderMap, withheld: &Withheld) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if is_storable(name, headers) && !withheld.contains(name) {
            kept.append(name, detached(value));
        }
    }
    kept
}

/// A value of its own: one that a connection has read may be a small part of a large buffer.
fn detached(value: &HeaderValue) -> HeaderValue {
    let mut own = HeaderValue::from_bytes(value.as_bytes()).expect("it has been a value before");
    own.set_sensitive(value.is_sensitive());
    own
}

/// Whether a field of this message may be stored at all (RFC 9111 section 3.1).
pub(crate) fn is_storable(name: &HeaderName, headers: &HeaderMap) -> bool {
    !NOT_STORED.contains(name) && !is_listed_in_connection(name, headers)
}

fn is_listed_in_connection(name: &HeaderName, headers: &HeaderMap) -> bool {
    headers.get_all(CONNECTION).iter().any(|line| {
        line.as_bytes().split(|byte| *byte == b',').any(|option| {
            option
                .trim_ascii()
                .eq_ignore_ascii_case(name.as_str().as_bytes())
        })
    })
}

/// Whether a request has its connection drop fields that are none of the connection's.
///
/// Whoever forwards such a request drops them (RFC 9110 section 7.6.1), so that the response is not
/// the one to what was asked here.
pub(crate) fn hides_fields(request: &HeaderMap) -> bool {
    let mut options = request
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .filter_map(|option| HeaderName::from_bytes(option.trim_ascii()).ok());
    options.any(|option| request.contains_key(&option) && !NOT_STORED.contains(&option))
}

/// Takes from a request what would make its build partial or conditional.
pub(crate) fn for_build(headers: &mut HeaderMap) {
    for name in &SELECTIVE {
        headers.remove(name);
    }
}

/// Records the time of reception in a response without a `Date` (RFC 9110 section 6.6.1).
pub(crate) fn date(headers: &mut HeaderMap, now: SystemTime) {
    if headers.contains_key(DATE) {
        return;
    }
    if let Ok(value) = HeaderValue::try_from(httpdate::fmt_http_date(now)) {
        headers.insert(DATE, value);
    }
}

#[cfg(test)]
mod tests;
