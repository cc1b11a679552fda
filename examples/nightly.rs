//! One nightly job, several machines: one runs it, the others say who does and for how long; when
//! the holder is killed, another takes over once its lock has ended.
//!
//! ```text
//! cargo run --example nightly                                # starts a redis-server of its own
//! cargo run --example nightly -- --redis redis://127.0.0.1/  # uses yours
//! ```
#![expect(clippy::print_stdout, reason = "an example tells what it does")]

mod parts;

use std::{
    env,
    error::Error,
    process::{ExitCode, Stdio},
    time::Duration,
};

use clap::{Parser, Subcommand};
use parts::redis_server::{self, RedisServer};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};
use tower_stampede::lock::{Attempt, LockManager};

const JOB: &str = "nightly-report";
const TTL: Duration = Duration::from_secs(2);

type Failed = Box<dyn Error + Send + Sync>;

/// One job that must run once, and many machines that could run it.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    /// The Redis to use. Default: a server that is started for the occasion.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// How many processes contend.
    #[arg(long, default_value_t = 4)]
    workers: usize,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What this program is when it starts itself.
#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    Worker {
        redis: String,
        name: String,
        /// How long the job takes, in milliseconds.
        takes: u64,
    },
    #[command(hide = true, name = redis_server::KEEPER)]
    RedisKeeper,
}

#[tokio::main]
async fn main() -> ExitCode {
    parts::exit_code(run_role().await)
}

async fn run_role() -> Result<(), Failed> {
    let options = Options::parse();
    match (options.role, options.redis) {
        (Some(Role::RedisKeeper), _) => Ok(redis_server::keep().await?),
        (Some(Role::Worker { redis, name, takes }), _) => {
            work(&redis, &name, Duration::from_millis(takes)).await
        }
        (None, Some(redis)) => conduct(&redis, options.workers).await,
        (None, None) => {
            let server = RedisServer::start().await?;
            conduct(&server.url(), options.workers).await
        }
    }
}

/// One process of many.
async fn work(redis: &str, name: &str, takes: Duration) -> Result<(), Failed> {
    let locks = LockManager::redis(redis)?;
    assert!(locks.is_shared(), "only one machine runs the job");
    let lock = locks
        .lock(JOB)
        .ttl(TTL)
        .auto_extend()
        .fencing()
        .metadata(format!("{name}, process {}", std::process::id()));

    match lock.try_acquire().await? {
        Attempt::Acquired(guard) => {
            let number = guard.fencing_number().unwrap_or_default();
            println!("{name}: I run the job (fencing number {number})");
            tokio::select! {
                () = sleep(takes) => println!("{name}: done"),
                () = guard.lost() => println!("{name}: I lost the lock and stop"),
            }
            if guard.release().await?.was_held() {
                println!("{name}: released");
            }
        }
        Attempt::Busy(_) | Attempt::AlreadyHeld(_) => match lock.holder().await? {
            Some(holder) => println!(
                "{name}: {} runs it already, for another {:.1} s unless it extends",
                String::from_utf8_lossy(holder.metadata()),
                holder
                    .remaining()
                    .duration()
                    .map_or(f64::INFINITY, |left| left.as_secs_f64()),
            ),
            None => println!("{name}: somebody ran it and is done"),
        },
    }
    Ok(())
}

/// Starts the workers, twice: in peace, and with the holder killed.
async fn conduct(redis: &str, workers: usize) -> Result<(), Failed> {
    println!("-- {workers} machines, one job");
    let mut running = Vec::new();
    for number in 1..=workers {
        running.push(start(redis, &format!("worker {number}"), 1500)?);
    }
    for mut worker in running {
        worker.wait().await?;
    }

    println!("-- the machine that runs it dies");
    let locks = LockManager::redis(redis)?;
    let mut victim = start(redis, "victim", 60_000)?;
    while !locks.lock(JOB).is_held().await? {
        sleep(Duration::from_millis(5)).await;
    }
    victim.kill().await?;
    println!("victim: killed");
    let died = Instant::now();
    let guard = locks
        .lock(JOB)
        .ttl(TTL)
        .wait(Duration::from_secs(30))
        .acquire()
        .await?;
    println!(
        "successor: took over {:.1} s after the death, the lock's time to live is {} s",
        died.elapsed().as_secs_f64(),
        TTL.as_secs()
    );
    assert!(guard.release().await?.was_held());
    Ok(())
}

fn start(redis: &str, name: &str, takes: u64) -> Result<Child, Failed> {
    let worker = Command::new(env::current_exe()?)
        .args(["worker", redis, name, &takes.to_string()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    Ok(worker)
}
