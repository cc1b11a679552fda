//! One nightly job, several machines: one runs it, the others say who does and for how long; when
//! the holder is killed, another takes over once its lock has ended.
//!
//! ```text
//! cargo run --example nightly                                # starts a redis-server of its own
//! cargo run --example nightly -- --redis redis://127.0.0.1/  # uses yours
//! ```
#![expect(clippy::print_stdout, reason = "an example tells what it does")]

use std::{
    env,
    error::Error,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use clap::Parser;
use tokio::time::{Instant, sleep};
use tower_stampede::lock::{Attempt, LockManager};

const JOB: &str = "nightly-report";
const TTL: Duration = Duration::from_secs(2);

#[derive(Parser)]
struct Options {
    /// The Redis to use; without it one is started for the example.
    #[arg(long)]
    redis: Option<String>,
    /// How many processes contend.
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Be the worker of this name (what the example starts the other processes with).
    #[arg(long, requires = "redis")]
    worker: Option<String>,
    /// How long the job takes, in milliseconds.
    #[arg(long, default_value_t = 1500)]
    work: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    match (&options.redis, &options.worker) {
        (Some(redis), Some(name)) => work(redis, name, Duration::from_millis(options.work)).await,
        (Some(redis), None) => conduct(redis, options.workers).await,
        (None, _) => {
            let server = Server::start().await?;
            conduct(&server.url, options.workers).await
        }
    }
}

/// One process of many.
async fn work(redis: &str, name: &str, takes: Duration) -> Result<(), Box<dyn Error>> {
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
async fn conduct(redis: &str, workers: usize) -> Result<(), Box<dyn Error>> {
    println!("-- {workers} machines, one job");
    let mut running = Vec::new();
    for number in 1..=workers {
        running.push(start(redis, &format!("worker {number}"), 1500)?);
    }
    for mut worker in running {
        worker.wait()?;
    }

    println!("-- the machine that runs it dies");
    let locks = LockManager::redis(redis)?;
    let mut victim = start(redis, "victim", 60_000)?;
    while !locks.lock(JOB).is_held().await? {
        sleep(Duration::from_millis(5)).await;
    }
    victim.kill()?;
    victim.wait()?;
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

fn start(redis: &str, name: &str, work: u64) -> Result<Child, Box<dyn Error>> {
    let worker = Command::new(env::current_exe()?)
        .args(["--redis", redis, "--worker", name])
        .args(["--work", &work.to_string()])
        .spawn()?;
    Ok(worker)
}

/// A server of the example's own, gone with it.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    async fn start() -> Result<Self, Box<dyn Error>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server cannot be started ({error}): use --redis"))?;
        let server = Self {
            process,
            url: format!("redis://127.0.0.1:{port}/"),
        };
        let locks = LockManager::redis(&server.url)?;
        let patience = Instant::now() + Duration::from_secs(10);
        while let Err(error) = locks.connect().await {
            if Instant::now() > patience {
                return Err(error.into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already: then both fail, and that is well.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
