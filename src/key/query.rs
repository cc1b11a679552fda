//! [`QueryKey`]: what of the query is in the key.

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
    pub(super) fn write(&self, query: &str, bytes: &mut Vec<u8>) {
        let pairs = || query.split('&').filter(|pair| !pair.is_empty());
        match self {
            Self::Raw => part(bytes, Tag::Query, query.as_bytes()),
            Self::Ignore => {}
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

fn write_pairs(pairs: impl Iterator<Item: AsRef<str>>, bytes: &mut Vec<u8>) {
    pairs.for_each(|pair| part(bytes, Tag::Query, pair.as_ref().as_bytes()));
}

/// By the decoded name, as the handler reads it: `%61=1` is a parameter `a`.
fn is_named(pair: &str, names: &[String]) -> bool {
    form_urlencoded::parse(pair.as_bytes())
        .next()
        .is_some_and(|(name, _value)| names.iter().any(|known| *known == name))
}
