//! One worker: a real axum server on a random loopback port, with one expensive route several times,
//! without the layer and with it in each manner.

use std::{
    io,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    extract::{Request, State},
    middleware::{Next, from_fn},
    response::Response,
    routing::get,
    serve::ListenerExt as _,
};
use clap::Args;
use futures_util::poll;
use http::{HeaderName, HeaderValue, Uri};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tower_stampede::{BufferLayer, Cache};

use crate::{
    Failed,
    cases::{Case, Manner},
    parts::offspring,
};

pub(crate) const UNPROTECTED: &str = "/unprotected";
/// Where a worker says when it built, and forgets it.
pub(crate) const BUILDS: &str = "/builds";

/// The field that says that an answer had to be waited for.
pub(crate) const WAITED: HeaderName = HeaderName::from_static("x-waited");

/// Where a worker says nothing but that it is there.
pub(crate) const READY: &str = "/ready";

/// Where a worker builds at once, and says something else each time: two that say the same share.
pub(crate) const PROBE: &str = "/probe";

/// One run of the handler.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Build {
    /// In microseconds of the machine's clock.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// The query of the request.
    pub(crate) query: String,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct WorkerOptions {
    #[arg(long)]
    pub(crate) case: Case,
    #[arg(long)]
    pub(crate) build_ms: u64,
    #[arg(long)]
    pub(crate) redis_budget_ms: u64,
    #[arg(long)]
    pub(crate) namespace: String,
    #[arg(long)]
    pub(crate) redis: Option<String>,
}

/// Serves until the parent ends.
pub(crate) async fn run(options: WorkerOptions) -> Result<(), Failed> {
    quiet_panics(options.case);
    let cache = cache(&options)?;
    cache.connect().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    announce(&listener)?;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    tokio::select! {
        served = axum::serve(listener, app(&options, &cache)) => served?,
        () = offspring::orphaned() => {}
    }
    Ok(())
}

fn cache(options: &WorkerOptions) -> Result<Cache, Failed> {
    let builder = Cache::builder()
        .namespace(options.namespace.clone())
        .redis_budget(Duration::from_millis(options.redis_budget_ms));
    let builder = match &options.redis {
        Some(url) => builder.redis(url.clone()),
        None => builder,
    };
    Ok(builder.build()?)
}

fn app(options: &WorkerOptions, cache: &Cache) -> Router {
    let build_time = Duration::from_millis(options.build_ms);
    let site = Site {
        case: options.case,
        build_time,
        builds: Arc::default(),
    };
    let app = Router::new()
        .route(UNPROTECTED, get(report))
        .route(READY, get(async || ()))
        .route(BUILDS, get(take_builds));
    let probed = BufferLayer::new(cache.clone()).ttl(Duration::from_secs(60));
    let app = app.route(PROBE, get(probe).layer(probed));
    let protected = |app: Router<Site>, manner: Manner| {
        let layer = options.case.layer(manner, cache.clone(), build_time);
        app.route(manner.path(), get(report).layer(layer))
    };
    let app = Manner::ALL.into_iter().fold(app, protected);
    let app = if options.case.counts_waits() {
        app.layer(from_fn(tell_waits))
    } else {
        app
    };
    app.with_state(site)
}

/// Marks the answers that were not there when their requests came.
async fn tell_waits(request: Request, next: Next) -> Response {
    let mut answering = pin!(next.run(request));
    match poll!(answering.as_mut()) {
        Poll::Ready(response) => response,
        Poll::Pending => {
            let mut response = answering.await;
            let mark = HeaderValue::from_static("1");
            response.headers_mut().insert(WAITED, mark);
            response
        }
    }
}

#[derive(Clone, Debug)]
struct Site {
    case: Case,
    build_time: Duration,
    builds: Arc<Mutex<Vec<Build>>>,
}

async fn probe() -> String {
    format!("{:016x}", fastrand::u64(..))
}

async fn report(State(site): State<Site>, uri: Uri) -> Response {
    let _build = Building {
        began: now(),
        query: uri.query().unwrap_or_default(),
        builds: &site.builds,
    };
    site.case.build(site.build_time).await
}

async fn take_builds(State(site): State<Site>) -> Json<Vec<Build>> {
    let builds = std::mem::take(&mut *site.builds.lock().unwrap_or_else(PoisonError::into_inner));
    Json(builds)
}

/// Notes a build when it ends, in whatever way.
struct Building<'a> {
    began: u64,
    query: &'a str,
    builds: &'a Mutex<Vec<Build>>,
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        let mut builds = self.builds.lock().unwrap_or_else(PoisonError::into_inner);
        builds.push(Build {
            began: self.began,
            ended: now(),
            query: self.query.to_owned(),
        });
    }
}

/// All workers are on one machine: they share this clock.
#[expect(
    clippy::disallowed_methods,
    reason = "builds of several processes are compared"
)]
pub(crate) fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A thousand intended panics say nothing.
fn quiet_panics(case: Case) {
    if case == Case::Panicking {
        std::panic::set_hook(Box::new(|_| {}));
    }
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn announce(listener: &TcpListener) -> io::Result<()> {
    println!("{}", listener.local_addr()?);
    Ok(())
}
