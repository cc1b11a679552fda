//! Driving the inner service: its response, and its body to the end.
//!
//! Whatever goes wrong in it, an error, a panic, or nothing at all for too long, comes back as a value.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    task::Poll,
};

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use tokio::{
    task::yield_now,
    time::{Instant, timeout_at},
};
use tower_service::Service;

use crate::body::{Body, BoxError, End, Refused, Rest, Writer};

pub(crate) type Payload = Box<dyn Any + Send>;

/// What the request that started a build gets of it, for itself alone.
pub(crate) enum Delivery<B, E> {
    Response(Response<Body<B>>),
    Error(E),
    Panic(Payload),
}

/// Why there is no response.
pub(crate) enum Broken<E> {
    Error(E),
    Panic(Payload),
    TimedOut,
}

/// Waits until `service` can be called.
pub(crate) async fn ready<S, R>(service: &mut S) -> Result<(), S::Error>
where
    S: Service<R>,
{
    poll_fn(|cx| service.poll_ready(cx)).await
}

/// The inner service's response.
pub(crate) async fn head<S, ReqBody, ResBody>(
    mut inner: S,
    request: Request<ReqBody>,
    deadline: Instant,
) -> Result<Response<ResBody>, Broken<S::Error>>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    let called = async {
        ready(&mut inner).await?;
        inner.call(request).await
    };
    match timeout_at(deadline, unwinding(called)).await {
        Ok(Ok(Ok(response))) => Ok(response),
        Ok(Ok(Err(error))) => Err(Broken::Error(error)),
        Ok(Err(payload)) => Err(Broken::Panic(payload)),
        Err(_elapsed) => Err(Broken::TimedOut),
    }
}

/// Polls `future` to its end; a panic in it is a value.
async fn unwinding<F: Future>(future: F) -> Result<F::Output, Payload> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        // The future is not polled again after a panic.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(payload)),
        }
    })
    .await
}

/// Calls `work`; a panic in it is a value.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Payload> {
    catch_unwind(AssertUnwindSafe(work))
}

/// How a body ended.
pub(crate) enum Drained<B> {
    /// All of it was seen.
    Complete(Bytes, Option<HeaderMap>),
    /// It does not fit; the rest has not been read.
    TooLarge(Pin<Box<B>>),
    /// The bodies of the whole cache take all the room there is; the rest has not been read.
    NoRoom(Pin<Box<B>>),
    /// It was still on its way when the time was up.
    TimedOut(Pin<Box<B>>),
    /// It is not what it declared to be, or failed.
    Broken(BoxError),
    Panic(Payload),
}

/// A body's declared length was wrong.
#[derive(Debug)]
struct WrongLength;

impl std::fmt::Display for WrongLength {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the body's length is not the declared one")
    }
}

impl std::error::Error for WrongLength {}

/// Reads `body` to its end into `writer`.
pub(crate) async fn drain<B>(
    mut body: Pin<Box<B>>,
    writer: Writer,
    declared: Option<u64>,
    deadline: Instant,
) -> Drained<B>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let mut trailers = None;
    for number in 1_u64.. {
        let frame = match next(body.as_mut(), number, deadline).await {
            Some(Ok(frame)) => frame,
            Some(Err(payload)) => return Drained::Panic(payload),
            None => {
                writer.overflow(Bytes::new());
                return Drained::TimedOut(body);
            }
        };
        let data = match frame.map(|frame| frame.map(Frame::into_data)) {
            None => break,
            Some(Err(error)) => return Drained::Broken(error.into()),
            Some(Ok(Ok(mut data))) => data.copy_to_bytes(data.remaining()),
            Some(Ok(Err(frame))) => {
                trailers = frame.into_trailers().ok();
                continue;
            }
        };
        if declared.is_some_and(|declared| (writer.length() + data.len()) as u64 > declared) {
            return Drained::Broken(WrongLength.into());
        }
        if data.is_empty() {
            continue;
        }
        match writer.push(data) {
            Ok(()) => {}
            Err(Refused::TooLarge(data)) => {
                writer.overflow(data);
                return Drained::TooLarge(body);
            }
            Err(Refused::NoRoom(data)) => {
                writer.overflow(data);
                return Drained::NoRoom(body);
            }
        }
    }
    if declared.is_some_and(|declared| writer.length() as u64 != declared) {
        return Drained::Broken(WrongLength.into());
    }
    let whole = writer.end(End::Complete(trailers.clone()));
    Drained::Complete(whole, trailers)
}

/// A body that never has to be waited for gives way to others after so many frames.
const FRAMES_AT_ONCE: u64 = 256;

/// The next frame of `body`, or a panic in it; `None` once the time is up, though there be another one.
async fn next<B: http_body::Body>(
    mut body: Pin<&mut B>,
    number: u64,
    deadline: Instant,
) -> Option<Result<Option<Result<Frame<B::Data>, B::Error>>, Payload>> {
    if number.is_multiple_of(FRAMES_AT_ONCE) {
        yield_now().await;
        if Instant::now() >= deadline {
            return None;
        }
    }
    let frame = unwinding(poll_fn(|cx| body.as_mut().poll_frame(cx)));
    timeout_at(deadline, frame).await.ok()
}

/// Polls once: what is there already need not be streamed.
pub(crate) async fn at_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

impl<B> Drained<B> {
    /// What of it is for the starter alone.
    pub(crate) fn into_rest(self) -> Option<Rest<B>> {
        match self {
            Self::Complete(..) => None,
            Self::TooLarge(body) | Self::NoRoom(body) | Self::TimedOut(body) => {
                Some(Rest::Body(body))
            }
            Self::Broken(error) => Some(Rest::Error(error)),
            Self::Panic(payload) => Some(Rest::Panic(payload)),
        }
    }
}
