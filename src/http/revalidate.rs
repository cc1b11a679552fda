//! Validating a stale entry (RFC 9111 section 4.3).
//!
//! A build that could confirm an entry carries the entry's validators. A 304 then freshens the
//! stored fields; it is no response of its own. What [`freshen`] returns is judged like any other
//! response, with the stored status.

use http::{
    HeaderMap, HeaderValue,
    header::{
        AGE, CONTENT_LENGTH, DATE, ETAG, Entry, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
    },
};

use super::{
    conditional::{is_strong, strongly_equal, weakly_equal},
    fields::is_storable,
    freshness::date,
};

/// Whether a build can be answered with a 304.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validation {
    Conditional,
    Unconditional,
}

/// Adds the stored validators to the request of a build (RFC 9111 section 4.3.1). The tag is left out
/// where only this cache knows it: it would have the origin leave the date out of account.
pub(crate) fn condition(
    build: &mut HeaderMap,
    stored: &HeaderMap,
    is_ours: impl Fn(&HeaderValue) -> bool,
) -> Validation {
    let mut validation = Validation::Unconditional;
    if let Some(tag) = stored.get(ETAG).filter(|tag| !is_ours(tag)) {
        build.insert(IF_NONE_MATCH, tag.clone());
        validation = Validation::Conditional;
    }
    if let Some(modified) = stored.get(LAST_MODIFIED)
        && date(stored, &LAST_MODIFIED).is_some()
    {
        build.insert(IF_MODIFIED_SINCE, modified.clone());
        validation = Validation::Conditional;
    }
    validation
}

/// The stored fields as a 304 leaves them (RFC 9111 sections 3.2 and 4.3.4), or nothing if the 304
/// speaks of another response, which it must not update.
///
/// `Age` and `Date` are the 304's: the response was confirmed now. A 304 without a `Date` leaves
/// none, to be filled in with the time of reception.
pub(crate) fn freshen(stored: &HeaderMap, not_modified: &HeaderMap) -> Option<HeaderMap> {
    if !is_about(stored, not_modified) {
        return None;
    }
    let mut fresh = stored.clone();
    fresh.remove(AGE);
    fresh.remove(DATE);
    let updates = not_modified
        .keys()
        .filter(|name| *name != CONTENT_LENGTH && is_storable(name, not_modified));
    for name in updates {
        fresh.remove(name);
        for value in not_modified.get_all(name) {
            match fresh.entry(name) {
                Entry::Occupied(mut field) => field.append(value.clone()),
                Entry::Vacant(field) => drop(field.insert(value.clone())),
            }
        }
    }
    Some(fresh)
}

/// Whether the validators of a 304 select the stored response. One without any can only speak of
/// the one response it was asked about.
fn is_about(stored: &HeaderMap, not_modified: &HeaderMap) -> bool {
    match (not_modified.get(ETAG), stored.get(ETAG)) {
        (Some(new), Some(old)) if is_strong(new.as_bytes()) => {
            strongly_equal(new.as_bytes(), old.as_bytes())
        }
        (Some(new), Some(old)) => weakly_equal(new.as_bytes(), old.as_bytes()),
        (Some(new), None) if is_strong(new.as_bytes()) => false,
        (Some(_), None) | (None, _) => {
            match (not_modified.get(LAST_MODIFIED), stored.get(LAST_MODIFIED)) {
                (Some(new), Some(old)) => new == old,
                _ => true,
            }
        }
    }
}

#[cfg(test)]
mod tests;
