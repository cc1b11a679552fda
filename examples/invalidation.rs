//! Writes that purge what they change: `cargo run --example invalidation`.
//!
//! A handler says by which tags its response can be purged; the one that writes has the cache in its
//! state, and purges. With `.redis(..)` the same reaches every worker before the purge returns.
#![expect(clippy::print_stdout, reason = "it says what to try")]

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{FromRef, Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, time::sleep};
use tower_stampede::{BufferLayer, Cache, CacheTags, CacheTtl, NoCache, Target};

type Prices = Arc<Mutex<BTreeMap<String, String>>>;

/// What handlers share. Each takes the part that it needs.
#[derive(Clone, FromRef)]
struct Shop {
    cache: Cache,
    prices: Prices,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let cache = Cache::in_memory();
    let layer = BufferLayer::new(cache.clone())
        .ttl(Duration::from_secs(600))
        .stale_while_revalidate(Duration::from_secs(600))
        .tags(["shop"]);
    let shop = Shop {
        cache,
        prices: Prices::default(),
    };

    let app = Router::new()
        .route("/prices", get(list))
        .route("/prices/{name}", get(show).put(change))
        .layer(layer)
        .route("/refresh", get(|| async {}).post(refresh))
        .with_state(shop);

    println!("{TRY}");
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await
}

/// Changes with every price.
async fn list(State(prices): State<Prices>) -> impl IntoResponse {
    sleep(Duration::from_secs(1)).await;
    let prices = prices.lock().unwrap_or_else(PoisonError::into_inner);
    (CacheTags::new(["prices"]), format!("{prices:#?}\n"))
}

/// Changes with one of them. That there is none is worth nothing.
async fn show(State(prices): State<Prices>, Path(name): Path<String>) -> Response {
    sleep(Duration::from_secs(1)).await;
    let prices = prices.lock().unwrap_or_else(PoisonError::into_inner);
    match prices.get(&name) {
        Some(price) => {
            let ttl = CacheTtl::new(Duration::from_secs(60));
            (ttl, CacheTags::new([&name]), format!("{price}\n")).into_response()
        }
        None => (StatusCode::NOT_FOUND, NoCache, "no such price\n").into_response(),
    }
}

/// What reads this price is purged by its tag. (Its own page would be without that: it is the target
/// of a write that has succeeded.)
async fn change(
    State(Shop { cache, prices }): State<Shop>,
    Path(name): Path<String>,
    price: String,
) -> Result<String, (StatusCode, String)> {
    write(&prices, name, price);
    let purged = cache.purge_tag("prices").await;
    // The write is done: other workers may serve the old list until it expires.
    let purged = purged.map_err(|error| (StatusCode::ACCEPTED, format!("{error}\n")))?;
    Ok(format!(
        "heeded by {} of {:?} processes\n",
        purged.acknowledged, purged.processes
    ))
}

fn write(prices: &Prices, name: String, price: String) {
    let mut prices = prices.lock().unwrap_or_else(PoisonError::into_inner);
    prices.insert(name, price);
}

/// Nobody waits for what this makes stale: it is served while it is refreshed.
async fn refresh(State(cache): State<Cache>) -> StatusCode {
    match cache.soft_purge(Target::tag("shop")).await {
        Ok(_) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

const TRY: &str = "\
Each page takes 1 s to build, and says in Cache-Status where it came from. Try:

  curl -X PUT -d '3 EUR' localhost:3000/prices/tea
  curl -i localhost:3000/prices                     built; the second time it is there
  curl -X PUT -d '4 EUR' localhost:3000/prices/tea  purges the list
  curl -i localhost:3000/prices                     built anew
  curl -X POST localhost:3000/refresh               makes everything stale
  curl -i localhost:3000/prices                     served at once, and refreshed behind
";
