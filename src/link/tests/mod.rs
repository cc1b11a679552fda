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
    health::Failures,
    support::{proxy::FaultProxy, redis::RedisServer},
    *,
};

/// What a machine under load may take for what takes milliseconds by itself.
const AMPLE: Duration = Duration::from_secs(20);

/// Where no timeout is part of the test, a machine under load must not cause one.
fn patient() -> Settings {
    Settings {
        connect_timeout: AMPLE,
        command_timeout: AMPLE,
        name: "commands",
    }
}

fn hasty() -> Settings {
    let short = Duration::from_millis(250);
    Settings {
        connect_timeout: short,
        command_timeout: short,
        ..patient()
    }
}

fn link(client: &Client) -> Link {
    Link::new(client, patient())
}

/// A link that has sent its first command, and the proxy and the server behind it.
async fn connected() -> (Link, FaultProxy, RedisServer) {
    connected_with(patient()).await
}

async fn connected_with(settings: Settings) -> (Link, FaultProxy, RedisServer) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let link = Link::new(&proxy.client(), settings);
    heals(&link).await;
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

/// Commands go through again.
async fn heals(link: &Link) {
    let healed = async {
        while read(link).await.is_err() {
            becomes(link, Phase::Connected).await;
        }
    };
    timeout(AMPLE, healed).await.expect("the link heals");
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
