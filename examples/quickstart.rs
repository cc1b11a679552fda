//! Three routes with policies of their own, to try with curl: `cargo run --example quickstart`.
#![expect(clippy::print_stdout, reason = "it says what to try")]

use std::{io, time::Duration};

use axum::{Router, routing::get};
use tokio::{net::TcpListener, time::sleep};
use tower_stampede::{BufferLayer, Cache, Mode};

#[tokio::main]
async fn main() -> io::Result<()> {
    let cache = Cache::in_memory();
    let secs = Duration::from_secs;

    let fresh = BufferLayer::new(cache.clone()).ttl(secs(10));
    let quick = BufferLayer::new(cache.clone())
        .ttl(secs(5))
        .stale_while_revalidate(secs(60));
    let shared = BufferLayer::new(cache).mode(Mode::Coalesce);

    let app = Router::new()
        .route("/report", get(expensive).layer(fresh))
        .route("/feed", get(expensive).layer(quick))
        .route("/search", get(expensive).layer(shared));

    println!("{TRY}");
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await
}

async fn expensive() -> String {
    sleep(Duration::from_secs(2)).await;
    format!("built with luck {}\n", fastrand::u16(..))
}

const TRY: &str = "\
Each answer takes 2 s to build, and says in Cache-Status where it came from. Try:

  curl -i localhost:3000/report                     built once, then kept for 10 s
  curl -i localhost:3000/feed                       once stale, served at once and refreshed behind
  for i in 1 2 3 4; do curl -si 'localhost:3000/search?q=x' & done; wait
                                                    one build for all who ask together; nothing kept
  curl -i -H 'Cookie: a=b' localhost:3000/report    a stranger's cookie: no caching, and it says so
";
