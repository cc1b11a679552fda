//! Child processes that never outlive this one: each is this program again, with other arguments.
//!
//! A child's standard input is a pipe that nobody writes to. When the parent ends, in whatever way,
//! the pipe closes and the child ends too.

use std::{env, ffi::OsString, io, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, Command},
};

/// A running child. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Offspring {
    _process: Child,
    /// The first line that it printed: where it can be reached.
    pub(crate) announcement: String,
}

impl Offspring {
    /// Starts this program with `arguments` and waits for its first line.
    pub(crate) async fn start(arguments: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().expect("stdout is piped");
        let mut announcement = String::new();
        BufReader::new(output).read_line(&mut announcement).await?;
        let announcement = announcement.trim().to_owned();
        if announcement.is_empty() {
            let status = process.wait().await?;
            return Err(io::Error::other(format!("a child ended early: {status}")));
        }
        Ok(Self {
            _process: process,
            announcement,
        })
    }
}

/// In a child: waits until the parent has ended.
pub(crate) async fn orphaned() {
    let mut end = Vec::new();
    // Whatever happens to the pipe, nobody is at its other end any more.
    drop(tokio::io::stdin().read_to_end(&mut end).await);
}
