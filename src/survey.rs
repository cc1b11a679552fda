//! [`Survey`]: what the way of a hit needs to know of a request's fields, learnt in one pass.
//!
//! Most requests have none of the fields that decide whether, and in what form, an entry answers
//! them. A hit then looks for none of them.

use http::{HeaderMap, HeaderName, header};

use crate::key::{Host, is_forwarding};

/// What there is among a request's fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survey<'a> {
    pub(crate) special: Special,
    /// The fields, if some of them say what a proxy was asked for.
    pub(crate) forwarding: Option<&'a HeaderMap>,
    pub(crate) host: Host<'a>,
}

/// Whether a request has any of the fields that decide whether, and in what form, an entry answers
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Absent,
    Present,
}

/// Whatever else of a request's fields is looked for on the way of a hit belongs here too. (As a
/// chain, since the compiler makes one bit test of it; an array it searches.)
fn is_special(name: &HeaderName) -> bool {
    *name == header::AUTHORIZATION
        || *name == header::CACHE_CONTROL
        || *name == header::COOKIE
        || *name == header::IF_MATCH
        || *name == header::IF_MODIFIED_SINCE
        || *name == header::IF_NONE_MATCH
        || *name == header::IF_RANGE
        || *name == header::IF_UNMODIFIED_SINCE
        || *name == header::PRAGMA
        || *name == header::RANGE
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
}

impl<'a> Survey<'a> {
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        let mut survey = Self {
            special: Special::Absent,
            forwarding: None,
            host: Host::Absent,
        };
        for name in headers.keys() {
            if *name == header::HOST {
                survey.host = Host::among(headers);
            } else if is_special(name) {
                survey.special = Special::Present;
            } else if is_forwarding(name) {
                survey.forwarding = Some(headers);
            }
        }
        survey
    }
}

impl Special {
    /// The fields, if there are special ones among them.
    pub(crate) fn among(self, headers: &HeaderMap) -> Option<&HeaderMap> {
        (self == Self::Present).then_some(headers)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// What a browser sends along.
    fn usual() -> HeaderMap {
        [
            "host",
            "accept",
            "accept-encoding",
            "accept-language",
            "connection",
            "priority",
            "referer",
            "user-agent",
            "x-forwarded-for",
            "x-request-id",
        ]
        .map(|name| (HeaderName::from_static(name), value("a.example")))
        .into_iter()
        .collect()
    }

    fn value(text: &'static str) -> HeaderValue {
        HeaderValue::from_static(text)
    }

    #[test]
    fn a_request_without_special_fields_is_searched_for_none() {
        let headers = usual();

        let survey = Survey::of(&headers);

        assert_eq!(survey.special, Special::Absent);
        assert!(survey.special.among(&headers).is_none());
        assert!(survey.forwarding.is_none());
    }

    #[test]
    fn each_special_field_is_seen() {
        for name in [
            header::AUTHORIZATION,
            header::CACHE_CONTROL,
            header::COOKIE,
            header::IF_MATCH,
            header::IF_MODIFIED_SINCE,
            header::IF_NONE_MATCH,
            header::IF_RANGE,
            header::IF_UNMODIFIED_SINCE,
            header::PRAGMA,
            header::RANGE,
            header::TRANSFER_ENCODING,
            header::UPGRADE,
        ] {
            let mut headers = usual();
            headers.insert(&name, value("x"));

            let special = Survey::of(&headers).special;

            assert_eq!(special, Special::Present, "{name}");
            assert_eq!(special.among(&headers), Some(&headers));
        }
    }

    #[test]
    fn each_field_of_a_proxy_is_seen() {
        for name in ["forwarded", "x-forwarded-host", "x-forwarded-proto"] {
            let mut headers = usual();
            headers.insert(name, value("x"));

            let survey = Survey::of(&headers);

            assert!(survey.forwarding.is_some(), "{name}");
            assert_eq!(survey.special, Special::Absent);
        }
    }

    #[test]
    fn the_host_is_found_and_two_are_too_many() {
        let mut headers = usual();
        let one = headers.clone();
        headers.append(header::ACCEPT, value("*/*"));
        let one_beside_two_of_another = headers.clone();
        headers.append(header::HOST, value("b.example"));
        let two = headers.clone();
        headers.remove(header::HOST);
        let mut last = headers.clone();
        last.insert(header::HOST, value("a.example"));

        let host = |headers| Survey::of(headers).host;

        for headers in [&one, &one_beside_two_of_another, &last] {
            assert_eq!(host(headers), Host::One(&value("a.example")));
        }
        assert_eq!(host(&two), Host::Many);
        assert_eq!(host(&headers), Host::Absent);
    }
}
