//! [`CacheOutcome`]: what `Cache-Status` says, for tests and logs.

use std::fmt;

use http::HeaderMap;
use sfv::{BareItem, Item, List, ListEntry, Parser};

use crate::status;

/// What the cache did with a request: what it wrote into `Cache-Status` (RFC 9211), taken apart.
///
/// With [`BufferLayer::expose_outcome`](crate::BufferLayer::expose_outcome) it is an extension of each
/// response; [`of`](Self::of) reads it from the fields of any, one that came over the wire say.
///
/// ```
/// use http::HeaderMap;
/// use tower_stampede::CacheOutcome;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("cache-status", "stampede; fwd=stale; collapsed; detail=failed".parse().unwrap());
///
/// let outcome = CacheOutcome::of(&headers).unwrap();
/// assert!(outcome.is_collapsed() && !outcome.is_hit());
/// assert_eq!(outcome.forward(), Some("stale"));
/// assert_eq!(outcome.detail(), Some("failed"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CacheOutcome(Item);

impl CacheOutcome {
    /// What this cache last said of a response with these fields; `None` if it said nothing.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut ours = headers
            .get_all(status::FIELD)
            .iter()
            .filter_map(|line| Parser::new(line.as_bytes()).parse::<List>().ok())
            .flatten()
            .filter_map(|entry| match entry {
                ListEntry::Item(item) if is_ours(&item) => Some(item),
                _ => None,
            });
        ours.next_back().map(Self)
    }

    /// Whether an entry answered.
    pub fn is_hit(&self) -> bool {
        self.is_set("hit")
    }

    /// Whether another request's build answered.
    pub fn is_collapsed(&self) -> bool {
        self.is_set("collapsed")
    }

    /// Whether the response was stored, as far as that was known when the answer began.
    ///
    /// Filling the shared tier is off the answer's path: a purge that overtakes the build at the very end, or a
    /// lease that was lost unnoticed, still keeps the response out
    /// ([`Stats::fenced_fills`](crate::Stats::fenced_fills)).
    pub fn is_stored(&self) -> bool {
        self.is_set("stored")
    }

    /// Why the request went forward, as RFC 9211 section 2.2 names it: `uri-miss`, `vary-miss`, `stale`,
    /// `bypass`, `method` or `request`.
    pub fn forward(&self) -> Option<&str> {
        self.text("fwd")
    }

    /// The remaining freshness in seconds; negative for what is stale.
    pub fn ttl(&self) -> Option<i64> {
        match self.0.params.get("ttl") {
            Some(BareItem::Integer(ttl)) => Some(i64::from(*ttl)),
            _ => None,
        }
    }

    /// What else there is to say, such as why a request bypassed.
    pub fn detail(&self) -> Option<&str> {
        self.text("detail")
    }

    fn is_set(&self, name: &str) -> bool {
        matches!(self.0.params.get(name), Some(BareItem::Boolean(true)))
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.0.params.get(name)? {
            BareItem::Token(token) => Some(token.as_str()),
            BareItem::String(text) => Some(text.as_str()),
            _ => None,
        }
    }
}

/// As it stands in the field.
impl fmt::Display for CacheOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: List = vec![ListEntry::Item(self.0.clone())];
        f.write_str(&sfv::FieldType::serialize(&list).unwrap_or_default())
    }
}

fn is_ours(item: &Item) -> bool {
    matches!(&item.bare_item, BareItem::Token(name) if name.as_str() == status::IDENTIFIER)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::status::{End, Forward, Outcome};

    fn read(outcome: Outcome) -> CacheOutcome {
        let mut headers = HeaderMap::new();
        headers.insert(status::FIELD, HeaderValue::from_static("Origin; hit"));
        outcome.write(&mut headers);
        CacheOutcome::of(&headers).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let hit = read(Outcome::hit(-7));
        assert!(hit.is_hit() && !hit.is_collapsed() && !hit.is_stored());
        assert_eq!(
            (hit.ttl(), hit.forward(), hit.detail()),
            (Some(-7), None, None)
        );

        let stored = read(Outcome::forward(Forward::Miss, End::Stored { ttl: 60 }));
        assert!(stored.is_stored() && !stored.is_hit());
        assert_eq!(
            (stored.ttl(), stored.forward()),
            (Some(60), Some("uri-miss"))
        );

        let bypass = read(Outcome::bypass("cookie"));
        assert_eq!(
            (bypass.forward(), bypass.detail()),
            (Some("bypass"), Some("cookie"))
        );
        assert_eq!(bypass.to_string(), "stampede;fwd=bypass;detail=cookie");
    }

    #[test]
    fn what_others_or_nobody_said_is_nothing() {
        let mut headers = HeaderMap::new();
        assert_eq!(CacheOutcome::of(&headers), None);

        headers.append(status::FIELD, HeaderValue::from_static("Origin; hit"));
        headers.append(
            status::FIELD,
            HeaderValue::from_static("\"stampede; broken"),
        );
        assert_eq!(CacheOutcome::of(&headers), None);
    }
}
