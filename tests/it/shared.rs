//! The shared tier on a real Redis: several caches, as several workers have them.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use tokio::sync::Semaphore;
use tower::{Layer as _, ServiceExt as _, util::BoxCloneSyncService};
use tower_stampede::{BufferLayer, Cache, body::Body};

use crate::support::redis::RedisServer;

type Worker = BoxCloneSyncService<Request<Empty<Bytes>>, Response<Body<Full<Bytes>>>, Infallible>;

/// A handler whose builds are counted, and held until they are let go.
#[derive(Clone)]
struct Handler {
    builds: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Handler {
    fn held() -> Self {
        Self {
            builds: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        }
    }

    fn open() -> Self {
        let handler = Self::held();
        handler.let_go();
        handler
    }

    fn let_go(&self) {
        self.gate.add_permits(10_000);
    }

    fn builds(&self) -> usize {
        self.builds.load(Ordering::SeqCst)
    }

    fn worker(
        &self,
        layer: &BufferLayer,
        respond: impl Fn(usize, &Request<Empty<Bytes>>) -> Response<Full<Bytes>>
        + Clone
        + Send
        + Sync
        + 'static,
    ) -> Worker {
        let handler = self.clone();
        let inner = tower::service_fn(move |request: Request<Empty<Bytes>>| {
            let (handler, respond) = (handler.clone(), respond.clone());
            async move {
                let build = handler.builds.fetch_add(1, Ordering::SeqCst) + 1;
                handler.gate.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(respond(build, &request))
            }
        });
        BoxCloneSyncService::new(layer.layer(inner))
    }
}

fn cache(redis: &RedisServer) -> Cache {
    Cache::builder().redis(redis.url()).build().unwrap()
}

fn layer(cache: &Cache) -> BufferLayer {
    BufferLayer::new(cache.clone()).ttl(Duration::from_secs(60))
}

fn text(build: usize, _: &Request<Empty<Bytes>>) -> Response<Full<Bytes>> {
    Response::new(Full::from(format!("build {build}")))
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://shop.example{path}"))
        .body(Empty::new())
        .unwrap()
}

async fn read(response: Response<Body<Full<Bytes>>>) -> (StatusCode, String, String) {
    let status = response.status();
    let outcome = response.headers()["cache-status"]
        .to_str()
        .unwrap()
        .to_owned();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, outcome, String::from_utf8(body.to_vec()).unwrap())
}

async fn ask(worker: &Worker, path: &str) -> (StatusCode, String, String) {
    read(worker.clone().oneshot(get(path)).await.unwrap()).await
}

async fn until(condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the condition never held"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_ask_at_the_same_time_share_one_build() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let caches: Vec<_> = (0..4).map(|_| cache(&redis)).collect();
    let workers: Vec<_> = caches
        .iter()
        .map(|cache| handler.worker(&layer(cache), text))
        .collect();

    let asking: Vec<_> = (0..200)
        .map(|at| {
            let worker = workers[at % 4].clone();
            tokio::spawn(async move { ask(&worker, "/report").await })
        })
        .collect();
    until(|| {
        caches
            .iter()
            .map(|cache| cache.stats().waiters)
            .sum::<usize>()
            == 200
    })
    .await;
    handler.let_go();

    for asked in asking {
        let (status, _, body) = asked.await.unwrap();
        assert_eq!((status, body.as_str()), (StatusCode::OK, "build 1"));
    }
    assert_eq!(handler.builds(), 1);
}

#[tokio::test]
async fn an_entry_of_one_worker_answers_the_requests_of_another() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (one, other) = (cache(&redis), cache(&redis));
    let (first, second) = (
        handler.worker(&layer(&one), text),
        handler.worker(&layer(&other), text),
    );

    ask(&first, "/report").await;
    until(|| redis.command::<i64>(&["DBSIZE"]) >= 2).await;
    let (_, _, body) = ask(&second, "/report").await;

    assert_eq!(body, "build 1");
    assert_eq!(handler.builds(), 1);
}
