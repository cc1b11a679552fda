//! `Vary`: which request fields select a variant (RFC 9111 section 4.1).

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_ENCODING, GetAll, ORIGIN, VARY,
    },
};

use super::cache_control::Members;

/// More field names than this is read as `*`.
const MAX_FIELDS: usize = 32;

/// What a response says about the requests it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Vary {
    /// Every request.
    #[default]
    None,
    /// No other request: `*`, or what cannot be read.
    Any,
    /// Those with the same values of these fields; sorted, each once.
    Fields(Vec<HeaderName>),
}

/// When two requests' values of a field are the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Matching {
    /// Line by line, byte by byte.
    #[default]
    Exact,
    /// Lines combined, and white space around commas removed (RFC 9111 section 4.1).
    Combined,
}

impl Vary {
    /// Reads every line of `Vary`, and what a response implies without saying so: one with
    /// `Content-Encoding` varies on `Accept-Encoding`, one for a single origin on `Origin`.
    pub(crate) fn of_response(headers: &HeaderMap) -> Self {
        let mut fields = Vec::new();
        for line in headers.get_all(VARY) {
            for name in line.as_bytes().split(|byte| *byte == b',') {
                let name = name.trim_ascii();
                if name.is_empty() {
                    continue;
                }
                match HeaderName::from_bytes(name) {
                    Ok(field) if field.as_str() != "*" => fields.push(field),
                    _ => return Self::Any,
                }
            }
        }
        fields.extend(implied(headers));
        Self::from_fields(fields)
    }

    /// The same where `field` is taken care of otherwise.
    pub(crate) fn without(self, field: &HeaderName) -> Self {
        match self {
            Self::Fields(mut fields) => {
                fields.retain(|name| name != field);
                Self::from_fields(fields)
            }
            vary => vary,
        }
    }

    /// What varies on the fields of either.
    pub(crate) fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => Self::Any,
            (Self::None, vary) | (vary, Self::None) => vary,
            (Self::Fields(mut fields), Self::Fields(more)) => {
                fields.extend(more);
                Self::from_fields(fields)
            }
        }
    }

    /// Sorts and deduplicates; none is `None`, and too many are `Any`.
    pub(crate) fn from_fields(mut fields: Vec<HeaderName>) -> Self {
        fields.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        fields.dedup();
        match fields.len() {
            0 => Self::None,
            1..=MAX_FIELDS => Self::Fields(fields),
            _ => Self::Any,
        }
    }
}

fn implied(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let encoded = headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    let single_origin = headers
        .get(ACCESS_CONTROL_ALLOW_ORIGIN)
        .is_some_and(|origin| origin != "*");
    let encoding = encoded.then_some(ACCEPT_ENCODING);
    let origin = single_origin.then_some(ORIGIN);
    encoding.into_iter().chain(origin)
}

/// Appends the request's values of `fields` to `out`, so that two requests get the same bytes if
/// and only if they have the same values; a field that is absent differs from an empty one.
///
/// The names are written too: encodings for different fields never meet.
pub(crate) fn write_variant(
    fields: &[HeaderName],
    request: &HeaderMap,
    matching: Matching,
    out: &mut Vec<u8>,
) {
    for field in fields {
        write_part(field.as_str().as_bytes(), out);
        let lines = request.get_all(field);
        match matching {
            Matching::Exact => {
                write_length(lines.iter().count(), out);
                for line in lines {
                    write_part(line.as_bytes(), out);
                }
            }
            Matching::Combined => {
                write_length(usize::from(request.contains_key(field)), out);
                write_combined(&lines, out);
            }
        }
    }
}

/// Writes the members of all lines as one list, with its length in front.
fn write_combined(lines: &GetAll<'_, HeaderValue>, out: &mut Vec<u8>) {
    let length_at = out.len();
    write_length(0, out);
    let begin = out.len();
    let members = lines
        .iter()
        .flat_map(|line| Members(line.as_bytes()))
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty());
    for member in members {
        if out.len() > begin {
            out.push(b',');
        }
        out.extend_from_slice(member);
    }
    let length = prefix(out.len() - begin);
    if let Some(reserved) = out.get_mut(length_at..begin) {
        reserved.copy_from_slice(&length);
    }
}

fn write_part(part: &[u8], out: &mut Vec<u8>) {
    write_length(part.len(), out);
    out.extend_from_slice(part);
}

fn write_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&prefix(length));
}

/// The same on every platform, since variants are named in the shared tier.
fn prefix(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests;
