use http::{HeaderName, HeaderValue};

use super::*;

fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
    lines
        .iter()
        .map(|(name, line)| (name.clone(), HeaderValue::from_str(line).unwrap()))
        .collect()
}

fn affected(target: &str, host: &str, response: &[(HeaderName, &str)]) -> Vec<String> {
    let target = target.parse().unwrap();
    let request = headers(&[(HOST, host)]);
    let uris = invalidated(
        (&Method::POST, &target, &request),
        (StatusCode::OK, &headers(response)),
    );
    uris.iter().map(Uri::to_string).collect()
}

fn by_location(location: &str) -> Option<String> {
    let found = affected("/a/b?c=d", "shop.example", &[(LOCATION, location)]);
    assert_eq!(found[0], "/a/b?c=d");
    found.get(1).cloned()
}

#[test]
fn a_success_of_an_unsafe_method_invalidates_its_target() {
    let target = Uri::from_static("/a");
    let none = HeaderMap::new();
    for (method, status, expected) in [
        ("POST", 200, true),
        ("PUT", 204, true),
        ("PATCH", 303, true),
        ("DELETE", 200, true),
        ("M-SEARCH", 200, true),
        ("POST", 400, false),
        ("POST", 500, false),
        ("DELETE", 404, false),
        ("GET", 200, false),
        ("HEAD", 200, false),
        ("OPTIONS", 200, false),
        ("TRACE", 200, false),
        ("PROPFIND", 200, false),
        ("QUERY", 200, false),
        ("CONNECT", 200, false),
    ] {
        let method_of = Method::from_bytes(method.as_bytes()).unwrap();
        let status_of = StatusCode::from_u16(status).unwrap();
        let uris = invalidated((&method_of, &target, &none), (status_of, &none));

        assert_eq!(!uris.is_empty(), expected, "{method} {status}");
    }
}

#[test]
fn a_location_is_resolved_against_the_target() {
    for (location, expected) in [
        ("/x", Some("/x")),
        ("/x?y=z#f", Some("/x?y=z")),
        ("x", Some("/a/x")),
        ("./x", Some("/a/x")),
        ("../x", Some("/x")),
        ("../../../x", Some("/x")),
        ("x/..", Some("/a/")),
        ("/x/./y/../z", Some("/x/z")),
        ("?q", Some("/a/b?q")),
        ("", None),
        ("#f", None),
        ("/a/b?c=d", None),
        ("http://shop.example/x", Some("/x")),
        ("https://SHOP.example:443/x", Some("/x")),
        ("http://shop.example:80", Some("/")),
        ("//shop.example/x", Some("/x")),
        ("http://shop.example?q", Some("/?q")),
        ("http://shop.example:8080/x", None),
        ("http://other.example/x", None),
        ("//other.example/x", None),
        ("http://user@shop.example/x", None),
        ("ftp://shop.example/x", None),
        ("mailto:a@shop.example", None),
        ("/x y", None),
        (
            "/x?u=http://other.example/",
            Some("/x?u=http://other.example/"),
        ),
    ] {
        assert_eq!(by_location(location).as_deref(), expected, "{location}");
    }
}

#[test]
fn both_location_fields_count_once_each() {
    let both = [(LOCATION, "/x"), (CONTENT_LOCATION, "/y")];
    let same = [(LOCATION, "/x"), (CONTENT_LOCATION, "/x")];

    assert_eq!(affected("/a", "shop.example", &both), ["/a", "/x", "/y"]);
    assert_eq!(affected("/a", "shop.example", &same), ["/a", "/x"]);
}

#[test]
fn the_authority_of_the_target_is_kept() {
    let location = [(LOCATION, "https://shop.example/x")];
    let found = affected("https://shop.example/a", "", &location);
    assert_eq!(found, ["https://shop.example/a", "https://shop.example/x"]);

    let location = [(LOCATION, "http://127.0.0.1:8080/x")];
    assert_eq!(affected("/a", "127.0.0.1:8080", &location), ["/a", "/x"]);
    assert_eq!(affected("/a", "127.0.0.1:8081", &location), ["/a"]);
}
