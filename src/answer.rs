//! Responses made of what the cache has.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use tokio::time::Instant;

use crate::{
    body::Body,
    entry::Entry,
    flight::{Failure, Presence, Stream},
    status::{End, Forward, Outcome},
};

/// A hit: `entry` as it is now.
pub(crate) fn hit<B>(entry: &Entry, method: &Method, now: Instant) -> Response<Body<B>> {
    from_entry(entry, method, now, Outcome::hit(entry.ttl(now)))
}

/// `entry` for a request with this method, with `Age` and `Cache-Status`.
pub(crate) fn from_entry<B>(
    entry: &Entry,
    method: &Method,
    now: Instant,
    outcome: Outcome,
) -> Response<Body<B>> {
    let mut headers = HeaderMap::with_capacity(entry.head.headers.len() + 3);
    headers.clone_from(&entry.head.headers);
    headers.insert(header::AGE, entry.age(now).into());
    outcome.write(&mut headers);
    let body = if *method == Method::HEAD {
        // RFC 9110 section 9.3.2: the length that GET would have had.
        if !entry.body.is_empty() && entry.trailers.is_none() {
            let length = || entry.body.len().into();
            headers.entry(header::CONTENT_LENGTH).or_insert_with(length);
        }
        Body::empty()
    } else {
        Body::full(entry.body.clone(), entry.trailers.clone())
    };
    response(entry.head.status, headers, body)
}

/// A response that another request's build is still producing.
pub(crate) fn from_stream<B>(
    (stream, presence): (&Stream, Presence),
    method: &Method,
    outcome: Outcome,
) -> Response<Body<B>> {
    let mut headers = stream.head.headers.clone();
    if stream.head.age > 0 {
        headers.insert(header::AGE, stream.head.age.into());
    }
    outcome.write(&mut headers);
    let body = if *method == Method::HEAD {
        Body::empty()
    } else {
        Body::shared(stream.body.reader(), stream.hint, presence)
    };
    response(stream.head.status, headers, body)
}

/// A failure that is shared with a request that did not start the build.
pub(crate) fn failed<B>(failure: &Failure, method: &Method, reason: Forward) -> Response<Body<B>> {
    let outcome = Outcome::forward(reason, End::Collapsed).because("failed");
    match failure {
        Failure::Response(entry) => from_entry(entry, method, Instant::now(), outcome),
        Failure::Status(status) => plain(*status, outcome),
        Failure::Stale(entry) => hit(entry, method, Instant::now()),
    }
}

/// A refusal of ours: the build or the wait took too long.
pub(crate) fn unavailable<B>(detail: &'static str, reason: Forward) -> Response<Body<B>> {
    let outcome = Outcome::forward(reason, End::Unstored).because(detail);
    plain(StatusCode::SERVICE_UNAVAILABLE, outcome)
}

fn plain<B>(status: StatusCode, outcome: Outcome) -> Response<Body<B>> {
    let mut headers = HeaderMap::new();
    let text = status.canonical_reason().unwrap_or_default();
    let plain_text = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, plain_text);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    outcome.write(&mut headers);
    response(
        status,
        headers,
        Body::full(Bytes::from_static(text.as_bytes()), None),
    )
}

fn response<B>(status: StatusCode, headers: HeaderMap, body: Body<B>) -> Response<Body<B>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
