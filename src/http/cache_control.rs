//! `Cache-Control` (RFC 9111 section 5.2), read to the safe side.
//!
//! What restricts reuse counts even when it is malformed; what widens reuse counts only when it is
//! well formed. A freshness directive that is invalid, or given twice with different values, means
//! a response that is already stale (RFC 9111 section 4.2.1).

use std::{borrow::Cow, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CACHE_CONTROL, PRAGMA},
};

/// The greatest delta-seconds we distinguish (RFC 9111 section 1.2.2): 68 years.
pub(crate) const MAX_DELTA: Duration = Duration::from_secs(1 << 31);

/// The directives of one response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Directives {
    pub(crate) max_age: Delta,
    pub(crate) s_maxage: Delta,
    pub(crate) stale_while_revalidate: Delta,
    pub(crate) stale_if_error: Delta,
    pub(crate) no_cache: Scope,
    pub(crate) private: Scope,
    flags: Flags,
}

/// A directive that takes seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Delta {
    #[default]
    Absent,
    Seconds(Duration),
    /// Malformed, negative, or given twice with different values.
    Invalid,
}

/// What `no-cache` or `private` covers (RFC 9111 sections 5.2.2.4 and 5.2.2.7).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    #[default]
    Absent,
    /// The whole response: the directive without field names, or with unreadable ones.
    All,
    /// The named fields alone.
    Fields(Vec<HeaderName>),
}

/// A response directive without an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    NoStore = 1,
    Public = 2,
    MustRevalidate = 4,
    ProxyRevalidate = 8,
    MustUnderstand = 16,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Flags(u8);

/// The directives of one request (RFC 9111 section 5.2.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RequestDirectives {
    pub(crate) max_age: Option<Duration>,
    pub(crate) max_stale: Option<Duration>,
    pub(crate) min_fresh: Option<Duration>,
    flags: Flags,
}

/// A request directive without an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFlag {
    NoCache = 1,
    NoStore = 2,
    OnlyIfCached = 4,
}

impl Directives {
    /// Reads every line of `Cache-Control`.
    ///
    /// `Pragma` in a response has no specified meaning and is not looked at (RFC 9111 section 5.4).
    pub(crate) fn of_response(headers: &HeaderMap) -> Self {
        let mut directives = Self::default();
        for directive in headers.get_all(CACHE_CONTROL).iter().flat_map(read) {
            directives.apply(directive.name, &directive.argument);
        }
        directives
    }

    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.flags.has(flag as u8)
    }

    pub(crate) fn set(&mut self, flag: Flag) {
        self.flags.set(flag as u8);
    }

    fn apply(&mut self, name: &[u8], argument: &Argument<'_>) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let bare = matches!(argument, Argument::None);
        if is("max-age") {
            self.max_age.merge(argument);
        } else if is("s-maxage") {
            self.s_maxage.merge(argument);
        } else if is("stale-while-revalidate") {
            self.stale_while_revalidate.merge(argument);
        } else if is("stale-if-error") {
            self.stale_if_error.merge(argument);
        } else if is("no-cache") {
            self.no_cache.merge(argument);
        } else if is("private") {
            self.private.merge(argument);
        } else if is("no-store") {
            self.set(Flag::NoStore);
        } else if is("must-revalidate") {
            self.set(Flag::MustRevalidate);
        } else if is("proxy-revalidate") {
            self.set(Flag::ProxyRevalidate);
        } else if is("public") && bare {
            self.set(Flag::Public);
        } else if is("must-understand") && bare {
            self.set(Flag::MustUnderstand);
        }
    }
}

impl RequestDirectives {
    /// Reads every line of `Cache-Control`; without any, `Pragma: no-cache` counts as `no-cache`.
    ///
    /// Unreadable preferences are dropped, save that an unreadable `max-age` asks for age zero.
    pub(crate) fn of_request(headers: &HeaderMap) -> Self {
        let mut directives = Self::default();
        if !headers.contains_key(CACHE_CONTROL) {
            if headers
                .get_all(PRAGMA)
                .iter()
                .flat_map(read)
                .any(|pragma| pragma.name.eq_ignore_ascii_case(b"no-cache"))
            {
                directives.flags.set(RequestFlag::NoCache as u8);
            }
            return directives;
        }
        for directive in headers.get_all(CACHE_CONTROL).iter().flat_map(read) {
            directives.apply(directive.name, &directive.argument);
        }
        directives
    }

    pub(crate) fn has(&self, flag: RequestFlag) -> bool {
        self.flags.has(flag as u8)
    }

    fn apply(&mut self, name: &[u8], argument: &Argument<'_>) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("max-age") {
            let asked = argument.seconds().unwrap_or_default();
            self.max_age = Some(self.max_age.map_or(asked, |other| other.min(asked)));
        } else if is("max-stale") {
            let any = matches!(argument, Argument::None).then_some(MAX_DELTA);
            if let Some(asked) = any.or_else(|| argument.seconds()) {
                self.max_stale = Some(self.max_stale.map_or(asked, |other| other.min(asked)));
            }
        } else if is("min-fresh") {
            self.min_fresh = self.min_fresh.max(argument.seconds());
        } else if is("no-cache") {
            self.flags.set(RequestFlag::NoCache as u8);
        } else if is("no-store") {
            self.flags.set(RequestFlag::NoStore as u8);
        } else if is("only-if-cached") {
            self.flags.set(RequestFlag::OnlyIfCached as u8);
        }
    }
}

impl Delta {
    /// The directive's seconds: nothing if it is absent, zero if it is invalid.
    pub(crate) fn seconds(self) -> Option<Duration> {
        match self {
            Self::Absent => None,
            Self::Seconds(seconds) => Some(seconds),
            Self::Invalid => Some(Duration::ZERO),
        }
    }

    fn merge(&mut self, argument: &Argument<'_>) {
        let read = argument.seconds().map_or(Self::Invalid, Self::Seconds);
        *self = match *self {
            Self::Absent => read,
            known if known == read => known,
            _ => Self::Invalid,
        };
    }
}

impl Scope {
    /// The named fields; none if the directive is absent or covers everything.
    pub(crate) fn fields(&self) -> &[HeaderName] {
        match self {
            Self::Absent | Self::All => &[],
            Self::Fields(fields) => fields,
        }
    }

    /// Reads a comma-separated list of field names; one unreadable name makes it `All`.
    pub(crate) fn of_list(list: &[u8]) -> Self {
        let names = list
            .split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
            .filter(|name| !name.is_empty())
            .map(HeaderName::from_bytes)
            .collect::<Result<Vec<_>, _>>();
        match names {
            Ok(names) if !names.is_empty() => Self::Fields(names),
            _ => Self::All,
        }
    }

    fn merge(&mut self, argument: &Argument<'_>) {
        let read = match argument {
            Argument::Value(list) => Self::of_list(list),
            Argument::None | Argument::Malformed => Self::All,
        };
        match (&mut *self, read) {
            (Self::Fields(known), Self::Fields(more)) => known.extend(more),
            (Self::All, _) => {}
            (_, read) => *self = read,
        }
    }
}

impl Flags {
    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn set(&mut self, flag: u8) {
        self.0 |= flag;
    }
}

/// Reads delta-seconds (RFC 9111 section 1.2.2): digits alone, however many.
pub(crate) fn delta_seconds(text: &[u8]) -> Option<Duration> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = text.iter().fold(0_u64, |seconds, digit| {
        seconds
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    Some(Duration::from_secs(seconds).min(MAX_DELTA))
}

/// One member of a `Cache-Control` line.
#[derive(Debug)]
struct Directive<'a> {
    name: &'a [u8],
    argument: Argument<'a>,
}

#[derive(Debug)]
enum Argument<'a> {
    None,
    /// A token, or what a quoted string says.
    Value(Cow<'a, [u8]>),
    Malformed,
}

impl Argument<'_> {
    fn seconds(&self) -> Option<Duration> {
        match self {
            Self::Value(text) => delta_seconds(text),
            Self::None | Self::Malformed => None,
        }
    }
}

fn read(line: &HeaderValue) -> impl Iterator<Item = Directive<'_>> {
    Members(line.as_bytes()).filter_map(directive)
}

fn directive(member: &[u8]) -> Option<Directive<'_>> {
    let member = member.trim_ascii();
    let Some(equals) = member.iter().position(|byte| *byte == b'=') else {
        return (!member.is_empty()).then_some(Directive {
            name: member,
            argument: Argument::None,
        });
    };
    let (name, value) = member.split_at(equals);
    let value = value.get(1..).unwrap_or_default();
    let spaced = name.trim_ascii_end() != name || value.trim_ascii_start() != value;
    let argument = if spaced {
        Argument::Malformed
    } else {
        argument(value)
    };
    Some(Directive {
        name: name.trim_ascii_end(),
        argument,
    })
}

fn argument(value: &[u8]) -> Argument<'_> {
    let Some(quoted) = value.strip_prefix(b"\"") else {
        return Argument::Value(Cow::Borrowed(value));
    };
    match closing_quote(quoted) {
        Some(end) if end + 1 == quoted.len() => {
            Argument::Value(unescape(quoted.get(..end).unwrap_or_default()))
        }
        _ => Argument::Malformed,
    }
}

fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let escaped = (*byte == b'\\').then(|| bytes.next()).flatten();
        plain.push(*escaped.unwrap_or(byte));
    }
    Cow::Owned(plain)
}

/// Where the quoted string ends whose text begins here.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(at),
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    None
}

/// Splits at commas outside quoted strings. A quote that is never closed is an ordinary byte, so
/// that no directive after it is lost.
pub(crate) struct Members<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0;
        if rest.is_empty() {
            return None;
        }
        let mut at = 0;
        let mut unclosed = None;
        while let Some(byte) = rest.get(at) {
            match byte {
                b',' => break,
                b'"' if unclosed.is_none() => {
                    match closing_quote(rest.get(at + 1..).unwrap_or_default()) {
                        Some(length) => at += length + 1,
                        None => unclosed = Some(at),
                    }
                }
                _ => {}
            }
            at += 1;
        }
        let (member, more) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        self.0 = more.get(1..).unwrap_or_default();
        Some(member)
    }
}

#[cfg(test)]
mod tests;
