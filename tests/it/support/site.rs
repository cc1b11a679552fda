//! Workers that serve real HTTP in processes of their own, with the defaults that people have, and count their
//! builds where no fault of Redis reaches.

use std::{
    collections::HashMap,
    convert::Infallible,
    env,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    sync::watch,
    task::JoinHandle,
};
use tower::Layer as _;
use tower_stampede::{BufferLayer, Cache};

use super::{
    process::{MARK, Process},
    serving,
    worker::AMPLE,
};

// ===== the test's side =====

/// One worker. It is killed when this is dropped.
pub struct Site {
    process: Process,
    address: SocketAddr,
    client: Client<HttpConnector, Empty<Bytes>>,
}

/// What one request got.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub outcome: String,
    pub text: String,
}

impl Site {
    /// Starts a worker on the Redis at `url`: the ignored test of this name, which calls [`work`].
    pub async fn start(url: &str, test: &str) -> Self {
        let process = Process::at(url, test);
        let address = process.order("address").await.parse().unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self {
            process,
            address,
            client,
        }
    }

    pub fn get(&self, path: &str) -> impl Future<Output = Reply> + Send + use<> {
        let uri = format!("http://{}{path}", self.address);
        let request = Request::get(uri).header("host", "shop.example");
        let request = request.body(Empty::new()).unwrap();
        let asked = self.client.request(request);
        async move {
            let response = asked.await.expect("every request is answered");
            let (head, body) = response.into_parts();
            let outcome = head.headers["cache-status"].to_str().unwrap();
            let body = body.collect().await.expect("every answer is whole");
            Reply {
                status: head.status,
                outcome: outcome.to_owned(),
                text: String::from_utf8(body.to_bytes().to_vec()).unwrap(),
            }
        }
    }

    /// Sends `count` requests at the same time.
    pub fn herd(&self, path: &str, count: usize) -> Vec<JoinHandle<Reply>> {
        (0..count).map(|_| tokio::spawn(self.get(path))).collect()
    }

    /// Builds wait from now on.
    pub async fn hold(&self) {
        self.process.order("hold").await;
    }

    pub async fn let_go(&self) {
        self.process.order("let-go").await;
    }

    /// How often it has built `path`.
    pub async fn builds(&self, path: &str) -> usize {
        self.number(&format!("builds {path}")).await
    }

    /// Returns once `count` requests wait.
    pub async fn waiting(&self, count: usize) {
        let wait = async { while self.number("waiters").await != count {} };
        tokio::time::timeout(AMPLE, wait).await.expect("they wait");
    }

    async fn number(&self, order: &str) -> usize {
        self.process.order(order).await.parse().unwrap()
    }
}

// ===== the worker's side =====

#[derive(Clone)]
struct Work {
    cache: Cache,
    address: SocketAddr,
    builds: Arc<Mutex<HashMap<String, usize>>>,
    held: watch::Sender<bool>,
}

/// Serves, and does what it is told, until its parent ends.
pub async fn work() {
    let url = env::var("REDIS_OF_WORKER").expect("the test gives it");
    let cache = Cache::builder().redis(url).build().unwrap();
    let builds = Arc::<Mutex<HashMap<String, usize>>>::default();
    let held = watch::Sender::new(false);
    // Whoever waits is let go by the test.
    let layer = BufferLayer::new(cache.clone())
        .ttl(Duration::from_secs(600))
        .wait_timeout(AMPLE);
    let site = tower::service_fn({
        let (builds, held) = (Arc::clone(&builds), held.clone());
        move |request: Request<Incoming>| build(request, Arc::clone(&builds), held.subscribe())
    });
    let work = Work {
        address: serving::serve(layer.layer(site)).await,
        cache,
        builds,
        held,
    };
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = orders.next_line().await {
        let (number, order) = line.split_once(' ').unwrap();
        println!("{MARK}{number} {}", work.obey(order));
    }
}

/// What is built says what it is of, and whose.
async fn build(
    request: Request<Incoming>,
    builds: Arc<Mutex<HashMap<String, usize>>>,
    mut held: watch::Receiver<bool>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let number = {
        let mut builds = builds.lock().unwrap();
        let number = builds.entry(path.clone()).or_default();
        *number += 1;
        *number
    };
    held.wait_for(|held| !held).await.unwrap();
    let text = format!("{path} by {}, {number}", std::process::id());
    Ok(Response::new(Full::from(text)))
}

impl Work {
    fn obey(&self, order: &str) -> String {
        match order.split_once(' ').unwrap_or((order, "")) {
            ("address", _) => self.address.to_string(),
            ("waiters", _) => self.cache.stats().waiters.to_string(),
            ("builds", path) => {
                let builds = self.builds.lock().unwrap();
                builds.get(path).copied().unwrap_or(0).to_string()
            }
            (order @ ("hold" | "let-go"), _) => {
                self.held.send_replace(order == "hold");
                "done".to_owned()
            }
            (order, _) => panic!("{order}?"),
        }
    }
}
