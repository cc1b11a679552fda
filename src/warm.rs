//! [`Warm`]: building what will be asked for ahead of the traffic.

use std::{
    fmt,
    future::{Future, poll_fn},
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
/// workers that warm up at the same time one builds.
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
    /// Requests that failed: by an error, a status from 500 on, or a body that broke off.
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
        let queue = Mutex::new(requests.into_iter());
        let progress = Mutex::new(Progress::default());
        let lane = || async {
            loop {
                let request = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(request) = request else {
                    return;
                };
                let answered = answer(self.service.clone(), request).await;
                let progress = {
                    let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                    progress.count(answered);
                    *progress
                };
                (self.on_progress)(progress);
            }
        };
        all((0..self.concurrency).map(|_| lane())).await;
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
