//! Clients: single requests and herds of them, and what they get.

use std::{any::Any, fmt::Debug, panic::AssertUnwindSafe, pin::pin, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Empty};
use tokio::task::{AbortHandle, JoinSet};
use tower::{Layer as _, Service, ServiceExt as _};
use tower_stampede::{BufferLayer, BufferService, Cache, Stats};

use super::origin::{Gate, Origin, OriginError, reply};

pub type Layered = BufferService<Origin>;
pub type Empties = Empty<Bytes>;

/// `origin` behind `layer`.
pub fn behind(layer: &BufferLayer, origin: &Origin) -> Layered {
    layer.layer(origin.clone())
}

/// A GET of `target` on one host, without any other field.
pub fn get(target: &str) -> Request<Empties> {
    with(target, &[])
}

/// A GET with header fields.
pub fn with(target: &str, headers: &[(&str, &str)]) -> Request<Empties> {
    let target = if target.starts_with('/') {
        format!("http://shop.example{target}")
    } else {
        target.to_owned()
    };
    let mut request = Request::get(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
        .body(Empty::new())
        .expect("the test's request is valid")
}

/// A response that has been read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
    pub end: Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Whole,
    Broken,
}

impl Answer {
    pub async fn read<B>(response: Response<B>) -> Self
    where
        B: Body<Data = Bytes>,
    {
        let (parts, body) = response.into_parts();
        let mut answer = Self {
            status: parts.status,
            headers: parts.headers,
            body: Bytes::new(),
            trailers: None,
            end: Ended::Whole,
        };
        let mut read = Vec::new();
        let mut body = pin!(body);
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => read.extend_from_slice(&data),
                Ok(Err(frame)) => answer.trailers = frame.into_trailers().ok(),
                Err(_) => {
                    answer.end = Ended::Broken;
                    break;
                }
            }
        }
        answer.body = read.into();
        answer
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the test's body is text")
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("the field is text"))
    }

    /// What the outermost layer says it did.
    pub fn status_line(&self) -> &str {
        let lines = self.headers.get_all("cache-status").iter();
        lines
            .last()
            .map_or("", |value| value.to_str().expect("the field is text"))
    }
}

/// How one request ended.
#[derive(Debug)]
pub enum Outcome<E = OriginError> {
    Answer(Answer),
    Error(E),
    Panic(String),
}

impl<E: Debug> Outcome<E> {
    pub fn answer(self) -> Answer {
        match self {
            Self::Answer(answer) => answer,
            other => panic!("no answer but {other:?}"),
        }
    }

    pub fn is_panic(&self) -> bool {
        matches!(self, Self::Panic(_))
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// Its status; none without an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answer(answer) => Some(answer.status.as_u16()),
            Self::Error(_) | Self::Panic(_) => None,
        }
    }
}

/// Sends one request and reads the answer to its end.
pub async fn ask<S, R, B>(service: &S, request: Request<R>) -> Answer
where
    S: Service<Request<R>, Response = Response<B>> + Clone,
    S::Error: Debug,
    B: Body<Data = Bytes>,
{
    let response = service
        .clone()
        .oneshot(request)
        .await
        .expect("the service answers");
    Answer::read(response).await
}

/// As [`ask`], whatever happens.
pub async fn attempt<S, R, B>(service: S, request: Request<R>) -> Outcome<S::Error>
where
    S: Service<Request<R>, Response = Response<B>> + Clone,
    B: Body<Data = Bytes>,
{
    let answering = async {
        match service.oneshot(request).await {
            Ok(response) => Outcome::Answer(Answer::read(response).await),
            Err(error) => Outcome::Error(error),
        }
    };
    match AssertUnwindSafe(answering).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(payload) => Outcome::Panic(text_of(&*payload)),
    }
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Requests under way, each in a task of its own.
pub struct Herd<E = OriginError> {
    tasks: JoinSet<(usize, Outcome<E>)>,
    handles: Vec<AbortHandle>,
}

/// Sends all of `requests` at the same time.
pub fn herd<S, R, B>(service: &S, requests: impl IntoIterator<Item = Request<R>>) -> Herd<S::Error>
where
    S: Service<Request<R>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Debug + Send + 'static,
    R: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
{
    let mut herd = Herd {
        tasks: JoinSet::new(),
        handles: Vec::new(),
    };
    requests
        .into_iter()
        .for_each(|request| herd.join(service, request));
    herd
}

/// `count` times the same GET at the same time.
pub fn same(service: &Layered, count: usize, target: &str) -> Herd {
    herd(service, (0..count).map(|_| get(target)))
}

impl<E: Debug + Send + 'static> Herd<E> {
    /// Sends one more request.
    pub fn join<S, R, B>(&mut self, service: &S, request: Request<R>)
    where
        S: Service<Request<R>, Response = Response<B>, Error = E> + Clone + Send + 'static,
        S::Future: Send,
        R: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Send,
    {
        let (number, service) = (self.handles.len(), service.clone());
        let handle = self
            .tasks
            .spawn(async move { (number, attempt(service, request).await) });
        self.handles.push(handle);
    }

    /// The client of one request goes away.
    pub fn leave(&self, number: usize) {
        self.handles[number].abort();
    }

    /// How each ended, in the order of the requests, those that left left out.
    pub async fn outcomes(mut self) -> Vec<Outcome<E>> {
        let mut ended = Vec::new();
        while let Some(joined) = self.tasks.join_next().await {
            match joined {
                Ok(outcome) => ended.push(outcome),
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        }
        ended.sort_by_key(|(number, _)| *number);
        ended.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// The answers of all of them.
    pub async fn answers(self) -> Vec<Answer> {
        self.outcomes()
            .await
            .into_iter()
            .map(Outcome::answer)
            .collect()
    }
}

/// What `count` requests for `/report` get that all wait for what the gate holds.
pub async fn let_through(
    (cache, service): (&Cache, &Layered),
    gate: &Gate,
    count: usize,
) -> Vec<Answer> {
    let herd = same(service, count, "/report");
    until(cache, |stats| stats.waiters == count).await;
    gate.open();
    herd.answers().await
}

/// Lets all other tasks run until the cache's numbers are as wanted.
///
/// The paused clock stands still meanwhile.
pub async fn until(cache: &Cache, wanted: impl Fn(&Stats) -> bool) {
    for _ in 0..100_000 {
        if wanted(&cache.stats()) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never came to that: {:?}", cache.stats());
}

/// Lets all other tasks run until they have nothing left to do.
pub async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

/// Asserts that nothing is left of any flight.
pub async fn assert_nothing_is_left(cache: &Cache) {
    until(cache, |stats| {
        stats.flights == 0 && stats.waiters == 0 && stats.building_bytes == 0
    })
    .await;
}

// ===== builds one after the other =====

pub fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A layer with its defaults.
pub fn layer(cache: &Cache) -> BufferLayer {
    BufferLayer::new(cache.clone())
}

/// A layer with a minute of freshness.
pub fn minute(cache: &Cache) -> BufferLayer {
    layer(cache).ttl(Duration::from_secs(60))
}

/// A minute of freshness from the layer, over an origin that tells one build from another.
pub fn numbered(layer: impl FnOnce(BufferLayer) -> BufferLayer) -> (Layered, Origin) {
    let origin = Origin::new(|call| async move { reply(&[], format!("build {}", call.number)) });
    (behind(&layer(minute(&Cache::in_memory())), &origin), origin)
}

/// How many builds these requests need, one after the other.
pub async fn builds<'a>(
    service: &Layered,
    origin: &Origin,
    requests: impl IntoIterator<Item = (&'a str, &'a [(&'a str, &'a str)])>,
) -> usize {
    let before = origin.builds();
    for (target, headers) in requests {
        ask(service, with(target, headers)).await;
    }
    origin.builds() - before
}

/// The same without header fields.
pub async fn targets(service: &Layered, origin: &Origin, requests: &[&str]) -> usize {
    builds(
        service,
        origin,
        requests.iter().map(|target| (*target, &[][..])),
    )
    .await
}
