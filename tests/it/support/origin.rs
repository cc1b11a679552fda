//! A scripted origin: the service that the tests put behind the layer.

use std::{
    cell::Cell,
    convert::Infallible,
    fmt,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, request::Parts};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use tokio::sync::{Semaphore, mpsc, watch};
use tower::Service;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type OriginBody = UnsyncBoxBody<Bytes, BoxError>;
pub type Reply = Result<Response<OriginBody>, OriginError>;

type Replying = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// An error that is neither `Clone` nor `Sync`.
pub struct OriginError(pub &'static str, PhantomData<Cell<()>>);

impl OriginError {
    pub fn new(text: &'static str) -> Self {
        Self(text, PhantomData)
    }
}

impl fmt::Debug for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// One build, as the script sees it.
pub struct Call {
    /// The first build is number 1.
    pub number: usize,
    pub parts: Parts,
}

impl Call {
    /// A request header; empty if it is not there.
    pub fn header(&self, name: &str) -> String {
        let value = self.parts.headers.get(name);
        value.map_or_else(String::new, |value| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        })
    }
}

/// Runs its script for each call, and counts. Clones share everything but their readiness: as the
/// contract of `Service` has it, one that is called before it was ready panics.
pub struct Origin {
    shared: Arc<Shared>,
    ready: Cell<Readiness>,
}

#[derive(Clone, Copy, PartialEq)]
enum Readiness {
    Unknown,
    Ready,
}

struct Shared {
    script: Box<dyn Fn(Call) -> Replying + Send + Sync>,
    builds: watch::Sender<usize>,
    running: watch::Sender<usize>,
    peak: AtomicUsize,
    finished: AtomicUsize,
}

impl Origin {
    pub fn new<F, Fut>(script: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Response<OriginBody>> + Send + 'static,
    {
        Self::fallible(move |call| {
            let reply = script(call);
            async { Ok(reply.await) }
        })
    }

    pub fn fallible<F, Fut>(script: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Reply> + Send + 'static,
    {
        let shared = Arc::new(Shared {
            script: Box::new(move |call| Box::pin(script(call))),
            builds: watch::Sender::new(0),
            running: watch::Sender::new(0),
            peak: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
        });
        Self {
            shared,
            ready: Cell::new(Readiness::Unknown),
        }
    }

    /// Answers each build with a body whose frames the test sends through the channel that comes
    /// with it.
    pub fn streaming<F>(head: F) -> (Self, mpsc::UnboundedReceiver<Frames>)
    where
        F: Fn(&Call) -> Response<()> + Send + Sync + 'static,
    {
        let (builds, streams) = mpsc::unbounded_channel();
        let origin = Self::new(move |call| {
            let (frames, body) = frames();
            drop(builds.send(frames));
            let response = head(&call).map(|()| body);
            async { response }
        });
        (origin, streams)
    }

    /// The same, for fresh responses that declare no length.
    pub fn fresh_streams() -> (Self, mpsc::UnboundedReceiver<Frames>) {
        Self::streaming(|_| head(StatusCode::OK, &[("cache-control", "max-age=60")]))
    }

    /// Bodies without end under this `Cache-Control`, in frames of so many bytes; and how many of them
    /// were taken.
    pub fn endless(directives: &'static str, frame: usize) -> (Self, Arc<AtomicUsize>) {
        let taken = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&taken);
        let origin = Self::new(move |_| {
            let body = endless(frame, Arc::clone(&counted));
            async { head(StatusCode::OK, &[("cache-control", directives)]).map(|()| body) }
        });
        (origin, taken)
    }

    /// How often it was called.
    pub fn builds(&self) -> usize {
        *self.shared.builds.borrow()
    }

    /// The most builds that ran at the same time.
    pub fn peak(&self) -> usize {
        self.shared.peak.load(Ordering::SeqCst)
    }

    /// The builds that gave their response, or their error.
    pub fn finished(&self) -> usize {
        self.shared.finished.load(Ordering::SeqCst)
    }

    /// Waits until it has been called `builds` times.
    pub async fn called(&self, builds: usize) {
        let mut count = self.shared.builds.subscribe();
        count
            .wait_for(|count| *count >= builds)
            .await
            .expect("the origin is there");
    }

    /// Waits until no build is running.
    pub async fn idle(&self) {
        let mut count = self.shared.running.subscribe();
        count
            .wait_for(|count| *count == 0)
            .await
            .expect("the origin is there");
    }
}

impl Clone for Origin {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        Self {
            shared,
            ready: Cell::new(Readiness::Unknown),
        }
    }
}

impl<B> Service<Request<B>> for Origin {
    type Response = Response<OriginBody>;
    type Error = OriginError;
    type Future = Replying;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OriginError>> {
        self.ready.set(Readiness::Ready);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Replying {
        let readiness = self.ready.replace(Readiness::Unknown);
        assert!(readiness == Readiness::Ready, "called before it was ready");
        let shared = Arc::clone(&self.shared);
        shared.builds.send_modify(|builds| *builds += 1);
        let number = self.builds();
        let running = Running::start(&shared);
        let (parts, _body) = request.into_parts();
        Box::pin(async move {
            let reply = (shared.script)(Call { number, parts }).await;
            shared.finished.fetch_add(1, Ordering::SeqCst);
            drop(running);
            reply
        })
    }
}

/// One build under way.
struct Running(Arc<Shared>);

impl Running {
    fn start(shared: &Arc<Shared>) -> Self {
        shared.running.send_modify(|running| *running += 1);
        shared
            .peak
            .fetch_max(*shared.running.borrow(), Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

/// An origin that is held by a gate, and then gives a fresh response.
pub fn held() -> (Origin, Gate) {
    held_then(|call| fresh(format!("build {}", call.number)))
}

/// An origin that is held by a gate, and then responds so.
pub fn held_then(
    respond: impl Fn(&Call) -> Response<OriginBody> + Clone + Send + Sync + 'static,
) -> (Origin, Gate) {
    held_if(|_| true, respond)
}

/// The same, where the gate holds only these builds.
pub fn held_if(
    is_held: impl Fn(&Call) -> bool + Clone + Send + Sync + 'static,
    respond: impl Fn(&Call) -> Response<OriginBody> + Clone + Send + Sync + 'static,
) -> (Origin, Gate) {
    let gate = Gate::closed();
    let passed = gate.clone();
    let origin = Origin::new(move |call| {
        let (gate, is_held, respond) = (passed.clone(), is_held.clone(), respond.clone());
        async move {
            if is_held(&call) {
                gate.pass().await;
            }
            respond(&call)
        }
    });
    (origin, gate)
}

/// An origin whose builds of `/stuck` are held by a gate.
pub fn stuck_in_one_place() -> (Origin, Gate) {
    held_if(|call| call.parts.uri.path() == "/stuck", |_| fresh("here"))
}

/// Holds builds until the test lets them go on.
#[derive(Clone)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    pub fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Waits for one of the test's permissions.
    pub async fn pass(&self) {
        self.0
            .acquire()
            .await
            .expect("a gate is never closed for good")
            .forget();
    }

    pub fn let_pass(&self, builds: usize) {
        self.0.add_permits(builds);
    }

    pub fn open(&self) {
        self.let_pass(1_000_000);
    }
}

// ===== responses =====

pub fn whole(text: impl Into<Bytes>) -> OriginBody {
    Full::new(text.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// 200 with these header fields.
pub fn reply(headers: &[(&str, &str)], text: impl Into<Bytes>) -> Response<OriginBody> {
    head(StatusCode::OK, headers).map(|()| whole(text))
}

pub fn head(status: StatusCode, headers: &[(&str, &str)]) -> Response<()> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).expect("the test's fields are valid")
}

/// 200 that is fresh for a minute.
pub fn fresh(text: impl Into<Bytes>) -> Response<OriginBody> {
    reply(&[("cache-control", "max-age=60")], text)
}

/// 200 that nobody may store.
pub fn no_store(text: impl Into<Bytes>) -> Response<OriginBody> {
    reply(&[("cache-control", "no-store")], text)
}

pub fn failure(status: u16, text: impl Into<Bytes>) -> Response<OriginBody> {
    let status = StatusCode::from_u16(status).expect("the test's status is valid");
    head(status, &[]).map(|()| whole(text))
}

// ===== bodies frame by frame =====

/// The sending side of a body: dropped, the body ends well.
pub struct Frames(mpsc::UnboundedSender<Sent>);

enum Sent {
    Frame(Frame<Bytes>),
    Error,
    Panic,
}

/// A body and what feeds it.
pub fn frames() -> (Frames, OriginBody) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let receiver = Mutex::new(receiver);
    (Frames(sender), Fed(receiver).boxed_unsync())
}

impl Frames {
    pub fn data(&self, data: impl Into<Bytes>) {
        drop(self.0.send(Sent::Frame(Frame::data(data.into()))));
    }

    pub fn trailers(&self, name: &'static str, value: &str) {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, value.parse().expect("the test's field is valid"));
        drop(self.0.send(Sent::Frame(Frame::trailers(trailers))));
    }

    pub fn end(self) {
        drop(self);
    }

    pub fn fail(self) {
        drop(self.0.send(Sent::Error));
    }

    pub fn panic(self) {
        drop(self.0.send(Sent::Panic));
    }

    /// Waits until nobody reads the body any more.
    pub async fn dropped(&self) {
        self.0.closed().await;
    }

    pub fn is_dropped(&self) -> bool {
        self.0.is_closed()
    }
}

struct Fed(Mutex<mpsc::UnboundedReceiver<Sent>>);

impl Body for Fed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut receiver = self.0.lock().expect("no test panics under this lock");
        let sent = std::task::ready!(receiver.poll_recv(cx));
        drop(receiver);
        Poll::Ready(match sent {
            None => None,
            Some(Sent::Frame(frame)) => Some(Ok(frame)),
            Some(Sent::Error) => Some(Err("the body broke".into())),
            Some(Sent::Panic) => panic!("the body panicked"),
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A body without end, of frames of one size; it counts the bytes that were taken.
pub fn endless(frame: usize, taken: Arc<AtomicUsize>) -> OriginBody {
    Endless {
        frame: Bytes::from(vec![b'x'; frame]),
        taken,
    }
    .boxed_unsync()
}

struct Endless {
    frame: Bytes,
    taken: Arc<AtomicUsize>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.taken.fetch_add(self.frame.len(), Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(self.frame.clone()))))
    }
}
