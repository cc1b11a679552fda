//! What a server is asked, and how it is put.

use redis::{Cmd, FromRedisValue, RedisResult, Value, aio::MultiplexedConnection};

use super::{Call, Script, error::Error};

/// What a server is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    Command(&'a Cmd),
    Script(&'static Script, &'a Call),
}

/// How it is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Usual,
    /// To the node of a Cluster that a slot is on its way to.
    Asking,
}

pub(super) async fn exchange(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    manner: Manner,
) -> RedisResult<Value> {
    if manner == Manner::Usual {
        return connection.send_packed_command(command).await;
    }
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(command.clone());
    let mut replies = connection.send_packed_commands(&both, 0, 2).await?;
    Ok(replies.pop().unwrap_or(Value::Nil))
}

pub(super) fn convert<T: FromRedisValue>(reply: Value) -> Result<T, Error> {
    redis::from_redis_value(reply).map_err(|_| Error::garbled())
}
