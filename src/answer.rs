//! Responses made of what the cache has.

use std::fmt;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode, header, request, response::Parts,
};
use tokio::time::Instant;

use crate::{
    body::Body,
    entry::Entry,
    flight::{Failure, Presence, Stream},
    http::{
        conditional::{self, Outcome as Condition},
        range::{self, Selection},
    },
    status::{self, End, Forward, Outcome},
};

/// What a request asks of the response that answers it: all of it, a part, or only news.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
}

impl fmt::Debug for Wanted<'_> {
    /// The fields of a request may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted")
            .field("method", self.method)
            .finish_non_exhaustive()
    }
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(request: &'a request::Parts) -> Self {
        Self {
            method: &request.method,
            headers: &request.headers,
        }
    }

    fn is_unchanged(self, status: StatusCode, headers: &HeaderMap) -> bool {
        conditional::evaluate(self.headers, (status, headers)) == Condition::NotModified
    }
}

/// A hit: `entry` as it is now.
pub(crate) fn hit<B>(entry: &Entry, wanted: Wanted<'_>, now: Instant) -> Response<Body<B>> {
    from_entry(entry, wanted, now, Outcome::hit(entry.ttl(now)))
}

/// A stale entry in place of a response that did not come, or was an error.
pub(crate) fn stood_in<B>(
    entry: &Entry,
    wanted: Wanted<'_>,
    outcome: impl FnOnce(i64) -> Outcome,
) -> Response<Body<B>> {
    let now = Instant::now();
    from_entry(entry, wanted, now, outcome(entry.ttl(now)))
}

/// `entry` as a request wants it, with `Age` and `Cache-Status`.
pub(crate) fn from_entry<B>(
    entry: &Entry,
    wanted: Wanted<'_>,
    now: Instant,
    outcome: Outcome,
) -> Response<Body<B>> {
    let mut headers = entry.template.clone();
    if let Some(place) = headers.get_mut(header::AGE) {
        *place = seconds(entry.age(now));
    }
    match headers.get_mut(status::FIELD) {
        Some(place) if place.is_empty() => *place = outcome.into(),
        _ => outcome.write(&mut headers),
    }
    let mut status = entry.head.status;
    let whole = (entry.body.clone(), entry.trailers.clone());
    let body = form(&mut status, &mut headers, whole, wanted);
    response(status, headers, body)
}

/// The fields of an entry, with places for those that each answer has of its own.
pub(crate) fn template(stored: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(stored.len() + 2);
    headers.extend(stored.clone());
    headers.insert(header::AGE, HeaderValue::from_static(""));
    headers
        .entry(status::FIELD)
        .or_insert(HeaderValue::from_static(""));
    headers
}

/// As `HeaderValue::from(u64)`, which allocates twice, but once, and not at all for a digit.
fn seconds(value: u64) -> HeaderValue {
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let digit = usize::try_from(value)
        .ok()
        .and_then(|value| DIGITS.get(value));
    if let Some(digit) = digit {
        return HeaderValue::from_static(digit);
    }
    let mut digits = itoa::Buffer::new();
    HeaderValue::from_str(digits.format(value)).expect("digits are a field value")
}

/// A response that has just been built, as the request that started the build wants it.
pub(crate) fn complete<B>(
    mut parts: Parts,
    whole: (Bytes, Option<HeaderMap>),
    wanted: Wanted<'_>,
) -> Response<Body<B>> {
    let body = form(&mut parts.status, &mut parts.headers, whole, wanted);
    Response::from_parts(parts, body)
}

/// The body, unless it answers a HEAD, which has none whatever it was built as.
pub(crate) fn bodied<B>(wanted: Wanted<'_>, body: Body<B>) -> Body<B> {
    if *wanted.method == Method::HEAD {
        Body::empty()
    } else {
        body
    }
}

/// A response whose body is still to come: all of it, or none if the request has it already.
pub(crate) fn opening<B>(mut parts: Parts, body: Body<B>, wanted: Wanted<'_>) -> Response<Body<B>> {
    if !wanted.is_unchanged(parts.status, &parts.headers) {
        return Response::from_parts(parts, bodied(wanted, body));
    }
    parts.status = StatusCode::NOT_MODIFIED;
    conditional::into_not_modified(&mut parts.headers);
    Response::from_parts(parts, Body::empty())
}

/// Turns a complete response into what is wanted of it.
fn form<B>(
    status: &mut StatusCode,
    headers: &mut HeaderMap,
    (body, trailers): (Bytes, Option<HeaderMap>),
    wanted: Wanted<'_>,
) -> Body<B> {
    if wanted.is_unchanged(*status, headers) {
        *status = StatusCode::NOT_MODIFIED;
        conditional::into_not_modified(headers);
        return Body::empty();
    }
    if *wanted.method == Method::HEAD {
        // RFC 9110 section 9.3.2: the length that GET would have had.
        if !body.is_empty() && trailers.is_none() {
            let length = || body.len().into();
            headers.entry(header::CONTENT_LENGTH).or_insert_with(length);
        }
        return Body::empty();
    }
    if *status == StatusCode::OK && wanted.headers.contains_key(header::RANGE) {
        return part(status, headers, (body, trailers), wanted);
    }
    Body::full(body, trailers)
}

/// Turns a stored 200 into the part that a GET asks for (RFC 9110 section 14).
fn part<B>(
    status: &mut StatusCode,
    headers: &mut HeaderMap,
    (body, trailers): (Bytes, Option<HeaderMap>),
    wanted: Wanted<'_>,
) -> Body<B> {
    match range::select(wanted.headers, headers, body.len()) {
        Selection::Full => Body::full(body, trailers),
        Selection::Partial(range) => {
            *status = StatusCode::PARTIAL_CONTENT;
            range::into_partial(headers, &range, body.len());
            Body::full(body.slice(range), None)
        }
        Selection::Multipart(ranges) => {
            *status = StatusCode::PARTIAL_CONTENT;
            let boundary = format!("{:032x}", fastrand::u128(..));
            let parts = range::into_multipart(headers, &body, &ranges, &boundary);
            Body::full(parts, None)
        }
        Selection::Unsatisfiable => {
            *status = StatusCode::RANGE_NOT_SATISFIABLE;
            conditional::into_not_modified(headers);
            headers.insert(header::CONTENT_RANGE, range::unsatisfied(body.len()));
            headers.insert(header::CONTENT_LENGTH, 0.into());
            Body::empty()
        }
    }
}

/// A response that another request's build is still producing.
pub(crate) fn from_stream<B>(
    (stream, presence): (&Stream, Presence),
    wanted: Wanted<'_>,
    outcome: Outcome,
) -> Response<Body<B>> {
    let mut headers = stream.head.headers.clone();
    if stream.head.age > 0 {
        headers.insert(header::AGE, stream.head.age.into());
    }
    outcome.write(&mut headers);
    if wanted.is_unchanged(stream.head.status, &headers) {
        conditional::into_not_modified(&mut headers);
        return response(StatusCode::NOT_MODIFIED, headers, Body::empty());
    }
    let body = Body::shared(stream.body.reader(), stream.hint, presence);
    let body = bodied(wanted, body);
    response(stream.head.status, headers, body)
}

/// A failure that is shared with a request that did not start the build.
pub(crate) fn failed<B>(
    failure: &Failure,
    wanted: Wanted<'_>,
    reason: Forward,
) -> Response<Body<B>> {
    let outcome = Outcome::forward(reason, End::Collapsed).because("failed");
    match failure {
        Failure::Response(entry) => from_entry(entry, wanted, Instant::now(), outcome),
        Failure::Status(status) => plain(*status, wanted, outcome),
        Failure::Stale(entry) => stood_in(entry, wanted, |ttl| {
            let end = End::CollapsedStoodIn { ttl };
            Outcome::forward(reason, end).because("stale-if-error")
        }),
    }
}

/// A refusal of ours: the build or the wait took too long.
pub(crate) fn unavailable<B>(
    detail: &'static str,
    wanted: Wanted<'_>,
    reason: Forward,
) -> Response<Body<B>> {
    let outcome = Outcome::forward(reason, End::Unstored).because(detail);
    plain(StatusCode::SERVICE_UNAVAILABLE, wanted, outcome)
}

/// The request wants an entry or nothing, and there is no entry it takes (RFC 9111 section 5.2.1.7).
pub(crate) fn only_if_cached<B>(wanted: Wanted<'_>) -> Response<Body<B>> {
    let outcome = Outcome::refused("only-if-cached");
    plain(StatusCode::GATEWAY_TIMEOUT, wanted, outcome)
}

fn plain<B>(status: StatusCode, wanted: Wanted<'_>, outcome: Outcome) -> Response<Body<B>> {
    let mut headers = HeaderMap::new();
    let text = status.canonical_reason().unwrap_or_default();
    let plain_text = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, plain_text);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    outcome.write(&mut headers);
    let body = Body::full(Bytes::from_static(text.as_bytes()), None);
    response(status, headers, bodied(wanted, body))
}

fn response<B>(status: StatusCode, headers: HeaderMap, body: Body<B>) -> Response<Body<B>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
