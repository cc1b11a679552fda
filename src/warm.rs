//! [`Warm`]: building what will be asked for ahead of the traffic.

use std::{
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{Mutex, PoisonError},
    task::Poll,
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

/// Sends a list of requests through a service, a few at a time, so that what they ask for is stored
/// before others ask.
///
/// They go through the layers as all requests do: what is fresh already costs nothing, and of several
/// workers that warm up at the same time one builds. So they have to be as the clients' will be: with
/// the authority that those name, in the URI or in `Host`, and with whatever else is in the key. What is
/// asked for as `/report` alone answers nobody who asks `shop.example` for it.
///
/// ```
/// # use std::convert::Infallible;
/// # use bytes::Bytes;
/// # use http_body_util::{Empty, Full};
/// # use tower::{Layer as _, service_fn};
/// use http::{Request, Response};
/// use tower_stampede::{BufferLayer, Cache, Warm};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let inner = service_fn(async |_: Request<Empty<Bytes>>| {
/// #     Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("a report")))
/// # });
/// let service = BufferLayer::new(Cache::in_memory()).layer(inner);
/// let pages = (1..=20).map(|page| format!("http://shop.example/report?page={page}"));
/// let requests = pages.map(|uri| Request::get(uri).body(Empty::new()).unwrap());
///
/// let done = Warm::new(service)
///     .concurrency(4)
///     .on_progress(|progress| println!("{progress}"))
///     .run(requests)
///     .await;
///
/// assert_eq!((done.answered, done.failed), (20, 0));
/// # }
/// ```
pub struct Warm<S> {
    service: S,
    concurrency: usize,
    on_progress: Box<dyn Fn(Progress) + Send + Sync>,
}

/// How far a [`Warm`] has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Requests that were answered, in whole, with less than 500.
    pub answered: usize,
    /// Requests that failed: by an error, a panic, a status from 500 on, or a body that broke off.
    pub failed: usize,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered, {} failed", self.answered, self.failed)
    }
}

impl<S> Warm<S> {
    /// Of what `service` has layers for.
    pub fn new(service: S) -> Self {
        Self {
            service,
            concurrency: 8,
            on_progress: Box::new(|_| {}),
        }
    }

    /// How many requests are under way at the same time. Default: 8; at least 1.
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.concurrency = requests.max(1);
        self
    }

    /// Is called after each request.
    pub fn on_progress(mut self, listener: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.on_progress = Box::new(listener);
        self
    }

    /// Sends the requests and reads the answers to their ends.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, no more requests are sent; builds that have begun go on as their layer says.
    pub async fn run<B, R>(self, requests: impl IntoIterator<Item = Request<B>>) -> Progress
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        R: Body,
    {
        let mut requests = requests.into_iter();
        // No more lanes than there are requests.
        let first: Vec<_> = requests.by_ref().take(self.concurrency).collect();
        let queue = Mutex::new(requests);
        let progress = Mutex::new(Progress::default());
        let lane = |first| async {
            let mut next = Some(first);
            while let Some(request) = next {
                let ended = unwinding(answer(self.service.clone(), request)).await;
                let progress = {
                    let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                    progress.count(ended);
                    *progress
                };
                (self.on_progress)(progress);
                next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            }
        };
        all(first.into_iter().map(lane)).await;
        progress
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> fmt::Debug for Warm<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warm")
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

/// How a request ended.
#[derive(Clone, Copy)]
enum Ended {
    Answered,
    Failed,
}

impl Progress {
    fn count(&mut self, ended: Ended) {
        match ended {
            Ended::Answered => self.answered += 1,
            Ended::Failed => self.failed += 1,
        }
    }
}

async fn answer<S, B, R>(mut service: S, request: Request<B>) -> Ended
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    if poll_fn(|cx| service.poll_ready(cx)).await.is_err() {
        return Ended::Failed;
    }
    let Ok(response) = service.call(request).await else {
        return Ended::Failed;
    };
    let failed = response.status().is_server_error();
    let mut body = pin!(response.into_body());
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if frame.is_err() {
            return Ended::Failed;
        }
    }
    if failed {
        Ended::Failed
    } else {
        Ended::Answered
    }
}

/// A handler that panics has failed its own request, and keeps no other from being sent.
async fn unwinding(answering: impl Future<Output = Ended>) -> Ended {
    let mut answering = pin!(answering);
    poll_fn(|cx| {
        // The future is not polled again after a panic.
        catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(cx)))
            .unwrap_or(Poll::Ready(Ended::Failed))
    })
    .await
}

/// Drives all of them to their ends.
async fn all<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) {
    let mut running: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    poll_fn(|cx| {
        running.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if running.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
