//! Responses made of what the cache has.

use std::fmt;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode, header, request, response::Parts,
};
use http_body::SizeHint;
use tokio::time::Instant;

use crate::{
    body::Body,
    entry::{self, Entry, Present},
    flight::{Failure, Presence, Stream},
    http::{
        age,
        conditional::{self, Outcome as Condition},
        range::{self, Selection},
    },
    status::{End, Forward, Outcome},
};

/// What a request asks of the response that answers it: all of it, a part, or only news.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) method: &'a Method,
    /// The fields, if there may be any among them that ask for less than all.
    pub(crate) special: Option<&'a HeaderMap>,
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
    /// Whether it is surely all of the response.
    #[inline]
    pub(crate) fn is_whole(self) -> bool {
        *self.method == Method::GET && self.special.is_none()
    }

    pub(crate) fn of(request: &'a request::Parts) -> Self {
        Self {
            method: &request.method,
            special: Some(&request.headers),
        }
    }

    fn is_unchanged(self, status: StatusCode, headers: &HeaderMap) -> bool {
        self.special.is_some_and(|special| {
            conditional::evaluate(special, (status, headers)) == Condition::NotModified
        })
    }
}

/// A hit.
pub(crate) fn hit<B>(present: &Present, wanted: Wanted<'_>) -> Response<Body<B>> {
    complete(present.head.clone(), whole_of(&present.entry), wanted)
}

/// A hit for a request that wants all of it.
#[inline]
pub(crate) fn whole<B>(present: &Present) -> Response<Body<B>> {
    Response::from_parts(present.head.clone(), Body::of(&present.entry))
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
    complete(entry::head(entry, now, outcome), whole_of(entry), wanted)
}

fn whole_of(entry: &Entry) -> (Bytes, Option<HeaderMap>) {
    (entry.body.clone(), entry.trailers.clone())
}

/// A complete response, as a request wants it.
pub(crate) fn complete<B>(
    mut parts: Parts,
    whole: (Bytes, Option<HeaderMap>),
    wanted: Wanted<'_>,
) -> Response<Body<B>> {
    let body = form(&mut parts.status, &mut parts.headers, whole, wanted);
    Response::from_parts(parts, body)
}

/// The body, unless it answers a HEAD, which has none whatever it was built as: then the length that
/// GET would have had is stated, if it is known (RFC 9110 section 9.3.2).
pub(crate) fn bodied<B>(
    wanted: Wanted<'_>,
    headers: &mut HeaderMap,
    (body, hint): (Body<B>, &SizeHint),
) -> Body<B> {
    if *wanted.method != Method::HEAD {
        return body;
    }
    withheld(headers, hint.exact())
}

/// No body, to a HEAD, in place of one of this length, if that is known.
fn withheld<B>(headers: &mut HeaderMap, length: Option<u64>) -> Body<B> {
    let Some(length) = length else {
        return Body::withheld();
    };
    // What was built for a HEAD may be empty although the response to GET is not.
    if length > 0 {
        headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(|| length.into());
    }
    Body::empty()
}

/// A response whose body is still to come: all of it, or none if the request has it already.
pub(crate) fn opening<B>(
    mut parts: Parts,
    body: (Body<B>, &SizeHint),
    wanted: Wanted<'_>,
) -> Response<Body<B>> {
    if !wanted.is_unchanged(parts.status, &parts.headers) {
        let body = bodied(wanted, &mut parts.headers, body);
        return Response::from_parts(parts, body);
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
        // Where there are trailers, none is stated to GET either.
        let length = trailers.is_none().then_some(body.len() as u64);
        return withheld(headers, length);
    }
    match wanted.special {
        Some(special) if *status == StatusCode::OK && special.contains_key(header::RANGE) => {
            part(status, headers, (body, trailers), special)
        }
        _ => Body::full(body, trailers),
    }
}

/// Turns a stored 200 into the part that a GET asks for (RFC 9110 section 14).
fn part<B>(
    status: &mut StatusCode,
    headers: &mut HeaderMap,
    (body, trailers): (Bytes, Option<HeaderMap>),
    request: &HeaderMap,
) -> Body<B> {
    match range::select(request, headers, body.len()) {
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
        headers.insert(header::AGE, age::value(stream.head.age));
    }
    outcome.write(&mut headers);
    if wanted.is_unchanged(stream.head.status, &headers) {
        conditional::into_not_modified(&mut headers);
        return response(StatusCode::NOT_MODIFIED, headers, Body::empty());
    }
    let body = Body::shared(stream.body.reader(), stream.hint, presence);
    let body = bodied(wanted, &mut headers, (body, &stream.hint));
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
        Failure::Stale(entry, failure) if entry.usable_until() <= Instant::now() => {
            failed(failure, wanted, reason)
        }
        Failure::Stale(entry, _) => stood_in(entry, wanted, |ttl| {
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
    let hint = SizeHint::with_exact(text.len() as u64);
    let body = bodied(wanted, &mut headers, (body, &hint));
    response(status, headers, body)
}

fn response<B>(status: StatusCode, headers: HeaderMap, body: Body<B>) -> Response<Body<B>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
