//! Conditional requests, answered from an entry (RFC 9110 section 13, RFC 9111 section 4.3.2).

use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{
        CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE,
        ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
        TRAILER,
    },
};

use super::freshness::{date, http_date};

/// What the request's conditions make of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 304: the client has it already.
    NotModified,
    /// The response as it is.
    Proceed,
}

/// Representation metadata that a 304 leaves out (RFC 9110 section 15.4.5).
const NOT_IN_304: [HeaderName; 8] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("content-digest"),
    TRAILER,
];

/// Evaluates a GET or HEAD against a stored response.
///
/// `If-None-Match` decides alone where it is present (RFC 9110 section 13.2.2). Conditions count
/// only for a response that would be a success (section 13.2.1).
pub(crate) fn evaluate(request: &HeaderMap, (status, stored): (StatusCode, &HeaderMap)) -> Outcome {
    let unmodified = if request.contains_key(IF_NONE_MATCH) {
        none_match(request, stored)
    } else if request.contains_key(IF_MODIFIED_SINCE) {
        unmodified_since(request, stored)
    } else {
        return Outcome::Proceed;
    };
    if unmodified && status.is_success() {
        Outcome::NotModified
    } else {
        Outcome::Proceed
    }
}

/// Whether the request has conditions that only an origin server may evaluate
/// (RFC 9111 section 4.3.2).
pub(crate) fn is_for_origin(request: &HeaderMap) -> bool {
    request.contains_key(IF_MATCH) || request.contains_key(IF_UNMODIFIED_SINCE)
}

/// Turns the fields of a response into those of its 304.
pub(crate) fn into_not_modified(headers: &mut HeaderMap) {
    for name in &NOT_IN_304 {
        headers.remove(name);
    }
}

/// Weak comparison (RFC 9110 section 8.8.3.2): the opaque parts are the same.
pub(crate) fn weakly_equal(one: &[u8], other: &[u8]) -> bool {
    opaque(one) == opaque(other)
}

/// Strong comparison: the same, and neither is weak.
pub(crate) fn strongly_equal(one: &[u8], other: &[u8]) -> bool {
    one == other && is_strong(one)
}

pub(crate) fn is_strong(tag: &[u8]) -> bool {
    !tag.starts_with(b"W/")
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Whether the stored response is among those that the client has.
fn none_match(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let lines = || request.get_all(IF_NONE_MATCH).iter();
    if lines().any(|line| line.as_bytes().trim_ascii() == b"*") {
        return true;
    }
    let Some(tag) = stored.get(ETAG) else {
        return false;
    };
    lines()
        .flat_map(|line| EntityTags(line.as_bytes()))
        .any(|known| weakly_equal(known, tag.as_bytes()))
}

/// Whether the stored response is no newer than the one date of `If-Modified-Since`; without
/// `Last-Modified` it is as new as its `Date`.
fn unmodified_since(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let mut lines = request.get_all(IF_MODIFIED_SINCE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return false;
    };
    let name = if stored.contains_key(LAST_MODIFIED) {
        LAST_MODIFIED
    } else {
        DATE
    };
    match (http_date(line.as_bytes()), date(stored, &name)) {
        (Some(since), Some(modified)) => modified <= since,
        _ => false,
    }
}

/// The members of an entity-tag list. Commas inside a tag are part of it, and a backslash is an
/// ordinary byte there (RFC 9110 section 8.8.3).
struct EntityTags<'a>(&'a [u8]);

impl<'a> Iterator for EntityTags<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let begin = self.0.iter().position(|byte| !b" \t,".contains(byte))?;
        let rest = self.0.get(begin..)?;
        let quoted = opaque(rest).strip_prefix(b"\"").and_then(|text| {
            let end = text.iter().position(|byte| *byte == b'"')?;
            Some(rest.len() - text.len() + end + 1)
        });
        let end = quoted
            .or_else(|| rest.iter().position(|byte| *byte == b','))
            .unwrap_or(rest.len());
        let (tag, rest) = rest.split_at_checked(end)?;
        self.0 = rest;
        Some(tag.trim_ascii_end())
    }
}

#[cfg(test)]
mod tests;
