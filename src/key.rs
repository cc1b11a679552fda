//! Canonical keys: what identifies a response.
//!
//! A key is the concatenation of its parts, each with a tag and its length before it, so that two
//! different lists of parts never make the same key. Nothing is decoded or normalised but the
//! authority, whose case and default port mean nothing (RFC 9110 section 4.2.3).
//!
//! The key itself stays in the process: outside, an MD5 digest names it and a SHA-256 proves it.

use std::{borrow::Borrow, fmt, sync::Arc};

use http::{HeaderMap, HeaderName, Uri, header, request::Parts, uri::Authority};
use md5::{Digest as _, Md5};
use sha2::Sha256;

use crate::token::hex;

/// A canonical key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(Arc<[u8]>);

impl Key {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same key in another class of use.
    pub(crate) fn in_class(&self, class: Class) -> Self {
        let mut bytes = self.0.to_vec();
        if let Some(first) = bytes.first_mut() {
            *first = class as u8;
        }
        Self(bytes.into())
    }

    /// The key of one variant of this resource.
    pub(crate) fn variant(&self, values: &[u8]) -> Self {
        let mut bytes = self.0.to_vec();
        push_variant(&mut bytes, values);
        Self(bytes.into())
    }

    /// The 128 bits that name the key outside the process.
    pub(crate) fn digest(&self) -> Digest {
        Digest(Md5::digest(self.as_bytes()).into())
    }

    /// What a stored entry carries to show that it belongs to this key and no other.
    pub(crate) fn proof(&self) -> [u8; 32] {
        Sha256::digest(self.as_bytes()).into()
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Key {
    /// Only the digest: a key may hold a cookie or a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.digest())
    }
}

/// The name of a key, a variant or a tag outside the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 16]);

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Md5::digest(bytes).into())
    }

    /// Reads 32 hex digits.
    pub(crate) fn parse(hex: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        let pairs = hex.chunks_exact(2);
        if hex.len() != 32 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let digits = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The use of a key, its first byte: uses share no entry and no flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// GET, and HEAD answered from a GET's entry.
    Get = b'G' as isize,
    /// HEADs on a cold key, among themselves.
    Head = b'H' as isize,
    /// Ranges on a cold key, which build nothing.
    Look = b'R' as isize,
    /// The one extra build of those whose wait timed out.
    Extra = b'X' as isize,
    /// The same for HEADs.
    ExtraHead = b'Y' as isize,
}

#[derive(Clone, Copy)]
enum Tag {
    Authority = b'a' as isize,
    Path = b'p' as isize,
    Query = b'q' as isize,
    Header = b'h' as isize,
    HeaderValue = b'i' as isize,
    Cookie = b'c' as isize,
    CookieValue = b'd' as isize,
    Own = b'o' as isize,
    Variant = b'v' as isize,
    Forwarded = b'f' as isize,
}

/// Turns the key of a resource into the key of one of its variants.
pub(crate) fn push_variant(key: &mut Vec<u8>, values: &[u8]) {
    part(key, Tag::Variant, values);
}

fn part(bytes: &mut Vec<u8>, tag: Tag, value: &[u8]) {
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    bytes.push(tag as u8);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(value);
}

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
    fn write(&self, query: &str, bytes: &mut Vec<u8>) {
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

/// Writes the parts that a closure adds to a key.
///
/// ```
/// # use std::time::Duration;
/// use tower_stampede::{BufferLayer, Cache, Keyed};
///
/// #[derive(Clone)]
/// struct Tenant(String);
///
/// // Set by an authentication layer outside this one.
/// let layer = BufferLayer::new(Cache::in_memory())
///     .ttl(Duration::from_secs(60))
///     .key_with(|request, key| match request.extensions.get::<Tenant>() {
///         Some(Tenant(name)) => {
///             key.part(name);
///             Keyed::Credentials
///         }
///         None => Keyed::Bypass,
///     });
/// ```
#[derive(Debug)]
pub struct KeyWriter<'a> {
    bytes: &'a mut Vec<u8>,
}

impl KeyWriter<'_> {
    /// Adds one part. The parts are kept apart, whatever bytes they hold.
    pub fn part(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        part(self.bytes, Tag::Own, value.as_ref());
        self
    }
}

/// What a key closure says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Keyed {
    /// The key is complete.
    Yes,
    /// There is no key: neither cache nor coalesce this request.
    Bypass,
    /// The key is complete and holds the identity of the caller, so that `Authorization` and
    /// `Cookie` on the request no longer keep it from being cached.
    Credentials,
}

/// How a route makes its keys.
#[derive(Clone)]
pub(crate) struct KeyRules {
    pub(crate) original_uri: for<'a> fn(&'a Parts) -> Option<&'a Uri>,
    pub(crate) query: QueryKey,
    pub(crate) headers: Vec<HeaderName>,
    pub(crate) cookies: Vec<String>,
    pub(crate) own: Own,
    pub(crate) max_length: usize,
}

pub(crate) type KeyClosure = Arc<dyn Fn(&Parts, &mut KeyWriter<'_>) -> Keyed + Send + Sync>;

/// A route's own part of its keys.
#[derive(Clone)]
pub(crate) enum Own {
    None,
    Adds(KeyClosure),
    Replaces(KeyClosure),
}

impl Default for KeyRules {
    fn default() -> Self {
        Self {
            original_uri,
            query: QueryKey::default(),
            headers: Vec::new(),
            cookies: Vec::new(),
            own: Own::None,
            max_length: 8 * 1024,
        }
    }
}

impl fmt::Debug for KeyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRules")
            .field("query", &self.query)
            .field("headers", &self.headers)
            .field("cookies", &self.cookies)
            .finish_non_exhaustive()
    }
}

/// The URI as the client sent it, where routers have cut a prefix off the one in `parts`.
#[cfg(feature = "axum")]
fn original_uri(parts: &Parts) -> Option<&Uri> {
    parts
        .extensions
        .get::<axum::extract::OriginalUri>()
        .map(|original| &original.0)
}

#[cfg(not(feature = "axum"))]
fn original_uri(_parts: &Parts) -> Option<&Uri> {
    None
}

/// Why a request has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unkeyable {
    Authority,
    TooLong,
    Empty,
    Closure,
}

impl KeyRules {
    /// The URI that the client asked for.
    pub(crate) fn target<'a>(&self, parts: &'a Parts) -> &'a Uri {
        (self.original_uri)(parts).unwrap_or(&parts.uri)
    }

    /// Writes the key of a request into `bytes`, which it clears first.
    pub(crate) fn write(&self, parts: &Parts, bytes: &mut Vec<u8>) -> Result<Keyed, Unkeyable> {
        bytes.clear();
        bytes.push(Class::Get as u8);
        let keyed = match &self.own {
            Own::None => {
                self.write_request(parts, bytes)?;
                Keyed::Yes
            }
            Own::Adds(closure) => {
                self.write_request(parts, bytes)?;
                closure(parts, &mut KeyWriter { bytes })
            }
            Own::Replaces(closure) => closure(parts, &mut KeyWriter { bytes }),
        };
        match bytes.len() {
            _ if keyed == Keyed::Bypass => Err(Unkeyable::Closure),
            1 => Err(Unkeyable::Empty),
            length if length > self.max_length => Err(Unkeyable::TooLong),
            _ => Ok(keyed),
        }
    }

    /// The implicit tag of what this request asks for: its authority and path, whatever the query.
    pub(crate) fn uri_tag(&self, parts: &Parts) -> Digest {
        uri_tag(self.target(parts), &parts.headers)
    }

    fn write_request(&self, parts: &Parts, bytes: &mut Vec<u8>) -> Result<(), Unkeyable> {
        let target = self.target(parts);
        let start = bytes.len();
        write_authority(target, &parts.headers, bytes)?;
        agree(
            target,
            &parts.headers,
            bytes.get(start..).unwrap_or_default(),
        )?;
        write_forwarded(&parts.headers, bytes);
        part(bytes, Tag::Path, target.path().as_bytes());
        if let Some(query) = target.query() {
            self.query.write(query, bytes);
        }
        for name in &self.headers {
            write_header(name, &parts.headers, bytes);
        }
        for name in &self.cookies {
            write_cookie(name, &parts.headers, bytes);
        }
        Ok(())
    }
}

/// The implicit tag of all entries for an authority and a path.
pub(crate) fn uri_tag(uri: &Uri, headers: &HeaderMap) -> Digest {
    let mut bytes = Vec::new();
    if write_authority(uri, headers, &mut bytes).is_err() {
        // An authority that cannot be keyed has no entries either.
        bytes.clear();
    }
    part(&mut bytes, Tag::Path, uri.path().as_bytes());
    Digest::of(&bytes)
}

fn write_authority(uri: &Uri, headers: &HeaderMap, bytes: &mut Vec<u8>) -> Result<(), Unkeyable> {
    if let Some(authority) = uri.authority() {
        return write_host(authority.as_str(), default_ports(uri), bytes);
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(()),
        (Some(host), None) => {
            let host = host.to_str().map_err(|_| Unkeyable::Authority)?;
            write_host(host, &[80, 443], bytes)
        }
        (Some(_), Some(_)) => Err(Unkeyable::Authority),
    }
}

/// Refuses a `Host` that is not the authority of the target: it does not count (RFC 9112 section 3.2.2),
/// but whatever reads it all the same would answer for one host in the name of the other.
fn agree(target: &Uri, headers: &HeaderMap, authority: &[u8]) -> Result<(), Unkeyable> {
    if target.authority().is_none() {
        return Ok(());
    }
    let mut host = Vec::new();
    for line in headers.get_all(header::HOST) {
        let line = line.to_str().map_err(|_| Unkeyable::Authority)?;
        host.clear();
        write_host(line, default_ports(target), &mut host)?;
        if host != authority {
            return Err(Unkeyable::Authority);
        }
    }
    Ok(())
}

fn default_ports(target: &Uri) -> &'static [u16] {
    match target.scheme_str() {
        Some("http") => &[80],
        Some("https") => &[443],
        _ => &[80, 443],
    }
}

fn write_host(host: &str, default_ports: &[u16], bytes: &mut Vec<u8>) -> Result<(), Unkeyable> {
    let (name, port) = match plain_host(host) {
        Some(plain) => plain,
        None if host.contains(['@', ',']) || host.parse::<Authority>().is_err() => {
            return Err(Unkeyable::Authority);
        }
        // A colon of an IPv6 address is no port's.
        None => match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port),
            _ => (host, ""),
        },
    };
    let is_default =
        port.is_empty() || port.parse().is_ok_and(|port| default_ports.contains(&port));
    let start = bytes.len();
    part(
        bytes,
        Tag::Authority,
        if is_default { name } else { host }.as_bytes(),
    );
    if let Some(written) = bytes.get_mut(start + 5..) {
        written.make_ascii_lowercase();
    }
    Ok(())
}

/// The name and the port of `host`, if it is surely a registered name or an IPv4 address with an
/// optional port: the usual case, for which no parser is needed.
fn plain_host(host: &str) -> Option<(&str, &str)> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let length = host.bytes().take_while(is_name).count();
    let (name, rest) = host
        .split_at_checked(length)
        .filter(|(name, _)| !name.is_empty())?;
    let port = if rest.is_empty() {
        rest
    } else {
        rest.strip_prefix(':')?
    };
    port.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some((name, port))
}

/// What a proxy says of the authority and the scheme, which handlers build links with: a client that
/// makes it up must not be able to have others see it.
fn write_forwarded(headers: &HeaderMap, bytes: &mut Vec<u8>) {
    if !headers.keys().any(|name| may_be_forwarding(name.as_str())) {
        return;
    }
    for name in [X_FORWARDED_HOST, X_FORWARDED_PROTO] {
        if headers.contains_key(&name) {
            write_header(&name, headers, bytes);
        }
    }
    let pairs = headers
        .get_all(header::FORWARDED)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| b",;".contains(byte)));
    for pair in pairs.map(<[u8]>::trim_ascii) {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        let name = name.trim_ascii();
        if name.eq_ignore_ascii_case(b"host") || name.eq_ignore_ascii_case(b"proto") {
            part(bytes, Tag::Forwarded, pair);
        }
    }
}

const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// By length alone: cheaper than three look-ups, which are almost always in vain.
fn may_be_forwarding(name: &str) -> bool {
    matches!(name.len(), 9 | 16 | 17)
}

fn write_header(name: &HeaderName, headers: &HeaderMap, bytes: &mut Vec<u8>) {
    part(bytes, Tag::Header, name.as_str().as_bytes());
    for value in headers.get_all(name) {
        part(bytes, Tag::HeaderValue, value.as_bytes());
    }
}

fn write_cookie(name: &str, headers: &HeaderMap, bytes: &mut Vec<u8>) {
    part(bytes, Tag::Cookie, name.as_bytes());
    for (_name, value) in cookies(headers).filter(|(known, _)| *known == name.as_bytes()) {
        part(bytes, Tag::CookieValue, value);
    }
}

/// The cookies of a request, as name and value (RFC 6265 section 4.2.1).
pub(crate) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .map(|pair| {
            let pair = pair.trim_ascii();
            let at = pair.iter().position(|byte| *byte == b'=');
            let (name, value) = at.map_or((pair, &b""[..]), |at| pair.split_at(at));
            (name.trim_ascii(), value)
        })
}

#[cfg(test)]
mod tests;
