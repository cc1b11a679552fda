//! Lua scripts, called by their digest.

use std::{fmt, sync::OnceLock};

use redis::{Arg, Cmd, ToRedisArgs};

/// What most calls have room in: so many keys and arguments, of so many bytes together.
const WORDS: usize = 8;
const BYTES: usize = 256;

/// A script's text, for a `static`: its digest is computed once.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    digest: OnceLock<String>,
}

/// The keys and arguments of one call.
#[derive(Clone)]
pub(crate) struct Call {
    /// The keys, then the arguments.
    words: Cmd,
    keys: usize,
}

impl Script {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self {
            text,
            digest: OnceLock::new(),
        }
    }

    /// Calls the script that the server has stored under the digest.
    pub(super) fn evalsha(&self, call: &Call) -> Cmd {
        call.command("EVALSHA", self.digest())
    }

    /// Calls the script by its text, which also stores it.
    pub(super) fn eval(&self, call: &Call) -> Cmd {
        call.command("EVAL", self.text)
    }

    /// Has the server store the script.
    pub(super) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.text);
        command
    }

    fn digest(&self) -> &str {
        self.digest
            .get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}

impl Call {
    pub(crate) fn new() -> Self {
        Self {
            words: Cmd::with_capacity(WORDS, BYTES),
            keys: 0,
        }
    }

    /// Adds `KEYS[n]`; every key comes before the first argument.
    pub(crate) fn key(mut self, key: impl ToRedisArgs) -> Self {
        debug_assert_eq!(self.words.args_iter().len(), self.keys, "keys come first");
        self.words.arg(key);
        self.keys = self.words.args_iter().len();
        self
    }

    /// Adds `ARGV[n]`.
    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.words.arg(arg);
        self
    }

    /// `KEYS[1]`, by whose slot a Cluster chooses the node.
    pub(super) fn first_key(&self) -> Option<&[u8]> {
        let first = self.words.args_iter().next().filter(|_| self.keys > 0)?;
        Some(bytes_of(&first))
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let words = self.words.args_iter();
        let bytes = words
            .clone()
            .map(|word| bytes_of(&word).len())
            .sum::<usize>();
        let head = name.len() + script.len() + 8;
        let mut command = Cmd::with_capacity(words.len() + 3, bytes + head);
        command.arg(name).arg(script).arg(self.keys);
        for word in words {
            command.arg(bytes_of(&word));
        }
        command
    }
}

fn bytes_of<'a>(word: &Arg<&'a [u8]>) -> &'a [u8] {
    match word {
        Arg::Simple(bytes) => bytes,
        // A cursor, which no script's call has.
        _ => &[],
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("keys", &self.keys)
            .field("args", &(self.words.args_iter().len() - self.keys))
            .finish()
    }
}
