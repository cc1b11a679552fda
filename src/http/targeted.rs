//! Targeted cache control (RFC 9213): `CDN-Cache-Control` and its like.
//!
//! A targeted field is a structured dictionary. The first one of the target list that parses, is
//! not empty and has the right types decides alone: `Cache-Control` and `Expires` are then not
//! looked at. One that does not is as if it were not there.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::cache_control::{Delta, Directives, Flag, MAX_DELTA, Scope};

/// The directives a response is judged by, and where they come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) directives: Directives,
    pub(crate) origin: Origin,
}

/// Which field decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A field of the target list: `Expires` does not count (RFC 9213 section 2.2).
    Targeted,
    /// `Cache-Control`, or none.
    General,
}

impl Policy {
    pub(crate) fn of_response(headers: &HeaderMap, targets: &[HeaderName]) -> Self {
        targets
            .iter()
            .find_map(|target| targeted(headers, target))
            .map_or_else(
                || Self {
                    directives: Directives::of_response(headers),
                    origin: Origin::General,
                },
                |directives| Self {
                    directives,
                    origin: Origin::Targeted,
                },
            )
    }
}

fn targeted(headers: &HeaderMap, target: &HeaderName) -> Option<Directives> {
    let mut lines = headers.get_all(target).iter();
    let first = lines.next()?.as_bytes().to_vec();
    let combined = lines.fold(first, |mut combined, line| {
        combined.extend_from_slice(b", ");
        combined.extend_from_slice(line.as_bytes());
        combined
    });
    let members: Dictionary = Parser::new(&combined).parse().ok()?;
    if members.is_empty() {
        return None;
    }
    members
        .iter()
        .try_fold(Directives::default(), |mut directives, (name, value)| {
            apply(&mut directives, name.as_str(), value)?;
            Some(directives)
        })
}

/// Takes one member over; `None` if its type is not the directive's.
fn apply(directives: &mut Directives, name: &str, value: &ListEntry) -> Option<()> {
    match name {
        "max-age" => directives.max_age = delta(value)?,
        "s-maxage" => directives.s_maxage = delta(value)?,
        "stale-while-revalidate" => directives.stale_while_revalidate = delta(value)?,
        "stale-if-error" => directives.stale_if_error = delta(value)?,
        "no-cache" => directives.no_cache = scope(value),
        "private" => directives.private = scope(value),
        "no-store" => flag(directives, Flag::NoStore, value)?,
        "public" => flag(directives, Flag::Public, value)?,
        "must-revalidate" => flag(directives, Flag::MustRevalidate, value)?,
        "proxy-revalidate" => flag(directives, Flag::ProxyRevalidate, value)?,
        "must-understand" => flag(directives, Flag::MustUnderstand, value)?,
        _ => {}
    }
    Some(())
}

fn bare(value: &ListEntry) -> Option<&BareItem> {
    match value {
        ListEntry::Item(item) => Some(&item.bare_item),
        ListEntry::InnerList(_) => None,
    }
}

fn delta(value: &ListEntry) -> Option<Delta> {
    let BareItem::Integer(seconds) = bare(value)? else {
        return None;
    };
    let seconds = i64::from(*seconds);
    Some(u64::try_from(seconds).map_or(Delta::Invalid, |seconds| {
        Delta::Seconds(Duration::from_secs(seconds).min(MAX_DELTA))
    }))
}

fn flag(directives: &mut Directives, flag: Flag, value: &ListEntry) -> Option<()> {
    match bare(value)? {
        BareItem::Boolean(true) => directives.set(flag),
        BareItem::Boolean(false) => {}
        _ => return None,
    }
    Some(())
}

fn scope(value: &ListEntry) -> Scope {
    match bare(value) {
        Some(BareItem::Boolean(false)) => Scope::Absent,
        Some(BareItem::String(list)) => Scope::of_list(list.as_str().as_bytes()),
        Some(BareItem::Token(name)) => Scope::of_list(name.as_str().as_bytes()),
        _ => Scope::All,
    }
}

#[cfg(test)]
mod tests;
