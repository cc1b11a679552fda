//! Child processes that never outlive this one: each is this program again, with other arguments.
//!
//! A child's standard input is a pipe, over which it may be given orders. When the parent lets go of it, or
//! ends in whatever way, the pipe closes, and the child ends what it has started and then itself.

use std::{env, ffi::OsString, io, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// A running child. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Offspring {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
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
            .spawn()?;
        let output = process.stdout.take().expect("stdout is piped");
        let mut output = BufReader::new(output).lines();
        let Some(announcement) = output.next_line().await? else {
            let status = process.wait().await?;
            return Err(io::Error::other(format!("a child ended early: {status}")));
        };
        Ok(Self {
            process,
            output,
            announcement,
        })
    }

    /// Gives the child an order, and waits for its answer.
    pub(crate) async fn order(&mut self, order: &str) -> io::Result<String> {
        let input = self.process.stdin.as_mut().expect("stdin is piped");
        input.write_all(format!("{order}\n").as_bytes()).await?;
        let answer = self.output.next_line().await?;
        answer.ok_or_else(|| io::Error::other("a child has ended"))
    }
}

/// In a child that is given no orders: waits until the parent has ended.
pub(crate) async fn orphaned() {
    let mut end = Vec::new();
    // Whatever happens to the pipe, nobody is at its other end any more.
    drop(tokio::io::stdin().read_to_end(&mut end).await);
}
