//! [`QueryKey`]: what of the query is in the key, behind the path.

use http::{Uri, uri::PathAndQuery};

use super::part::{Tag, part};

/// Which part of the query is in the key.
///
/// The default is [`Raw`](Self::Raw): the whole query, byte for byte. The other choices merge
/// requests that differ in bytes, so the handler must not read what they leave out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryKey {
    /// The raw query, byte for byte.
    #[default]
    Raw,
    /// No query at all.
    Ignore,
    /// Only the parameters with these (decoded) names, in the order of the request.
    Only(Vec<String>),
    /// All parameters but those with these (decoded) names, in the order of the request.
    Except(Vec<String>),
    /// All parameters, stably sorted by their raw names: repeated ones keep their order.
    Sorted,
}

impl QueryKey {
    /// Writes the path of a target, and what counts of its query.
    pub(super) fn write(&self, target: &Uri, bytes: &mut Vec<u8>) {
        if let (Self::Raw, Some(target)) = (self, target.path_and_query()) {
            return write_raw(target, bytes);
        }
        part(bytes, Tag::Path, target.path().as_bytes());
        let query = target.query().unwrap_or_default();
        let pairs = || query.split('&').filter(|pair| !pair.is_empty());
        match self {
            Self::Raw | Self::Ignore => {}
            Self::Only(names) => {
                write_pairs(pairs().filter(|pair| is_named(pair, names)), bytes);
            }
            Self::Except(names) => {
                write_pairs(pairs().filter(|pair| !is_named(pair, names)), bytes);
            }
            Self::Sorted => {
                let mut sorted: Vec<&str> = pairs().collect();
                sorted.sort_by_key(|pair| pair.split('=').next());
                write_pairs(sorted.into_iter(), bytes);
            }
        }
    }
}

/// Writes both as one part: a path holds no question mark.
fn write_raw(target: &PathAndQuery, bytes: &mut Vec<u8>) {
    match target.as_str() {
        // RFC 9110 section 4.2.3: an empty path is the root.
        query if query.starts_with('?') => {
            part(bytes, Tag::Path, format!("/{query}").as_bytes());
        }
        whole => part(bytes, Tag::Path, whole.as_bytes()),
    }
}

fn write_pairs(pairs: impl Iterator<Item: AsRef<str>>, bytes: &mut Vec<u8>) {
    pairs.for_each(|pair| part(bytes, Tag::Query, pair.as_ref().as_bytes()));
}

/// By the decoded name, as the handler reads it: `%61=1` is a parameter `a`.
fn is_named(pair: &str, names: &[String]) -> bool {
    form_urlencoded::parse(pair.as_bytes())
        .next()
        .is_some_and(|(name, _value)| names.iter().any(|known| *known == name))
}
