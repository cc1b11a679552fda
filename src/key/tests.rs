use http::{HeaderName, HeaderValue, Request, request::Parts};
use proptest::prelude::*;

use super::*;
use crate::survey::Survey;

fn parts(request: &Request<()>) -> Parts {
    request.clone().into_parts().0
}

fn write(rules: &KeyRules, request: &Request<()>) -> Result<Vec<u8>, Unkeyable> {
    let mut bytes = Vec::new();
    let survey = Survey::of(request.headers());
    rules
        .write(&parts(request), &survey, &mut bytes)
        .map(|_keyed| bytes)
}

fn request(uri: &str, headers: &[(&str, &[u8])]) -> Request<()> {
    let mut request = Request::get(uri);
    for (name, value) in headers {
        request = request.header(*name, HeaderValue::from_bytes(value).unwrap());
    }
    request.body(()).unwrap()
}

fn default_key(uri: &str) -> Vec<u8> {
    write(&KeyRules::default(), &request(uri, &[])).unwrap()
}

fn own(values: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![Class::Get as u8];
    let mut writer = KeyWriter { bytes: &mut bytes };
    for value in values {
        writer.part(value);
    }
    bytes
}

#[test]
fn classes_of_use_never_meet() {
    let key = Key::new(&default_key("http://a.example/"));

    let classes = [
        Class::Get,
        Class::Head,
        Class::Look,
        Class::Renewal,
        Class::Early,
        Class::Extra,
        Class::ExtraHead,
    ];
    let mut all: Vec<_> = classes
        .into_iter()
        .map(|class| key.in_class(class).as_bytes().to_vec())
        .collect();
    all.sort();
    all.dedup();

    assert_eq!(all.len(), classes.len());
    assert_eq!(key.in_class(Class::Get), key);
}

#[test]
fn the_scratch_is_cleared_first() {
    let mut bytes = b"something else".to_vec();
    let rules = KeyRules::default();

    let request = request("http://a.example/", &[]);
    let keyed = rules.write(&parts(&request), &Survey::of(request.headers()), &mut bytes);

    assert_eq!(keyed, Ok(Keyed::Yes));

    assert_eq!(bytes, default_key("http://a.example/"));
}

#[test]
fn the_default_port_depends_on_the_scheme_where_it_is_known() {
    assert_eq!(
        default_key("http://a.example:80/"),
        default_key("http://a.example/")
    );
    assert_eq!(
        default_key("https://a.example:443/"),
        default_key("https://a.example/")
    );
    assert_ne!(
        default_key("http://a.example:443/"),
        default_key("http://a.example/")
    );
    assert_ne!(
        default_key("https://a.example:80/"),
        default_key("https://a.example/")
    );
    assert_eq!(
        default_key("http://a.example:/"),
        default_key("http://a.example/")
    );
}

#[test]
fn a_port_that_is_not_the_default_one_to_the_letter_is_another_one() {
    let plain = default_key("http://a.example/");
    for port in ["80", "443", ""] {
        let host = format!("a.example:{port}");
        let named = write(
            &KeyRules::default(),
            &request("/", &[("host", host.as_bytes())]),
        );
        assert_eq!(named, Ok(plain.clone()), "{port}");
    }
    for port in ["+80", "080", "0443", "80 ", "8a", "-80"] {
        let host = format!("a.example:{port}");
        let named = write(
            &KeyRules::default(),
            &request("/", &[("host", host.as_bytes())]),
        );
        assert_ne!(named, Ok(plain.clone()), "{port}");
    }
}

/// RFC 9110 section 4.2.3.
#[test]
fn an_empty_path_is_the_root_and_no_query_is_another_than_an_empty_one() {
    let key = |rest: &str| default_key(&format!("http://a.example{rest}"));

    assert_eq!(key(""), key("/"));
    assert_eq!(key("?a=1"), key("/?a=1"));
    assert_eq!(key("?"), key("/?"));
    assert_ne!(key("/?"), key("/"));
}

#[test]
fn authorities_of_every_kind_are_keyed() {
    for host in [
        "a.example",
        "10.0.0.1",
        "[::1]",
        "[2001:db8::1]:8080",
        "a_b.example",
        "localhost:3000",
    ] {
        let target = request("/", &[("host", host.as_bytes())]);
        let named = write(&KeyRules::default(), &target).unwrap();
        assert_eq!(named, default_key(&format!("http://{host}/")), "{host}");
    }
}

#[test]
fn hosts_that_are_none_are_not_keyed() {
    for host in [
        &b"a b"[..],
        b"user@a.example",
        b"a/b",
        b"a\xff",
        b"a,b",
        b"",
    ] {
        let target = request("/", &[("host", host)]);
        assert_eq!(
            write(&KeyRules::default(), &target),
            Err(Unkeyable::Authority),
            "{host:?}"
        );
    }
}

#[test]
fn a_key_in_a_log_shows_nothing_of_what_it_holds() {
    let key = Key::new(&default_key("http://a.example/?token=SECRET"));

    let shown = format!("{key:?}");

    assert!(
        !shown.contains("SECRET") && !shown.contains("example"),
        "{shown}"
    );
    assert_eq!(shown, format!("Key({})", key.digest()));
}

#[test]
fn a_variant_is_no_other_resource() {
    let key = Key::new(&own(&[b"a".to_vec()]));

    assert_ne!(key.variant(b"de"), key.variant(b"fr"));
    assert_ne!(key.variant(b""), key);
    assert_ne!(
        key.variant(b"a"),
        Key::new(&own(&[b"a".to_vec(), b"a".to_vec()]))
    );
}

#[test]
fn cookies_are_found_by_their_names() {
    let request = request(
        "/",
        &[("cookie", b"a=1; b = 2;c; ;d=x=y"), ("cookie", b"a=3")],
    );

    let found: Vec<_> = cookies(request.headers())
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .filter(|(name, _)| !name.is_empty())
        .collect();

    let expected = [
        ("a", "=1"),
        ("b", "= 2"),
        ("c", ""),
        ("d", "=x=y"),
        ("a", "=3"),
    ];
    assert_eq!(
        found,
        expected.map(|(name, value)| (name.into(), value.into()))
    );
}

/// What the default key is made of.
type Asked = (String, String, Option<String>, Vec<(u8, Vec<u8>)>);

fn asked() -> impl Strategy<Value = Asked> {
    let host = prop_oneof![Just("a.example".to_owned()), "[a-z]{1,3}\\.example"];
    let path = prop_oneof![
        Just("/".to_owned()),
        "/[a-c%/.;:@-]{0,4}".prop_map(|path| path.replace('%', "%2F"))
    ];
    let query = prop::option::of("[a-c=&%+]{0,5}".prop_map(|query| query.replace('%', "%26")));
    let fields = prop::collection::vec((0_u8..3, prop::collection::vec(b'a'..b'd', 0..3)), 0..4);
    (host, path, query, fields)
}

fn as_request((host, path, query, fields): &Asked) -> Request<()> {
    let query = query
        .as_ref()
        .map_or_else(String::new, |query| format!("?{query}"));
    let mut request = Request::get(format!("http://{host}{path}{query}"));
    for (name, value) in fields {
        request = request.header(
            NAMES[usize::from(*name)],
            HeaderValue::from_bytes(value).unwrap(),
        );
    }
    request.body(()).unwrap()
}

const NAMES: [&str; 3] = ["x-a", "x-b", "x-c"];

/// The same, as far as the keyed fields go.
fn meaning((host, path, query, fields): &Asked) -> impl PartialEq + fmt::Debug {
    let of = |wanted: u8| -> Vec<Vec<u8>> {
        let fields = fields.iter().filter(|(name, _)| *name == wanted);
        fields.map(|(_, value)| value.clone()).collect()
    };
    (host.clone(), path.clone(), query.clone(), of(0), of(1))
}

proptest! {
    #[test]
    fn own_parts_are_injective(
        one in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..5),
        other in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..5),
    ) {
        prop_assert_eq!(own(&one) == own(&other), one == other);
    }

    #[test]
    fn own_parts_of_text_are_injective(
        one in prop::collection::vec(".{0,4}", 0..4),
        other in prop::collection::vec(".{0,4}", 0..4),
    ) {
        let bytes = |parts: &[String]| parts.iter().map(|part| part.clone().into_bytes()).collect::<Vec<_>>();
        prop_assert_eq!(own(&bytes(&one)) == own(&bytes(&other)), one == other);
    }

    /// Splitting the same bytes in another way makes another key.
    #[test]
    fn where_parts_end_matters(bytes in prop::collection::vec(any::<u8>(), 2..20), at in any::<prop::sample::Index>(), other in any::<prop::sample::Index>()) {
        let split = |at: usize| {
            let (first, second) = bytes.split_at(at);
            own(&[first.to_vec(), second.to_vec()])
        };
        let (one, other) = (at.index(bytes.len()), other.index(bytes.len()));
        prop_assert_eq!(split(one) == split(other), one == other);
    }

    #[test]
    fn requests_have_the_same_key_only_if_they_ask_for_the_same(one in asked(), other in asked()) {
        let rules = KeyRules {
            headers: vec![HeaderName::from_static("x-a"), HeaderName::from_static("x-b")],
            ..KeyRules::default()
        };
        let (first, second) = (write(&rules, &as_request(&one)), write(&rules, &as_request(&other)));

        prop_assert_eq!(first == second, meaning(&one) == meaning(&other));
    }

    #[test]
    fn a_key_is_longer_than_its_limit_only_if_it_bypasses(length in 8_000_usize..8_300) {
        let uri = format!("http://a.example/{}", "x".repeat(length));
        match write(&KeyRules::default(), &request(&uri, &[])) {
            Ok(key) => prop_assert!(key.len() <= 8 * 1024),
            Err(reason) => prop_assert_eq!(reason, Unkeyable::TooLong),
        }
    }
}
