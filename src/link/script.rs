//! Lua scripts, called by their digest.

use std::{fmt, sync::OnceLock};

use redis::{Cmd, ToRedisArgs, Value};

use super::error::Error;

/// A script's text, for a `static`: its digest is computed once.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    digest: OnceLock<String>,
}

/// The keys and arguments of one call.
#[derive(Clone, Default)]
pub(crate) struct Call {
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
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

    fn digest(&self) -> &str {
        self.digest
            .get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}

impl Call {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds `KEYS[n]`.
    pub(crate) fn key(mut self, key: impl ToRedisArgs) -> Self {
        key.write_redis_args(&mut self.keys);
        self
    }

    /// Adds `ARGV[n]`.
    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        arg.write_redis_args(&mut self.args);
        self
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command
            .arg(script)
            .arg(self.keys.len())
            .arg(&self.keys)
            .arg(&self.args);
        command
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("keys", &self.keys.len())
            .field("args", &self.args.len())
            .finish()
    }
}

/// Whether the server does not know the script, so that nothing has run.
pub(super) fn is_unknown(reply: &Result<Value, Error>) -> bool {
    matches!(reply, Err(error) if error.code() == Some("NOSCRIPT"))
}
