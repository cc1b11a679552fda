//! Whether more connections to one Redis help: small scripts, many at a time, and small scripts
//! beside large values, over one connection for each purpose as the cache has them, and over several.
//!
//! ```text
//! cargo bench --bench connections -- redis://127.0.0.1:6379/
//! ```
//!
//! What it writes there is under `bench:` and gone after a minute.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::{
    env,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{Client, Script, aio::MultiplexedConnection};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

const TIME: Duration = Duration::from_secs(2);

/// What a claim of a cold key costs the server, nearly.
const CLAIM: &str = "
redis.call('TIME')
redis.call('ZSCORE', KEYS[1], '#')
redis.call('GETRANGE', KEYS[2], 0, 113)
redis.call('GET', KEYS[3])
return redis.call('SET', KEYS[3], ARGV[1], 'NX', 'PX', 1000)";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Connections that are used in turn.
#[derive(Clone)]
struct Pool(Vec<MultiplexedConnection>);

impl Pool {
    async fn open(client: &Client, size: usize) -> Outcome<Self> {
        let mut all = Vec::new();
        for _ in 0..size {
            all.push(client.get_multiplexed_async_connection().await?);
        }
        Ok(Self(all))
    }

    fn of(&self, task: usize) -> Outcome<MultiplexedConnection> {
        let at = task % self.0.len();
        self.0
            .get(at)
            .cloned()
            .ok_or_else(|| "no connection".into())
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let url = env::args()
        .skip(1)
        .find(|argument| argument.contains("://"))
        .ok_or("name a server: redis://…")?;
    let client = Client::open(url)?;
    println!("small scripts: thousand a second, p50 and p99 in ms");
    for tasks in [1, 64] {
        for size in [1, 2, 4] {
            let small = Pool::open(&client, size).await?;
            let figures = measure(tasks, move |task, stop| claims(small.of(task), stop)).await?;
            println!("  {tasks:2} tasks, {size} connections: {figures}");
        }
    }
    for mebibytes in [1, 4] {
        let value = vec![b'.'; mebibytes << 20];
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut set = redis::cmd("SET");
        set.arg("bench:large").arg(value).arg("EX").arg(60);
        set.exec_async(&mut connection).await?;
        println!(
            "8 readers of {mebibytes} MiB, and 16 small scripts beside them on a connection of their own"
        );
        for size in [1, 2, 4] {
            beside(&client, size).await?;
        }
    }
    Ok(())
}

async fn beside(client: &Client, size: usize) -> Outcome<()> {
    let large = Pool::open(client, size).await?;
    let small = Pool::open(client, 1).await?;
    let reading = measure(8, move |task, stop| reads(large.of(task), stop));
    let claiming = measure(16, move |task, stop| claims(small.of(task), stop));
    let (large, small) = tokio::try_join!(reading, claiming)?;
    println!("  {size} connections for large values: large {large}; small {small}");
    Ok(())
}

async fn claims(
    connection: Outcome<MultiplexedConnection>,
    stop: Arc<AtomicBool>,
) -> Outcome<Vec<f64>> {
    let (mut connection, script) = (connection?, Script::new(CLAIM));
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let key = format!("bench:{:x}", fastrand::u32(..));
        let start = Instant::now();
        let mut call = script.key("bench:tags");
        call.key("bench:entry").key(key).arg("token");
        call.invoke_async::<Option<String>>(&mut connection).await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

async fn reads(
    connection: Outcome<MultiplexedConnection>,
    stop: Arc<AtomicBool>,
) -> Outcome<Vec<f64>> {
    let mut connection = connection?;
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let value: Vec<u8> = redis::cmd("GET")
            .arg("bench:large")
            .query_async(&mut connection)
            .await?;
        drop(value);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

async fn measure<F>(
    tasks: usize,
    work: impl Fn(usize, Arc<AtomicBool>) -> F + Send,
) -> Outcome<String>
where
    F: Future<Output = Outcome<Vec<f64>>> + Send + 'static,
{
    let stop = Arc::new(AtomicBool::new(false));
    let mut all = JoinSet::new();
    for task in 0..tasks {
        all.spawn(work(task, Arc::clone(&stop)));
    }
    let start = Instant::now();
    sleep(TIME).await;
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    while let Some(measured) = all.join_next().await {
        times.extend(measured??);
    }
    let rate = f64::from(u32::try_from(times.len())?) / start.elapsed().as_secs_f64() / 1e3;
    times.sort_by(f64::total_cmp);
    let percentile = |percent: usize| {
        let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(at).copied().unwrap_or_default()
    };
    let (half, most) = (percentile(50), percentile(99));
    Ok(format!("{rate:.2} k/s, {half:.2} and {most:.2} ms"))
}
