//! What an unsafe request invalidates (RFC 9111 section 4.4).

use std::borrow::Cow;

use http::{
    HeaderMap, Method, StatusCode, Uri,
    header::{CONTENT_LOCATION, HOST, LOCATION},
    uri::{Authority, PathAndQuery},
};

/// The URIs whose entries a response invalidates: the target, and its `Location` and
/// `Content-Location` where they have the target's origin. None if the method is safe or the
/// response is an error.
///
/// A `target` without an authority takes it from `Host`; the URIs are then without one too.
pub(crate) fn invalidated(
    (method, target, request): (&Method, &Uri, &HeaderMap),
    (status, response): (StatusCode, &HeaderMap),
) -> Vec<Uri> {
    let succeeded = status.is_success() || status.is_redirection();
    if leaves_entries_alone(method) || !succeeded {
        return Vec::new();
    }
    let mut uris = vec![target.clone()];
    for name in [LOCATION, CONTENT_LOCATION] {
        let named = response
            .get(name)
            .and_then(|value| value.to_str().ok())
            .and_then(|reference| resolve(target, request, reference))
            .filter(|uri| !uris.contains(uri));
        uris.extend(named);
    }
    uris
}

/// Methods registered as safe, and CONNECT, which asks for a tunnel and says nothing to the resource;
/// any other one may change something.
pub(crate) fn leaves_entries_alone(method: &Method) -> bool {
    matches!(
        method.as_str(),
        "GET"
            | "HEAD"
            | "OPTIONS"
            | "TRACE"
            | "PROPFIND"
            | "REPORT"
            | "SEARCH"
            | "QUERY"
            | "PRI"
            | "CONNECT"
    )
}

/// Resolves a reference against the target (RFC 3986 section 5.2), if it stays on its origin.
fn resolve(target: &Uri, request: &HeaderMap, reference: &str) -> Option<Uri> {
    let reference = reference.split('#').next().unwrap_or_default();
    let path_and_query = match split_origin(reference) {
        Some((scheme, authority, rest)) => {
            let scheme = scheme.or_else(|| target.scheme_str());
            if !is_own_origin(target, request, authority, scheme) {
                return None;
            }
            Cow::Owned(format!("/{}", rest.strip_prefix('/').unwrap_or(rest)))
        }
        None if has_scheme(reference) => return None,
        None => Cow::Borrowed(reference),
    };
    let merged = merge(target, &path_and_query);
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(merged).ok()?);
    Uri::from_parts(parts).ok()
}

/// Splits `scheme://authority` or `//authority` from what follows.
fn split_origin(reference: &str) -> Option<(Option<&str>, &str, &str)> {
    let (scheme, rest) = if let Some(rest) = reference.strip_prefix("//") {
        (None, rest)
    } else {
        let (scheme, rest) = reference.split_once("://")?;
        (!scheme.contains(['/', '?'])).then_some((Some(scheme), rest))?
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at_checked(end)?;
    Some((scheme, authority, rest))
}

fn has_scheme(reference: &str) -> bool {
    let path = reference.split(['/', '?']).next().unwrap_or_default();
    path.contains(':')
}

/// Whether an authority is the target's, default ports aside. A server behind a terminator of TLS
/// does not know its own scheme: both of HTTP's count.
fn is_own_origin(target: &Uri, request: &HeaderMap, other: &str, scheme: Option<&str>) -> bool {
    let known = scheme.is_none_or(|scheme| {
        scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
    });
    let own = match target.authority() {
        Some(authority) => Some(authority.clone()),
        None => request
            .get(HOST)
            .and_then(|host| Authority::try_from(host.as_bytes()).ok()),
    };
    let Some((own, other)) = own.zip(Authority::try_from(other).ok()) else {
        return false;
    };
    known
        && !other.as_str().contains('@')
        && own.host().eq_ignore_ascii_case(other.host())
        && port(&own, target.scheme_str()) == port(&other, scheme)
}

/// The port, unless it is the scheme's own, or either's where there is no scheme.
fn port(authority: &Authority, scheme: Option<&str>) -> Option<u16> {
    let is = |name: &str| scheme.is_none_or(|scheme| scheme.eq_ignore_ascii_case(name));
    authority.port_u16().filter(|port| match port {
        80 => !is("http"),
        443 => !is("https"),
        _ => true,
    })
}

/// The path and query that a reference without an origin leads to.
fn merge(target: &Uri, reference: &str) -> String {
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, None),
    };
    let base = target.path();
    let (path, query) = match (path, query) {
        ("", None) => (base.to_owned(), target.query()),
        ("", query) => (base.to_owned(), query),
        (path, query) if path.starts_with('/') => (without_dots(path), query),
        (path, query) => {
            let folder = base.rsplit_once('/').map_or("", |(folder, _)| folder);
            (without_dots(&format!("{folder}/{path}")), query)
        }
    };
    query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"))
}

/// Removes dot segments (RFC 3986 section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => {
                kept.push(segment);
                continue;
            }
        }
        if is_last {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests;
