//! The link on a real server, through a proxy that fails on demand.

mod commands;

use std::time::Duration;

use super::*;

fn settings() -> Settings {
    Settings {
        connect_timeout: Duration::from_millis(250),
        command_timeout: Duration::from_millis(250),
        name: "commands",
    }
}

fn get(key: &str) -> redis::Cmd {
    let mut command = redis::cmd("GET");
    command.arg(key);
    command
}
