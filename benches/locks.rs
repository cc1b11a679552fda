//! Acquire and release per second, and how soon a waiter holds a lock that was released; in memory,
//! on Redis, and by the crate `rslock` in the same run against the same server.
//!
//! ```text
//! cargo bench --bench locks                             # starts a redis-server of its own
//! cargo bench --bench locks -- redis://127.0.0.1:6379/  # uses yours
//! ```
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a bench prints its figures, spawns freely and knows how many it measured"
)]

use std::{
    env,
    error::Error,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower_stampede::lock::{LockManager, Retry};

const TTL: Duration = Duration::from_secs(10);
const WAKE_UPS: usize = 300;
const ROUNDS: usize = 3;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let given = env::args()
        .skip(1)
        .find(|argument| argument.contains("://"));
    let (_server, url) = if let Some(url) = given {
        (None, url)
    } else {
        let (server, url) = Server::start().await?;
        (Some(server), url)
    };
    println!("acquire + release, uncontended, thousand a second (median of {ROUNDS})");
    println!("  tasks   memory    Redis   rslock    ratio");
    for tasks in [1, 16, 64] {
        throughput(&url, tasks).await?;
    }
    println!("release to held by the waiter, milliseconds");
    println!("                      p50      p99");
    wake_ups(&url).await
}

async fn throughput(url: &str, tasks: usize) -> Outcome<()> {
    let turns = 20_000 / tasks;
    let memory = LockManager::in_memory();
    let redis = LockManager::redis(url)?;
    let rslock = rslock::LockManager::new(vec![url]);
    let mut figures = [const { Vec::new() }; 3];
    // In turn, so that whatever else the machine does meets all of them.
    for _ in 0..ROUNDS {
        figures[0].push(ours(&memory, tasks, turns).await?);
        figures[1].push(ours(&redis, tasks, turns).await?);
        figures[2].push(theirs(&rslock, tasks, turns).await?);
    }
    let [memory, redis, rslock] = figures.map(|mut figures| {
        figures.sort_by(f64::total_cmp);
        figures[ROUNDS / 2]
    });
    let ratio = redis / rslock;
    println!("  {tasks:>5} {memory:>8.1} {redis:>8.1} {rslock:>8.1} {ratio:>8.2}");
    Ok(())
}

async fn ours(locks: &LockManager, tasks: usize, turns: usize) -> Outcome<f64> {
    let mut running = JoinSet::new();
    let started = Instant::now();
    for task in 0..tasks {
        let lock = locks.lock(format!("bench {task}")).ttl(TTL);
        running.spawn(async move {
            for _ in 0..turns {
                assert!(lock.acquire().await?.release().await?.was_held());
            }
            Outcome::Ok(())
        });
    }
    rate(running, started, tasks * turns).await
}

async fn theirs(locks: &rslock::LockManager, tasks: usize, turns: usize) -> Outcome<f64> {
    let mut running = JoinSet::new();
    let started = Instant::now();
    for task in 0..tasks {
        let locks = locks.clone();
        running.spawn(async move {
            let name = format!("rslock {task}");
            for _ in 0..turns {
                let lock = locks.lock(name.as_bytes(), TTL).await?;
                locks.unlock(&lock).await;
            }
            Outcome::Ok(())
        });
    }
    rate(running, started, tasks * turns).await
}

async fn rate(mut running: JoinSet<Outcome<()>>, started: Instant, turns: usize) -> Outcome<f64> {
    while let Some(task) = running.join_next().await {
        task??;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few thousand turns")]
    Ok(turns as f64 / started.elapsed().as_secs_f64() / 1000.0)
}

async fn wake_ups(url: &str) -> Outcome<()> {
    let holder = LockManager::redis(url)?;
    let waiter = LockManager::redis(url)?;
    let waiting = || waiter.lock("wake").ttl(TTL).wait(TTL);
    let polling = |pause| waiting().retry(Retry::linear(Duration::from_millis(pause)));
    for (name, request) in [
        ("push", waiting()),
        ("polling every 10 ms", polling(10)),
        ("polling every 50 ms", polling(50)),
    ] {
        let mut times = Vec::new();
        for turn in 0..WAKE_UPS {
            let guard = holder.lock("wake").ttl(TTL).acquire().await?;
            let request = request.clone();
            let task = tokio::spawn(async move {
                let guard = request.acquire().await?;
                let woken = Instant::now();
                guard.release().await.map(|_| woken)
            });
            // Long enough to be in line, and never in step with the polls.
            sleep(Duration::from_millis(12 + (turn as u64 * 7) % 23)).await;
            let released = Instant::now();
            assert!(guard.release().await?.was_held());
            times.push(task.await??.duration_since(released));
        }
        report(name, times);
    }
    let rslock = rslock::LockManager::new(vec![url]);
    report("rslock, its retries", rslock_wake_ups(&rslock).await?);
    Ok(())
}

async fn rslock_wake_ups(locks: &rslock::LockManager) -> Outcome<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..WAKE_UPS / 10 {
        let held = locks.lock(&b"rslock wake"[..], TTL).await?;
        let waiter = locks.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Ok(lock) = waiter.lock(&b"rslock wake"[..], TTL).await {
                    let woken = Instant::now();
                    waiter.unlock(&lock).await;
                    return woken;
                }
            }
        });
        sleep(Duration::from_millis(15)).await;
        let released = Instant::now();
        locks.unlock(&held).await;
        times.push(task.await?.duration_since(released));
    }
    Ok(times)
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    println!("  {name:<20} {:>8.3} {:>8.3}", at(50), at(99));
}

/// A server of the bench's own, gone with it.
struct Server(Child);

impl Server {
    async fn start() -> Outcome<(Self, String)> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()?;
        let server = Self(process);
        let url = format!("redis://127.0.0.1:{port}/");
        let locks = LockManager::redis(&url)?;
        let patience = Instant::now() + Duration::from_secs(10);
        while let Err(error) = locks.connect().await {
            if Instant::now() > patience {
                return Err(error.into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok((server, url))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already: then both fail, and that is well.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
