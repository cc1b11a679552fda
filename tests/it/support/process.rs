//! Worker processes: each is this test binary again, and does what it is told on its standard input.
//!
//! All of a fleet share a Redis, in which they also number their builds.

use std::{
    collections::HashMap,
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tokio::sync::oneshot;

use super::{
    redis::{RedisServer, signal, until_it_stands_still},
    worker::AMPLE,
};

/// What a worker's lines begin with, among those of the test harness.
pub const MARK: &str = "> ";
/// Where a fleet numbers its builds, in the namespace of nobody.
pub const BUILDS: &str = "builds-of-the-fleet";
/// Where it says whether builds are held: they are, while this is there.
pub const HELD: &str = "builds-are-held";

type Waiting = Arc<Mutex<HashMap<usize, oneshot::Sender<String>>>>;

/// A running worker. It is killed when this is dropped.
pub struct Process {
    child: Child,
    orders: Mutex<ChildStdin>,
    waiting: Waiting,
    next: AtomicUsize,
}

impl Process {
    /// Starts a worker: the ignored test of this name.
    pub fn start(redis: &RedisServer, test: &str) -> Self {
        Self::at(&redis.url(), test)
    }

    /// The same, with another way to its Redis.
    pub fn at(url: &str, test: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env("REDIS_OF_WORKER", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let waiting = Waiting::default();
        let told = Arc::clone(&waiting);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let reply = line
                    .strip_prefix(MARK)
                    .and_then(|line| line.split_once(' '));
                if let Some((number, reply)) = reply {
                    let waits = told.lock().unwrap().remove(&number.parse().unwrap());
                    drop(waits.unwrap().send(reply.to_owned()));
                }
            }
        });
        Self {
            orders: Mutex::new(child.stdin.take().unwrap()),
            child,
            waiting,
            next: AtomicUsize::new(0),
        }
    }

    /// Orders something; the answer is what is awaited.
    pub fn order(&self, order: &str) -> impl Future<Output = String> + use<> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap().insert(number, answer);
        writeln!(self.orders.lock().unwrap(), "{number} {order}").unwrap();
        let order = order.to_owned();
        async move {
            let answer = tokio::time::timeout(AMPLE, answered).await;
            answer
                .unwrap_or_else(|_| panic!("{order}: no answer"))
                .unwrap()
        }
    }

    /// The body and the outcome of a GET.
    pub async fn get(&self, path: &str) -> (String, String) {
        let answer = self.order(&format!("get {path}")).await;
        let (body, outcome) = answer.split_once(" | ").unwrap();
        (body.to_owned(), outcome.to_owned())
    }

    /// The process stands still, with all its threads.
    pub fn freeze(&self) {
        signal(&self.child, "STOP");
        until_it_stands_still(self.child.id());
    }

    pub fn thaw(&self) {
        signal(&self.child, "CONT");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
