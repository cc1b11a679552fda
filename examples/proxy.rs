//! A caching reverse proxy in front of any origin.
//!
//! ```text
//! cargo run --release --example proxy -- --listen 127.0.0.1:8080 --origin http://127.0.0.1:9000
//! ```
//!
//! It stores what responses say may be stored, for as long as they say, and nothing else. All that the
//! RFCs permit and the layer leaves off by default is on: heuristic freshness, errors with a lifetime
//! of their own, stale responses while the origin is down, and what clients ask for.
#![expect(clippy::print_stdout, reason = "an example")]

use std::{convert::Infallible, error::Error, net::SocketAddr, time::Duration};

use axum::body::Body;
use clap::Parser;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version,
    header::{
        CONNECTION, COOKIE, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING,
        UPGRADE, VIA,
    },
    uri::{Authority, PathAndQuery, Scheme},
};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::{
    client::legacy::{self, Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer as _, ServiceExt as _, service_fn, util::BoxCloneSyncService};
use tower_stampede::{BufferLayer, Cache, RequestDirectives};

#[derive(Parser)]
struct Options {
    /// Where clients connect.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Whose responses are cached.
    #[arg(long, default_value = "http://127.0.0.1:9000")]
    origin: Uri,
    /// A Redis that several proxies share.
    #[arg(long)]
    redis: Option<String>,
    /// The languages that the origin has, in its own order: `de,en`. Requests are reduced to them;
    /// otherwise what they like is only put in order.
    #[arg(long, value_delimiter = ',')]
    languages: Vec<String>,
}

/// Shorter than servers keep an idle connection (5 s in Node), so that none closes under a request.
const IDLE: Duration = Duration::from_secs(2);

type BoxError = Box<dyn Error + Send + Sync>;
type Proxy = BoxCloneSyncService<Request<Incoming>, Response<Body>, Infallible>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let options = Options::parse();
    let cache = match &options.redis {
        Some(url) => Cache::builder()
            .failure_memo(Duration::ZERO)
            .redis(url)
            .build()?,
        None => Cache::builder().failure_memo(Duration::ZERO).build()?,
    };
    let proxy = proxy(cache, &options)?;
    let listener = TcpListener::bind(options.listen).await?;
    println!(
        "http://{} caches {}",
        listener.local_addr()?,
        options.origin
    );
    loop {
        let (stream, _peer) = listener.accept().await?;
        serve(stream, proxy.clone());
    }
}

#[expect(clippy::disallowed_methods, reason = "a task of the example's own")]
fn serve(stream: TcpStream, proxy: Proxy) {
    drop(tokio::spawn(async move {
        drop(stream.set_nodelay(true));
        let service = TowerToHyperService::new(proxy);
        let server = auto::Builder::new(TokioExecutor::new());
        let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            tracing::debug!(error, "a connection failed");
        }
    }));
}

fn proxy(cache: Cache, options: &Options) -> Result<Proxy, BoxError> {
    let layer = BufferLayer::new(cache)
        .heuristic_freshness(Duration::from_secs(24 * 3600))
        .stale_if_error(Duration::from_secs(24 * 3600))
        .allow_error_statuses()
        .allow_authorization()
        .allow_ignored_cookies()
        .allow_set_cookie()
        .allow_csp_nonce()
        .request_directives(RequestDirectives::Honour)
        .normalize_accept_language(&options.languages);
    let origin = Origin::new(&options.origin)?;
    let cached = layer.layer(service_fn(move |request| origin.clone().forward(request)));
    let proxy = service_fn(move |request: Request<Incoming>| {
        let cached = cached.clone();
        async move {
            Ok::<_, Infallible>(if names_one_host(&request) {
                answer(cached.oneshot(request).await)
            } else {
                refuse(StatusCode::BAD_REQUEST)
            })
        }
    });
    Ok(BoxCloneSyncService::new(proxy))
}

/// An origin that cannot be reached is a 502; the layer saw the error itself, and all fields of what
/// the origin said.
fn answer<B>(result: Result<Response<B>, legacy::Error>) -> Response<Body>
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    match result {
        Ok(mut response) => {
            // The proxy's own, whatever the origin speaks (RFC 9110 section 6.2).
            *response.version_mut() = Version::HTTP_11;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                strip_hop_by_hop(response.headers_mut());
            }
            response.map(Body::new)
        }
        Err(error) => {
            tracing::warn!(%error, "the origin does not answer");
            refuse(StatusCode::BAD_GATEWAY)
        }
    }
}

/// HTTP/1.1 requests have exactly one `Host` (RFC 9112 section 3.2).
fn names_one_host<B>(request: &Request<B>) -> bool {
    let hosts = request.headers().get_all(HOST).iter().count();
    match request.version() {
        Version::HTTP_11 => hosts == 1,
        _ => hosts <= 1,
    }
}

fn refuse(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = status;
    response
}

/// The server that the proxy stands for.
#[derive(Clone)]
struct Origin {
    client: Client<HttpConnector, Incoming>,
    scheme: Scheme,
    authority: Authority,
}

impl Origin {
    fn new(uri: &Uri) -> Result<Self, BoxError> {
        let authority = uri.authority().ok_or("the origin has no host")?.clone();
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Ok(Self {
            client: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .build(connector),
            scheme: uri.scheme().cloned().unwrap_or(Scheme::HTTP),
            authority,
        })
    }

    async fn forward(
        self,
        mut request: Request<Incoming>,
    ) -> Result<Response<Incoming>, legacy::Error> {
        let protocol = request.headers().get(UPGRADE).cloned();
        let client_side = protocol.map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
        strip_hop_by_hop(request.headers_mut());
        self.address(&mut request);
        join_cookies(request.headers_mut());
        if let Some((protocol, _)) = &client_side {
            restore_upgrade(request.headers_mut(), protocol);
        }
        let mut response = self.client.request(request).await?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if let Some((protocol, client_side)) = client_side.filter(|_| switched) {
            restore_upgrade(response.headers_mut(), &protocol);
            tunnel(client_side, hyper::upgrade::on(&mut response));
        }
        Ok(response)
    }

    /// Sends the request to the origin; its `Host` stays the client's, unless the target itself names
    /// one (RFC 9112 section 3.2.2).
    fn address<B>(&self, request: &mut Request<B>) {
        if let Some(authority) = request.uri().authority()
            && let Ok(host) = HeaderValue::try_from(authority.as_str())
        {
            request.headers_mut().insert(HOST, host);
        }
        let mut parts = request.uri().clone().into_parts();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = parts
            .path_and_query
            .or(Some(PathAndQuery::from_static("/")));
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        let received = match request.version() {
            Version::HTTP_2 => "2 tower-stampede",
            Version::HTTP_10 => "1.0 tower-stampede",
            _ => "1.1 tower-stampede",
        };
        request
            .headers_mut()
            .append(VIA, HeaderValue::from_static(received));
        *request.version_mut() = Version::HTTP_11;
    }
}

/// HTTP/2 may send cookies one by one; HTTP/1.1 has one field for them (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let lines = headers.get_all(COOKIE).iter();
    let cookies: Vec<_> = lines.map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

fn restore_upgrade(headers: &mut HeaderMap, protocol: &HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol.clone());
}

/// Takes out what is meant for the next hop alone (RFC 9110 section 7.6.1).
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| name != HOST)
        .collect();
    for name in listed {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ] {
        headers.remove(name);
    }
}

#[expect(clippy::disallowed_methods, reason = "a task of the example's own")]
fn tunnel(client: OnUpgrade, origin: OnUpgrade) {
    drop(tokio::spawn(async move {
        let (Ok(client), Ok(origin)) = (client.await, origin.await) else {
            return;
        };
        let (mut client, mut origin) = (TokioIo::new(client), TokioIo::new(origin));
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut origin).await {
            tracing::debug!(%error, "a tunnel broke");
        }
    }));
}
