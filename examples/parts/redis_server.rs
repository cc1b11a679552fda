//! A `redis-server` of our own on a random port, without persistence.

use std::{env, io, net::TcpListener, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use super::offspring::{self, Offspring};

/// The hidden argument by which this program becomes the keeper of a server.
pub(crate) const KEEPER: &str = "keep-redis-server";

const STARTS: usize = 20;

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
}

/// The keeper: starts the server, announces its URL, and stops it when the parent has ended.
pub(crate) async fn keep() -> io::Result<()> {
    for _ in 0..STARTS {
        let port = free_port()?;
        let (mut server, mut output) = launch(port)?;
        if becomes_ready(&mut output).await {
            announce(&format!("redis://127.0.0.1:{port}/"));
            // Read to the end: the server must never block on a full pipe.
            let drained = async { while let Ok(Some(_)) = output.next_line().await {} };
            tokio::select! {
                () = offspring::orphaned() => {}
                () = drained => {}
            }
            return server.kill().await;
        }
        server.wait().await?;
    }
    Err(io::Error::other("redis-server did not start on any port"))
}

/// Free at this moment; the server may still find it taken, and then another is tried.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn launch(port: u16) -> io::Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let mut server = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .current_dir(env::temp_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = server.stdout.take().expect("stdout is piped");
    Ok((server, BufReader::new(output).lines()))
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
fn announce(url: &str) {
    println!("{url}");
}
