//! Two worker processes on one Redis: `cargo run --example workers [-- --redis URL]`.
//!
//! Without `--redis` it starts a `redis-server` for as long as it runs.
#![expect(clippy::print_stdout, reason = "it says what to try")]

mod parts;

use std::{
    error::Error,
    process::{self, ExitCode},
    time::Duration,
};

use axum::{Router, routing::get};
use clap::{Parser, Subcommand};
use parts::{
    offspring::{self, Offspring},
    redis_server::{self, RedisServer},
};
use tokio::{net::TcpListener, time::sleep};
use tower_stampede::{BufferLayer, Cache};

type Failed = Box<dyn Error + Send + Sync>;

/// Two workers that share their entries and builds through one Redis.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Command {
    /// The Redis to share. Default: a server that is started for the occasion.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What this program is when it starts itself.
#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    Worker { redis: String, address: String },
    #[command(hide = true, name = redis_server::KEEPER)]
    RedisKeeper,
}

#[tokio::main]
async fn main() -> ExitCode {
    parts::exit_code(run_role().await)
}

async fn run_role() -> Result<(), Failed> {
    let Command { redis, role } = Command::parse();
    match role {
        Some(Role::Worker { redis, address }) => worker(redis, &address).await,
        Some(Role::RedisKeeper) => Ok(redis_server::keep().await?),
        None => start(redis).await,
    }
}

async fn worker(redis: String, address: &str) -> Result<(), Failed> {
    let cache = Cache::builder().redis(redis).namespace("workers").build()?;
    cache.connect().await;
    let layer = BufferLayer::new(cache).ttl(Duration::from_secs(10));
    let app = Router::new().route("/report", get(expensive)).layer(layer);

    let listener = TcpListener::bind(address).await?;
    println!("{address}");
    tokio::select! {
        served = axum::serve(listener, app) => Ok(served?),
        () = offspring::orphaned() => Ok(()),
    }
}

async fn expensive() -> String {
    sleep(Duration::from_secs(2)).await;
    format!("built by process {}\n", process::id())
}

async fn start(redis: Option<String>) -> Result<(), Failed> {
    #[expect(clippy::single_match_else, reason = "the two ways stand side by side")]
    let (redis, _server) = match redis {
        Some(url) => (url, None),
        None => {
            let server = RedisServer::start().await?;
            (server.url(), Some(server))
        }
    };
    let worker = |address: &str| Offspring::start(["worker", &redis, address].map(Into::into));
    let _workers = (
        worker("127.0.0.1:3001").await?,
        worker("127.0.0.1:3002").await?,
    );

    println!("{TRY}");
    Ok(tokio::signal::ctrl_c().await?)
}

const TRY: &str = "\
Both workers answer for shop.example; whichever is asked, one of them builds. Try:

  for port in 3001 3002 3001 3002; do
    curl -si -H 'Host: shop.example' localhost:$port/report &
  done; wait
";
