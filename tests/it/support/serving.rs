//! A service over real HTTP, of either version, with no framework between.

use std::{convert::Infallible, net::SocketAddr};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::net::TcpListener;
use tower::Service;
use tower_stampede::body::Body;

use super::origin::BoxError;

/// Serves on a free port of the loopback address for as long as the runtime lives.
pub async fn serve<S, B>(service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<Body<B>>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            drop(tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                // A client that hangs up is an error here, and none of the server's.
                drop(
                    builder
                        .serve_connection(TokioIo::new(stream), service)
                        .await,
                );
            }));
        }
    }));
    address
}
