//! What an entry can be purged by: its own URI and key, and the names that layer, request and response
//! give it.

use http::{HeaderMap, HeaderName, Uri};

use crate::key::{self, Digest, Key};

/// More tags than this on one response, and it is not stored: a purge could not reach it.
const MOST: usize = 128;

/// The response fields that list tags, and what stands between two of them.
static FIELDS: [(HeaderName, &[char]); 3] = [
    (HeaderName::from_static("cache-tag"), &[',']),
    (HeaderName::from_static("surrogate-key"), &[' ', '\t']),
    (HeaderName::from_static("xkey"), &[' ', '\t', ',']),
];

/// The tag of this name.
pub(crate) fn named(name: &str) -> Digest {
    Digest::of(&[b"tag:", name.as_bytes()].concat())
}

/// The tag of all responses for one key, in all its variants.
pub(crate) fn of_key(resource: &Key) -> Digest {
    Digest::of(&[b"key:", resource.as_bytes()].concat())
}

/// The tags that an entry for this resource has by itself.
pub(crate) fn implied(uri: &Uri, headers: &HeaderMap, resource: &Key) -> [Digest; 3] {
    let of_uri = key::uri_tag(uri, headers);
    [of_uri, key::exact_uri_tag(of_uri, uri), of_key(resource)]
}

/// There are more tags than are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The tags known before the build, and those that its response names.
pub(crate) fn together(known: &[Digest], named: &[Digest]) -> Result<Box<[Digest]>, TooMany> {
    let mut all = known.to_vec();
    for tag in named {
        if !all.contains(tag) {
            all.push(*tag);
        }
    }
    if all.len() > MOST {
        return Err(TooMany);
    }
    Ok(all.into())
}

/// The tags that a response's fields name.
pub(crate) fn of_fields(headers: &HeaderMap) -> impl Iterator<Item = Digest> + '_ {
    FIELDS.iter().flat_map(|(name, separators)| {
        let lines = headers.get_all(name).iter();
        lines.flat_map(|line| {
            let text = line.to_str().unwrap_or_default();
            let names = text.split(*separators).map(str::trim);
            names.filter(|name| !name.is_empty()).map(named)
        })
    })
}

/// Takes the fields that list tags off a response: they are for caches.
pub(crate) fn strip(headers: &mut HeaderMap) {
    for (name, _) in &FIELDS {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn each_field_has_its_own_separator_and_may_come_in_several_lines() {
        let cases: [(&str, &[&str], &[&str]); 4] = [
            ("cache-tag", &["a b, c ,,d"], &["a b", "c", "d"]),
            ("surrogate-key", &["a  b,c", "d"], &["a", "b,c", "d"]),
            ("xkey", &["a b,c"], &["a", "b", "c"]),
            ("x-other", &["a"], &[]),
        ];
        for (field, lines, names) in cases {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(field, HeaderValue::from_static(line));
            }

            let found: Vec<_> = of_fields(&headers).collect();

            let expected: Vec<_> = names.iter().map(|name| named(name)).collect();
            assert_eq!(found, expected, "{field}");
        }
    }

    #[test]
    fn what_lists_tags_is_taken_off_and_nothing_else() {
        let mut headers = HeaderMap::new();
        for name in ["cache-tag", "surrogate-key", "xkey", "x-other"] {
            headers.append(name, HeaderValue::from_static("a"));
            headers.append(name, HeaderValue::from_static("b"));
        }

        strip(&mut headers);

        assert_eq!(headers.len(), 2);
        assert!(headers.contains_key("x-other"));
    }

    #[test]
    fn a_key_a_name_and_a_uri_are_different_tags() {
        let uri = Uri::from_static("http://a/b");
        let resource = Key::new(b"http://a/b");
        let [path, exact, key] = implied(&uri, &HeaderMap::new(), &resource);
        let all = [path, exact, key, named("http://a/b")];

        for (at, tag) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(tag));
        }
    }

    #[test]
    fn tags_are_kept_once_and_in_a_bounded_number() {
        let many: Vec<_> = (0..MOST).map(|at| named(&at.to_string())).collect();

        assert_eq!(together(&many, &many).unwrap().len(), MOST);
        assert_eq!(together(&many, &[named("one more")]), Err(TooMany));
    }
}
