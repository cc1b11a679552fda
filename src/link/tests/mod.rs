//! The link on a real server, through a proxy that fails on demand.

mod commands;
mod faults;
mod logs;
mod runtimes;
mod scripts;
mod subscription;

use std::time::Duration;

use redis::{Client, Cmd};
use tokio::time::{Instant, sleep, timeout};

use super::{
    support::{proxy::FaultProxy, redis::RedisServer},
    *,
};

/// What a machine under load may take for what takes milliseconds by itself.
const AMPLE: Duration = Duration::from_secs(10);

fn settings() -> Settings {
    Settings {
        connect_timeout: Duration::from_millis(250),
        command_timeout: Duration::from_millis(250),
        name: "commands",
    }
}

fn link(client: &Client) -> Link {
    Link::new(client, settings())
}

/// A link that has sent its first command, and the proxy and the server behind it.
async fn connected() -> (Link, FaultProxy, RedisServer) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let link = link(&proxy.client());
    assert_eq!(read(&link).await.unwrap(), None);
    (link, proxy, server)
}

fn command(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command
}

async fn read(link: &Link) -> Result<Option<String>, Error> {
    link.query(&command(&["GET", "absent"])).await
}

async fn becomes(link: &Link, phase: Phase) {
    timeout(AMPLE, link.becomes(phase))
        .await
        .unwrap_or_else(|_| panic!("not {phase:?} but {:?}", link.health()));
}

/// For what only the server can tell, by being asked again and again.
async fn eventually(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + AMPLE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came true");
        sleep(Duration::from_millis(10)).await;
    }
}
