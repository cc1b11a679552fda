//! Ranges of a complete stored body (RFC 9110 section 14).

use std::{
    num::NonZeroUsize,
    ops::{Range, RangeInclusive},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE,
        TRAILER,
    },
};
use http_range_header::{RangeUnsatisfiableError, parse_range_header_with_max_ranges};

use super::{
    conditional::strongly_equal,
    freshness::{date, http_date},
};

/// A request for more ranges than this gets the whole (RFC 9110 section 14.2).
const MAX_RANGES: NonZeroUsize = NonZeroUsize::new(16).expect("16 is not zero");

/// What to send of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// 200, all of it: no range was asked for, or what was asked for may be ignored.
    Full,
    /// 206, one part.
    Partial(Range<usize>),
    /// 206, several parts as `multipart/byteranges`.
    Multipart(Vec<Range<usize>>),
    /// 416.
    Unsatisfiable,
}

/// Selects from a stored 200 of `length` bytes what a GET asks for.
///
/// Ranges that cannot be read, too many of them, more than two that overlap, and ranges that add
/// up to more than the whole are ignored, as is a `Range` whose `If-Range` does not hold.
pub(crate) fn select(request: &HeaderMap, stored: &HeaderMap, length: usize) -> Selection {
    let mut lines = request.get_all(RANGE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Selection::Full;
    };
    if request.contains_key(IF_RANGE) && !still_holds(request, stored) {
        return Selection::Full;
    }
    let ranges = line
        .to_str()
        .map_err(|_| None)
        .and_then(|line| parse_range_header_with_max_ranges(line, MAX_RANGES).map_err(Some))
        .and_then(|ranges| {
            let length = u64::try_from(length).unwrap_or(u64::MAX);
            ranges.validate(length).map_err(Some)
        });
    match ranges {
        Ok(ranges) => from_ranges(&ranges, length),
        Err(Some(RangeUnsatisfiableError::Unsatisfiable)) => Selection::Unsatisfiable,
        Err(_) => Selection::Full,
    }
}

fn from_ranges(ranges: &[RangeInclusive<u64>], length: usize) -> Selection {
    let parts: Option<Vec<_>> = ranges.iter().map(|range| part(range, length)).collect();
    match parts.as_deref() {
        None | Some([]) => Selection::Full,
        Some([part]) => Selection::Partial(part.clone()),
        Some(parts) if parts.iter().map(Range::len).sum::<usize>() > length => Selection::Full,
        Some(parts) => Selection::Multipart(parts.to_vec()),
    }
}

fn part(range: &RangeInclusive<u64>, length: usize) -> Option<Range<usize>> {
    let start = usize::try_from(*range.start()).ok()?;
    let end = usize::try_from(*range.end()).ok()?.checked_add(1)?;
    (start < end && end <= length).then_some(start..end)
}

/// `If-Range` holds for the same strong entity tag, or for the same date of modification where
/// that date is a strong validator (RFC 9110 sections 13.1.5 and 8.8.2.2).
fn still_holds(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let mut lines = request.get_all(IF_RANGE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return false;
    };
    let condition = line.as_bytes();
    let Some(since) = http_date(condition) else {
        let tag = stored.get(ETAG);
        return tag.is_some_and(|tag| strongly_equal(condition, tag.as_bytes()));
    };
    let Some(modified) = date(stored, &LAST_MODIFIED) else {
        return false;
    };
    since == modified
        && date(stored, &DATE)
            .and_then(|date| date.duration_since(modified).ok())
            .is_some_and(|settled| settled >= Duration::from_secs(1))
}

/// Turns the fields of the whole response into those of one part of it.
pub(crate) fn into_partial(headers: &mut HeaderMap, part: &Range<usize>, length: usize) {
    drop_what_is_of_the_whole(headers);
    headers.insert(CONTENT_RANGE, content_range(part, length));
    headers.insert(CONTENT_LENGTH, part.len().into());
}

/// Makes the body of several parts, and turns the fields of the whole response into its fields.
///
/// `boundary` must not occur in `body`: a random token.
pub(crate) fn into_multipart(
    headers: &mut HeaderMap,
    body: &Bytes,
    parts: &[Range<usize>],
    boundary: &str,
) -> Bytes {
    let media = headers.get(CONTENT_TYPE).cloned();
    let mut multipart = BytesMut::new();
    for part in parts {
        multipart.extend_from_slice(b"--");
        multipart.extend_from_slice(boundary.as_bytes());
        if let Some(media) = &media {
            multipart.extend_from_slice(b"\r\nContent-Type: ");
            multipart.extend_from_slice(media.as_bytes());
        }
        multipart.extend_from_slice(b"\r\nContent-Range: ");
        multipart.extend_from_slice(content_range(part, body.len()).as_bytes());
        multipart.extend_from_slice(b"\r\n\r\n");
        multipart.extend_from_slice(body.get(part.clone()).unwrap_or_default());
        multipart.extend_from_slice(b"\r\n");
    }
    multipart.extend_from_slice(b"--");
    multipart.extend_from_slice(boundary.as_bytes());
    multipart.extend_from_slice(b"--\r\n");
    drop_what_is_of_the_whole(headers);
    headers.remove(CONTENT_RANGE);
    headers.insert(CONTENT_LENGTH, multipart.len().into());
    let media = format!("multipart/byteranges; boundary={boundary}");
    if let Ok(media) = HeaderValue::try_from(media) {
        headers.insert(CONTENT_TYPE, media);
    }
    multipart.freeze()
}

/// The `Content-Range` of a 416.
pub(crate) fn unsatisfied(length: usize) -> HeaderValue {
    ascii(format!("bytes */{length}"))
}

fn content_range(part: &Range<usize>, length: usize) -> HeaderValue {
    let last = part.end.saturating_sub(1);
    ascii(format!("bytes {}-{last}/{length}", part.start))
}

fn ascii(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("digits and punctuation are a field value")
}

/// Digests of the content are of the whole, and so are trailers, which parts have none of.
fn drop_what_is_of_the_whole(headers: &mut HeaderMap) {
    headers.remove(TRAILER);
    headers.remove(HeaderName::from_static("content-md5"));
    headers.remove(HeaderName::from_static("content-digest"));
}

#[cfg(test)]
mod tests;
