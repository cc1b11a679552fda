//! Workers on one shared tier: each has a cache of its own, and all run one handler that counts its builds.

use std::{
    convert::Infallible,
    slice,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Full};
use tokio::{sync::Semaphore, task::JoinHandle, time::Instant};
use tower::{Layer as _, ServiceExt as _, util::BoxCloneSyncService};
use tower_stampede::{BufferLayer, Cache, body::Body};
#[cfg(feature = "redis")]
use tower_stampede::{CacheBuilder, RedisConfig};

pub type Incoming = Request<Empty<Bytes>>;
pub type Outgoing = Response<Full<Bytes>>;
type Service = BoxCloneSyncService<Incoming, Response<Body<Full<Bytes>>>, Infallible>;

/// Generous: a machine under load must not fail a test that is not about time.
pub const AMPLE: Duration = Duration::from_secs(30);

/// A handler whose builds are counted, and held until they are let go.
#[derive(Clone)]
pub struct Handler {
    builds: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Handler {
    pub fn held() -> Self {
        Self {
            builds: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        }
    }

    pub fn open() -> Self {
        let handler = Self::held();
        handler.let_go();
        handler
    }

    pub fn let_go(&self) {
        self.gate.add_permits(10_000);
    }

    /// Lets one build end.
    pub fn let_go_one(&self) {
        self.gate.add_permits(1);
    }

    pub fn builds(&self) -> usize {
        self.builds.load(Ordering::SeqCst)
    }

    /// Returns once `count` builds have begun.
    pub async fn has_begun(&self, count: usize) {
        until(|| self.builds() >= count).await;
    }

    /// A worker on each of `caches`.
    pub fn workers<const N: usize>(
        &self,
        caches: &[Cache; N],
        respond: fn(usize, &Incoming) -> Outgoing,
    ) -> [Worker; N] {
        caches
            .each_ref()
            .map(|cache| self.worker(&layer(cache), respond))
    }

    /// A worker on `cache`, and so many requests for `/report` that wait for a build of this held
    /// handler.
    pub async fn under_way(
        &self,
        cache: &Cache,
        respond: fn(usize, &Incoming) -> Outgoing,
        count: usize,
    ) -> (Worker, Herd) {
        let worker = self.worker(&layer(cache), respond);
        let before = self.builds();
        let herd = worker.herd("/report", count);
        waiting(slice::from_ref(cache), count).await;
        self.has_begun(before + 1).await;
        (worker, herd)
    }

    pub fn worker(
        &self,
        layer: &BufferLayer,
        respond: impl Fn(usize, &Incoming) -> Outgoing + Clone + Send + Sync + 'static,
    ) -> Worker {
        let handler = self.clone();
        let inner = tower::service_fn(move |request: Incoming| {
            let (handler, respond) = (handler.clone(), respond.clone());
            async move {
                let build = handler.builds.fetch_add(1, Ordering::SeqCst) + 1;
                handler.gate.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(respond(build, &request))
            }
        });
        Worker::behind(layer, inner)
    }
}

/// What one request got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    pub outcome: String,
    pub age: Option<u64>,
    pub body: Bytes,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

#[derive(Clone)]
pub struct Worker(Service);

impl Worker {
    /// A worker whose handler is `inner`.
    pub fn behind<S>(layer: &BufferLayer, inner: S) -> Self
    where
        S: tower::Service<Incoming, Response = Outgoing, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        Self(BoxCloneSyncService::new(layer.layer(inner)))
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(get(path)).await
    }

    pub async fn send(&self, request: Incoming) -> Answer {
        let response = self.0.clone().oneshot(request).await.unwrap();
        let field = |name: &str| Some(response.headers().get(name)?.to_str().unwrap().to_owned());
        let (outcome, age) = (field("cache-status"), field("age"));
        let status = response.status();
        Answer {
            status,
            outcome: outcome.expect("every answer says how it came about"),
            age: age.map(|age| age.parse().unwrap()),
            body: response.into_body().collect().await.unwrap().to_bytes(),
        }
    }

    /// Sends `count` requests at the same time.
    pub fn herd(&self, path: &str, count: usize) -> Herd {
        let ask = |_| {
            let (worker, path) = (self.clone(), path.to_owned());
            tokio::spawn(async move { worker.get(&path).await })
        };
        Herd((0..count).map(ask).collect())
    }
}

/// Requests under way.
pub struct Herd(Vec<JoinHandle<Answer>>);

impl Herd {
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    pub async fn answers(self) -> Vec<Answer> {
        let count = self.0.len();
        let answers = self.outcomes().await;
        assert_eq!(answers.len(), count, "every request is answered");
        answers
    }

    /// The answers of those whose handler did not panic.
    pub async fn outcomes(self) -> Vec<Answer> {
        let mut answers = Vec::new();
        for asked in self.0 {
            let answer = tokio::time::timeout(AMPLE, asked).await;
            answers.extend(answer.expect("every request comes to an end"));
        }
        answers
    }
}

#[cfg(feature = "redis")]
pub fn cache(redis: impl Into<RedisConfig>) -> Cache {
    builder(redis).build().unwrap()
}

/// Where no timeout is part of the test, a machine under load must not cause one.
#[cfg(feature = "redis")]
pub fn builder(redis: impl Into<RedisConfig>) -> CacheBuilder {
    Cache::builder()
        .redis(redis)
        .redis_budget(Duration::from_secs(10))
}

pub fn layer(cache: &Cache) -> BufferLayer {
    BufferLayer::new(cache.clone())
        .ttl(Duration::from_secs(60))
        .wait_timeout(AMPLE)
        .build_timeout(AMPLE)
}

pub fn get(path: &str) -> Incoming {
    Request::get(format!("http://shop.example{path}"))
        .body(Empty::new())
        .unwrap()
}

pub fn text(build: usize, _: &Incoming) -> Outgoing {
    Response::new(Full::from(format!("build {build}")))
}

pub fn failing(_: usize, _: &Incoming) -> Outgoing {
    let mut response = Response::new(Full::from("out of order"));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// A text under this `Cache-Control`.
pub fn caching(build: usize, request: &Incoming, directives: &'static str) -> Outgoing {
    let mut response = text(build, request);
    let value = http::HeaderValue::from_static(directives);
    response.headers_mut().insert("cache-control", value);
    response
}

pub fn uncacheable(build: usize, request: &Incoming) -> Outgoing {
    caching(build, request, "no-store")
}

/// A worker on `cache` that has stored something.
pub async fn warm(cache: &Cache) -> Worker {
    let worker = Handler::open().worker(&layer(cache), text);
    worker.get("/warm").await;
    settled(cache).await;
    worker
}

pub fn uri(path: &str) -> Uri {
    format!("http://shop.example{path}").parse().unwrap()
}

/// Caches of one process, and of two with a shared tier.
#[cfg(feature = "redis")]
pub fn fleets() -> Vec<(Option<super::redis::RedisServer>, Vec<Cache>)> {
    let redis = super::redis::RedisServer::start();
    let shared = vec![cache(redis.url()), cache(redis.url())];
    vec![(None, vec![Cache::in_memory()]), (Some(redis), shared)]
}

/// Herds for one page after another on two workers, while `strike` does something at the beginning of
/// rounds: everybody is answered, and neither builds a page more than `most` times.
pub async fn rounds_under_load(
    handlers: &[Handler; 2],
    workers: &[Worker],
    most: usize,
    mut strike: impl FnMut(usize),
) {
    for round in 0..30 {
        strike(round);
        let before: Vec<_> = handlers.iter().map(Handler::builds).collect();
        let path = format!("/round/{round}");
        let herd = workers[0].herd(&path, 20).and(workers[1].herd(&path, 20));
        for answer in herd.answers().await {
            assert_eq!(answer.status, StatusCode::OK);
        }
        for (handler, before) in handlers.iter().zip(before) {
            assert!(handler.builds() <= before + most, "round {round}");
        }
    }
}

/// The leases that are held.
#[cfg(feature = "redis")]
pub fn leases(redis: &super::redis::RedisServer) -> Vec<String> {
    redis.command(&["KEYS", "*:l*"])
}

pub async fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + AMPLE;
    while !condition() {
        assert!(Instant::now() < deadline, "the condition never held");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Returns once `cache` waits for nothing and has nothing under way.
pub async fn settled(cache: &Cache) {
    until(|| cache.stats().flights == 0).await;
}

pub async fn waiting(caches: &[Cache], count: usize) {
    until(|| {
        caches
            .iter()
            .map(|cache| cache.stats().waiters)
            .sum::<usize>()
            == count
    })
    .await;
}
