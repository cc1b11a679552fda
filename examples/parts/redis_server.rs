//! A `redis-server` of our own on a random port, without persistence, that can be made to fail.

use std::{env, io, net::TcpListener, ops::Range, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use super::offspring::Offspring;

/// The hidden argument by which this program becomes the keeper of a server.
pub(crate) const KEEPER: &str = "keep-redis-server";

/// Below the range from which the system takes the ports of outgoing connections, so that nobody takes the
/// port of a server that is down for a moment.
const PORTS: Range<u16> = 10_000..32_000;

const STARTS: usize = 20;

/// What the keeper can be told to do to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The process stands still: its connections stay open, and nothing answers.
    Freeze,
    Thaw,
    /// The process ends at once: connections break, and new ones are refused.
    Kill,
    /// A new process on the same port, with nothing in it.
    Restart,
}

impl Order {
    const ALL: [Self; 4] = [Self::Freeze, Self::Thaw, Self::Kill, Self::Restart];

    fn word(self) -> &'static str {
        match self {
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Kill => "kill",
            Self::Restart => "restart",
        }
    }
}

/// A server that lives as long as this.
#[derive(Debug)]
pub(crate) struct RedisServer(Offspring);

impl RedisServer {
    /// Starts a server, under a keeper that stops it even if this process is killed.
    pub(crate) async fn start() -> io::Result<Self> {
        if Command::new("redis-server")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .await
            .is_err()
        {
            let advice =
                "redis-server is not installed: install it, or name a server by --redis URL";
            return Err(io::Error::new(io::ErrorKind::NotFound, advice));
        }
        Offspring::start([KEEPER.into()]).await.map(Self)
    }

    pub(crate) fn url(&self) -> String {
        self.0.announcement.clone()
    }

    /// Returns when it is done: a server that was started anew answers then.
    pub(crate) async fn order(&mut self, order: Order) -> io::Result<()> {
        let answer = self.0.order(order.word()).await?;
        if answer == DONE {
            Ok(())
        } else {
            Err(io::Error::other(answer))
        }
    }
}

const DONE: &str = "done";

/// The keeper: starts the server, announces its URL, does to it what it is told, and stops it when the
/// parent has ended.
pub(crate) async fn keep() -> io::Result<()> {
    let mut kept = Kept::start().await?;
    announce(&format!("redis://127.0.0.1:{}/", kept.port));
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    loop {
        // Read to the end: the server must never block on a full pipe.
        let drained = async { while let Ok(Some(_)) = kept.output.next_line().await {} };
        let order = tokio::select! {
            order = orders.next_line() => order,
            () = drained => orders.next_line().await,
        };
        // Whatever happens to the pipe, nobody is at its other end any more.
        let Ok(Some(order)) = order else {
            return kept.server.kill().await;
        };
        match kept.obey(&order).await {
            Ok(()) => announce(DONE),
            Err(error) => announce(&error.to_string()),
        }
    }
}

/// A server in the care of its keeper.
struct Kept {
    server: Child,
    output: Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl Kept {
    async fn start() -> io::Result<Self> {
        for _ in 0..STARTS {
            if let Some(kept) = Self::start_on(free_port()).await? {
                return Ok(kept);
            }
        }
        Err(io::Error::other(
            "redis-server did not start on any of many ports",
        ))
    }

    /// `None`: it ended before it was ready.
    async fn start_on(port: u16) -> io::Result<Option<Self>> {
        let mut server = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(env::temp_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = server.stdout.take().expect("stdout is piped");
        let mut output = BufReader::new(output).lines();
        if becomes_ready(&mut output).await {
            return Ok(Some(Self {
                server,
                output,
                port,
            }));
        }
        server.wait().await?;
        Ok(None)
    }

    async fn obey(&mut self, word: &str) -> io::Result<()> {
        let order = Order::ALL.into_iter().find(|order| order.word() == word);
        match order {
            Some(Order::Freeze) => self.signal("STOP").await,
            Some(Order::Thaw) => self.signal("CONT").await,
            Some(Order::Kill) => self.server.kill().await,
            Some(Order::Restart) => self.restart().await,
            None => Err(io::Error::other(format!("{word}: no such order"))),
        }
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.server.kill().await?;
        for _ in 0..STARTS {
            if let Some(kept) = Self::start_on(self.port).await? {
                *self = kept;
                return Ok(());
            }
        }
        Err(io::Error::other("redis-server did not start again"))
    }

    async fn signal(&self, name: &str) -> io::Result<()> {
        let ended = || io::Error::other("redis-server has ended");
        let process = self.server.id().ok_or_else(ended)?;
        // The shell's own `kill`, since a bare machine has no other.
        let status = Command::new("sh")
            .args(["-c", &format!("kill -{name} {process}")])
            .stdin(Stdio::null())
            .status()
            .await?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("SIG{name} could not be sent")))
        }
    }
}

/// Free at this moment; the server may still find it taken, and then another is tried.
fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(PORTS);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

async fn becomes_ready(output: &mut Lines<BufReader<ChildStdout>>) -> bool {
    while let Ok(Some(line)) = output.next_line().await {
        if line.contains("eady to accept connections") {
            return true;
        }
    }
    false
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn announce(line: &str) {
    println!("{line}");
}
