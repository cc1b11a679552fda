//! The body of every response that leaves the layer.

mod error;
mod growing;

use std::{
    fmt,
    panic::resume_unwind,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::oneshot;

use crate::{entry::Entry, flight::Presence};

pub use self::error::BodyError;
pub(crate) use self::{
    error::BoxError,
    growing::{End, Growing, Memory, Reader, Refused, Step, Writer},
};

pin_project! {
    /// The response body of [`BufferService`](crate::BufferService).
    ///
    /// It is one of three things: complete (an entry, or what was made of one), shared with other
    /// requests while the handler is still producing it, or the inner service's own body of type
    /// `B`, passed through. Its data is always [`Bytes`]; trailers are kept.
    ///
    /// `Default` is an empty body, as outer layers such as a timeout or CORS layer need it.
    ///
    /// ```
    /// use http_body::Body as _;
    /// use tower_stampede::body::Body;
    ///
    /// let body: Body<String> = Body::default();
    /// assert!(body.is_end_stream());
    /// ```
    pub struct Body<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Full { data: Bytes, trailers: Option<Box<HeaderMap>> },
        Withheld,
        Shared { following: Box<Following> },
        Leading { following: Box<Following>, rest: Box<oneshot::Receiver<Rest<B>>> },
        Passed { #[pin] body: B },
        Rest { body: Pin<Box<B>> },
    }
}

/// A body that follows a build. It is boxed, so that a complete body, which is all that a hit needs,
/// is small.
struct Following {
    reader: Reader,
    hint: SizeHint,
    /// Held until the body has been read or dropped.
    _presence: Presence,
}

/// What the build leaves to the request that started it, once the shared part of a body has ended.
pub(crate) enum Rest<B> {
    /// The response is too large (or too slow) to be stored: this is all that was not read yet.
    Body(Pin<Box<B>>),
    Error(BoxError),
    Panic(Box<dyn std::any::Any + Send>),
}

impl<B> Body<B> {
    pub(crate) fn full(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        let trailers = trailers.map(Box::new);
        Kind::Full { data, trailers }.into()
    }

    /// All of what an entry has.
    #[inline]
    pub(crate) fn of(entry: &Entry) -> Self {
        let data = entry.body.clone();
        let trailers = entry.trailers.as_ref();
        let trailers = trailers.map(|trailers| Box::new(trailers.clone()));
        Kind::Full { data, trailers }.into()
    }

    pub(crate) fn empty() -> Self {
        Self::full(Bytes::new(), None)
    }

    /// No body, to a HEAD, in place of one of unknown length: that is not stated to be 0.
    pub(crate) fn withheld() -> Self {
        Kind::Withheld.into()
    }

    /// A body that follows a build, as one of its waiters.
    pub(crate) fn shared(reader: Reader, hint: SizeHint, presence: Presence) -> Self {
        let following = Following::boxed(reader, hint, presence);
        Kind::Shared { following }.into()
    }

    /// The body of the request that started the build: it also gets what nobody shares.
    pub(crate) fn leading(
        reader: Reader,
        hint: SizeHint,
        rest: oneshot::Receiver<Rest<B>>,
        presence: Presence,
    ) -> Self {
        let following = Following::boxed(reader, hint, presence);
        let rest = Box::new(rest);
        Kind::Leading { following, rest }.into()
    }

    pub(crate) fn passed(body: B) -> Self {
        Kind::Passed { body }.into()
    }
}

impl<B> From<Kind<B>> for Body<B> {
    fn from(kind: Kind<B>) -> Self {
        Self { kind }
    }
}

impl<B> Default for Body<B> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<B> fmt::Debug for Body<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Full { .. } => "Body(full)",
            Kind::Withheld => "Body(withheld)",
            Kind::Shared { .. } => "Body(shared)",
            Kind::Leading { .. } => "Body(leading)",
            Kind::Passed { .. } | Kind::Rest { .. } => "Body(passed)",
        })
    }
}

impl<B> http_body::Body for Body<B>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let rest = match self.as_mut().project().kind.project() {
            KindProjection::Full { data, trailers } => return Poll::Ready(next_of(data, trailers)),
            KindProjection::Withheld => return Poll::Ready(None),
            KindProjection::Passed { body } => return poll_passed(body, cx),
            KindProjection::Rest { body } => return poll_passed(body.as_mut(), cx),
            KindProjection::Shared { following } => {
                let next = ready!(following.poll(cx.waker()));
                return Poll::Ready(next.unwrap_or_else(|Cut| Some(Err(BodyError::cut()))));
            }
            KindProjection::Leading { following, rest } => match ready!(following.poll(cx.waker()))
            {
                Ok(next) => return Poll::Ready(next),
                Err(Cut) => ready!(Pin::new(rest.as_mut()).poll(cx)),
            },
        };
        match rest {
            Ok(Rest::Body(body)) => self.as_mut().project().kind.set(Kind::Rest { body }),
            Ok(Rest::Error(source)) => {
                return Poll::Ready(Some(self.ended_by(BodyError::inner(source))));
            }
            Ok(Rest::Panic(payload)) => resume_unwind(payload),
            Err(_build_is_gone) => return Poll::Ready(Some(self.ended_by(BodyError::cut()))),
        }
        self.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Full { data, trailers } => data.is_empty() && trailers.is_none(),
            Kind::Withheld => true,
            Kind::Shared { .. } | Kind::Leading { .. } => false,
            Kind::Passed { body } => body.is_end_stream(),
            Kind::Rest { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            // An exact size would make HTTP/1 leave the trailers out.
            Kind::Full {
                trailers: Some(_), ..
            }
            | Kind::Withheld => SizeHint::new(),
            Kind::Full { data, .. } => SizeHint::with_exact(data.len() as u64),
            Kind::Shared { following } | Kind::Leading { following, .. } => following.hint,
            Kind::Passed { body } => body.size_hint(),
            Kind::Rest { body } => body.size_hint(),
        }
    }
}

impl<B> Body<B> {
    /// The last item of a body that fails: nothing follows it.
    fn ended_by(mut self: Pin<&mut Self>, error: BodyError) -> Result<Frame<Bytes>, BodyError> {
        let ended = Kind::Full {
            data: Bytes::new(),
            trailers: None,
        };
        self.as_mut().project().kind.set(ended);
        Err(error)
    }
}

/// The shared part of a body has ended before the body has.
struct Cut;

type Next = Option<Result<Frame<Bytes>, BodyError>>;

impl Following {
    fn boxed(reader: Reader, hint: SizeHint, presence: Presence) -> Box<Self> {
        Box::new(Self {
            reader,
            hint,
            _presence: presence,
        })
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<Next, Cut>> {
        Poll::Ready(match ready!(self.reader.poll(waker)) {
            Step::Data(data) => Ok(Some(Ok(counted(data, &mut self.hint)))),
            Step::Trailers(trailers) => Ok(Some(Ok(Frame::trailers(trailers)))),
            Step::End => Ok(None),
            Step::Cut | Step::Overflow => Err(Cut),
        })
    }
}

fn next_of(data: &mut Bytes, trailers: &mut Option<Box<HeaderMap>>) -> Next {
    if !data.is_empty() {
        return Some(Ok(Frame::data(std::mem::take(data))));
    }
    trailers
        .take()
        .map(|trailers| Ok(Frame::trailers(*trailers)))
}

fn poll_passed<B>(body: Pin<&mut B>, cx: &mut Context<'_>) -> Poll<Next>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    body.poll_frame(cx).map(|frame| {
        frame.map(|frame| {
            frame
                .map(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
                .map_err(|error| BodyError::inner(error.into()))
        })
    })
}

/// A data frame, taken off what is still to come.
fn counted(data: Bytes, hint: &mut SizeHint) -> Frame<Bytes> {
    let length = data.len() as u64;
    let upper = hint.upper();
    let mut left = SizeHint::new();
    left.set_lower(hint.lower().saturating_sub(length));
    if let Some(upper) = upper.and_then(|upper| upper.checked_sub(length)) {
        left.set_upper(upper);
    }
    *hint = left;
    Frame::data(data)
}

#[cfg(test)]
mod tests;
