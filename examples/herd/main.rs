//! A herd on an expensive handler, without and with the layer: `cargo run --release --example herd`.
//!
//! Starts workers as processes of their own, each an axum server on a loopback port, opens and warms one
//! connection for each request, and sends all requests at once. The handler only waits (`--build-ms`),
//! so that what is counted, builds, is what would have been work.
//!
//! One worker needs no server at all. More of them share a Redis: the one that `--redis` names, or a
//! `redis-server` that is started for the occasion. The cases `redis-frozen`, `redis-killed` and
//! `redis-flapping` always start their own, do that to it while the herd goes on, and tell what it cost.
//! When this program ends, in whatever way, so do the others.

#![expect(
    clippy::needless_collect,
    reason = "an iterator that borrows does not live across an await"
)]

mod cases;
mod client;
mod faults;
mod fleet;
mod healing;
#[path = "../parts/mod.rs"]
mod parts;
mod redis_commands;
mod report;
mod run;
mod trouble;
mod worker;

use std::{error::Error, process::ExitCode};

use clap::{Parser, Subcommand};
use parts::redis_server;
use report::Format;
use tokio::runtime::Builder;
use worker::WorkerOptions;

use crate::cases::Case;

type Failed = Box<dyn Error + Send + Sync>;

/// Sends a herd of requests at an expensive handler, without and with the layer.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Command {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(clap::Args, Clone, Debug)]
struct Options {
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Requests, each on a connection of its own.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    requests: u32,
    /// How long the handler takes, in milliseconds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    build_ms: u64,
    /// For how long Redis may hold up one request, in milliseconds.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    redis_budget_ms: u64,
    /// The Redis that the workers share. Without it, several workers get a server of their own.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Which case; may be repeated. Default: all but those in which Redis fails.
    #[arg(long = "case")]
    cases: Vec<Case>,
    /// Print JSON, one object on a line for each case.
    #[arg(long)]
    json: bool,
}

/// What this program is when it starts itself.
#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    Worker(WorkerOptions),
    #[command(hide = true, name = redis_server::KEEPER)]
    RedisKeeper,
}

fn main() -> ExitCode {
    let Command { options, role } = Command::parse();
    parts::exit_code(match role {
        // As any server.
        Some(Role::Worker(options)) => run(Builder::new_multi_thread(), worker::run(options)),
        Some(Role::RedisKeeper) => run(Builder::new_current_thread(), async {
            Ok(redis_server::keep().await?)
        }),
        // The clients: on one thread they take less from the workers, whose machine they share.
        None => run(Builder::new_current_thread(), herd(options)),
    })
}

fn run(
    mut threads: Builder,
    program: impl Future<Output = Result<(), Failed>>,
) -> Result<(), Failed> {
    threads.enable_all().build()?.block_on(program)
}

async fn herd(mut options: Options) -> Result<(), Failed> {
    // Children inherit it: each end of a connection is an open file. What is not to be had is told
    // by the connection that fails.
    drop(rlimit::increase_nofile_limit(u64::MAX));
    if options.cases.is_empty() {
        options.cases = Case::usual();
    }
    let (failing, sharing): (Vec<Case>, Vec<Case>) = options
        .cases
        .iter()
        .partition(|case| case.fault().is_some());
    if let (Some(_), Some(case)) = (&options.redis, failing.first()) {
        let case = case.name();
        return Err(format!("{case} has a Redis of its own fail: leave --redis out").into());
    }
    let needs_server = options.redis.is_none() && options.workers > 1 && !sharing.is_empty();
    let _server = if needs_server {
        let server = redis_server::RedisServer::start().await?;
        options.redis = Some(server.url());
        Some(server)
    } else {
        None
    };
    let format = if options.json {
        Format::Json
    } else {
        Format::Table
    };
    format.begin(&options);
    for &case in &options.cases {
        for outcome in run::case(case, &options).await? {
            format.print(&outcome)?;
        }
    }
    Ok(())
}
