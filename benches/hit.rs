//! What a hit costs, as ratios measured in one run: `cargo bench --bench hit`.
//!
//! A hit on a bare tower service is compared with the same service without the layer, and a hit
//! with an axum router with the router's own route. Both of a pair are driven by the same loop, in
//! turns, so that whatever else the machine does touches both. Every call makes its request, polls
//! the response, and reads the body to its end.
#![expect(clippy::print_stdout, reason = "the report is what it is for")]
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::redundant_clone,
    clippy::similar_names,
    reason = "a bench fails loudly"
)]

use std::{
    convert::Infallible,
    fmt,
    future::Future as _,
    hint::black_box,
    marker::PhantomData,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{Router, body::Body as Incoming, routing::get};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_stampede::{BufferLayer, Cache};

static BODY: [u8; 1024] = [b'x'; 1024];
const ROUNDS: usize = 5_000;
const CALLS: u32 = 100;

fn main() {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let _inside = runtime.enter();
    let layer = BufferLayer::new(Cache::in_memory()).ttl(Duration::from_secs(3600));

    let prepared = response();
    let bare = service_fn(move |_: Request<Incoming>| {
        let response = prepared.clone();
        async move { Ok::<_, Infallible>(response) }
    });
    let mut bare = Subject::new("bare service", bare);
    let mut hit = Subject::new("hit", layer.layer(bare.service.clone())).warmed(&runtime);
    compare(&mut bare, &mut hit, Some(1.3));
    println!(
        "{:>44} {:>5} (goal: at most 8)",
        "allocations of a hit",
        hit.allocations()
    );
    println!("{:>44} {:>5}\n", "of the bare service", bare.allocations());

    let router = Router::new().route("/report", get(async || handler()));
    let mut hit =
        Subject::new("hit before the router", layer.layer(router.clone())).warmed(&runtime);
    let routed = router.clone().layer(layer.clone());
    let mut inside = Subject::new("hit behind the routing", routed).warmed(&runtime);
    let mut route = Subject::new("axum route", router);
    compare(&mut route, &mut hit, Some(0.7));
    compare(&mut route, &mut inside, None);
}

fn response() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(&BODY)));
    *response.headers_mut() = fields();
    response
}

fn handler() -> (HeaderMap, Bytes) {
    (fields(), Bytes::from_static(&BODY))
}

fn fields() -> HeaderMap {
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    let tag = HeaderValue::from_static("\"33a64df551425fcc\"");
    HeaderMap::from_iter([(header::CONTENT_TYPE, text), (header::ETAG, tag)])
}

/// A service to be timed.
struct Subject<S, B> {
    name: &'static str,
    service: S,
    target: Uri,
    response_body: PhantomData<fn() -> B>,
}

impl<S, B> Subject<S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: fmt::Debug> + Clone,
    B: Body<Data = Bytes, Error: fmt::Debug>,
{
    fn new(name: &'static str, service: S) -> Self {
        let target = Uri::from_static("/report?page=2");
        Self {
            name,
            service,
            target,
            response_body: PhantomData,
        }
    }

    /// Calls the service until its answers are hits.
    fn warmed(self, runtime: &Runtime) -> Self {
        let is_hit = |response: Response<_>| {
            let status = &response.headers()["cache-status"];
            status.as_bytes().starts_with(b"stampede; hit")
        };
        runtime.block_on(async {
            while !is_hit(self.answer().await) {
                tokio::task::yield_now().await;
            }
        });
        self
    }

    async fn answer(&self) -> Response<Bytes> {
        let response = self.service.clone().oneshot(self.request()).await;
        let (parts, body) = response.expect("the service answers").into_parts();
        let body = body.collect().await.expect("the body is whole").to_bytes();
        Response::from_parts(parts, body)
    }

    fn request(&self) -> Request<Incoming> {
        let mut request = Request::new(Incoming::empty());
        *request.uri_mut() = self.target.clone();
        let host = HeaderValue::from_static("shop.example");
        request.headers_mut().insert(header::HOST, host);
        request
    }

    /// One call from the request's start to the body's end. Nothing in it has to wait.
    fn call(&mut self, request: Request<Incoming>) {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(
            self.service.poll_ready(&mut cx).is_ready(),
            "the service is ready"
        );
        let polled = pin!(self.service.call(request)).poll(&mut cx);
        let Poll::Ready(Ok(response)) = polled else {
            panic!("the service answers at once");
        };
        let (parts, body) = response.into_parts();
        black_box(parts);
        let mut body = pin!(body);
        while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
            black_box(frame.expect("the body is whole"));
        }
    }

    /// How long one call takes, in nanoseconds.
    fn time(&mut self) -> f64 {
        let start = Instant::now();
        for _ in 0..CALLS {
            let request = self.request();
            self.call(request);
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    }

    /// How many allocations one call makes, the request's own left out.
    fn allocations(&mut self) -> u64 {
        let request = self.request();
        allocation_counter::measure(|| self.call(request)).count_total
    }
}

/// Times both in turns, and prints the ratio of their lower quartiles: a round in which another
/// process had the core is not what is asked for.
fn compare<S, T, B, C>(base: &mut Subject<S, B>, subject: &mut Subject<T, C>, goal: Option<f64>)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: fmt::Debug> + Clone,
    T: Service<Request<Incoming>, Response = Response<C>, Error: fmt::Debug> + Clone,
    B: Body<Data = Bytes, Error: fmt::Debug>,
    C: Body<Data = Bytes, Error: fmt::Debug>,
{
    let (mut bases, mut subjects): (Vec<_>, Vec<_>) =
        (0..ROUNDS).map(|_| (base.time(), subject.time())).unzip();
    let (bases, subjects) = (quartile(&mut bases), quartile(&mut subjects));
    let ratio = format!("{} / {}", subject.name, base.name);
    let goal = goal
        .map(|goal| format!(", goal: at most {goal}"))
        .unwrap_or_default();
    println!(
        "{ratio:>44} {:>5.2} ({subjects:.0} ns / {bases:.0} ns{goal})",
        subjects / bases
    );
}

fn quartile(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 4]
}
