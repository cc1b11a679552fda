//! What proxies say of the authority and the scheme that a client asked for.
//!
//! Handlers build links with it, and so does axum-extra with its `Host` and `Scheme`. A client that
//! makes it up must not be able to have others see it, so it is in the key, byte for byte. Whoever
//! makes up many keys this way could have done so with the query.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::part::{Tag, part};

const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whether proxies say it in this field.
#[inline]
pub(crate) fn is_forwarding(name: &HeaderName) -> bool {
    *name == header::FORWARDED || *name == X_FORWARDED_HOST || *name == X_FORWARDED_PROTO
}

pub(super) fn write(headers: &HeaderMap, bytes: &mut Vec<u8>) {
    for host in headers.get_all(X_FORWARDED_HOST) {
        part(bytes, Tag::ForwardedHost, host.as_bytes());
    }
    for scheme in headers.get_all(X_FORWARDED_PROTO) {
        part(bytes, Tag::ForwardedScheme, scheme.as_bytes());
    }
    write_forwarded(headers, bytes);
}

/// Writes what `Forwarded` says of them, and in which of its elements (RFC 7239 section 4). The
/// addresses of clients and proxies, which it says beside, are in no key.
fn write_forwarded(headers: &HeaderMap, bytes: &mut Vec<u8>) {
    let elements = || {
        let lines = headers.get_all(header::FORWARDED).iter();
        let lines = lines.map(HeaderValue::as_bytes);
        lines.flat_map(|line| line.split(|byte| *byte == b','))
    };
    if !elements().any(|element| told(element).next().is_some()) {
        return;
    }
    for element in elements() {
        part(bytes, Tag::Forwarded, b"");
        told(element).for_each(|pair| part(bytes, Tag::ForwardedPair, pair));
    }
}

/// The pairs of an element that name the host or the scheme.
fn told(element: &[u8]) -> impl Iterator<Item = &[u8]> {
    let pairs = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    pairs.filter(|pair| {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        let name = name.trim_ascii();
        name.eq_ignore_ascii_case(b"host") || name.eq_ignore_ascii_case(b"proto")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(lines: &[(HeaderName, &str)]) -> Vec<u8> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let mut bytes = Vec::new();
        write(&headers, &mut bytes);
        bytes
    }

    fn forwarded(line: &str) -> Vec<u8> {
        written(&[(header::FORWARDED, line)])
    }

    #[test]
    fn addresses_alone_are_in_no_key() {
        assert_eq!(forwarded("for=10.0.0.1, for=\"[::1]\";by=x"), b"");
        assert_eq!(
            forwarded("for=10.0.0.1;host=a.example"),
            forwarded("for=10.0.0.2; host=a.example")
        );
    }

    #[test]
    fn it_matters_which_proxy_said_it() {
        let all = [
            "host=a;proto=http",
            "host=a, proto=http",
            "for=x, host=a;proto=http",
            "host=a;proto=http, for=x",
            "proto=http;host=a",
            "Host=a;proto=http",
        ];

        for (index, one) in all.iter().enumerate() {
            for other in all.iter().skip(index + 1) {
                assert_ne!(forwarded(one), forwarded(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn each_field_has_its_own_place() {
        let [one, other, third] = [header::FORWARDED, X_FORWARDED_HOST, X_FORWARDED_PROTO]
            .map(|name| written(&[(name, "host=a")]));

        assert!(one != other && other != third && one != third);
    }

    proptest! {
        /// Two values make one key only if whoever reads hosts and schemes, of any element, reads
        /// the same.
        #[test]
        fn what_is_read_differently_has_another_key(
            one in "((for|host|proto)=[ab]?[,; ]{1,2}){0,4}",
            other in "((for|host|proto)=[ab]?[,; ]{1,2}){0,4}",
        ) {
            let read = |line: &str| -> Vec<Vec<String>> {
                let of = |element: &str| {
                    let pairs = element.split(';').map(str::trim);
                    pairs.filter(|pair| pair.starts_with("host=") || pair.starts_with("proto=")).map(str::to_owned).collect()
                };
                line.split(',').map(of).collect()
            };
            let says = |elements: &[Vec<String>]| elements.iter().any(|element| !element.is_empty());
            let (first, second) = (read(&one), read(&other));
            let alike = first == second || !says(&first) && !says(&second);

            prop_assert_eq!(forwarded(&one) == forwarded(&other), alike);
        }
    }
}
