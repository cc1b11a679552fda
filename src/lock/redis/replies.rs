//! What the scripts say.

use bytes::Bytes;
use redis::{FromRedisValue, Value, from_redis_value};

use crate::{
    link::{self, Kind},
    lock::{
        backend::{Busy, Family, Grant, Holder, Mode, Obstacle, Released, Remaining},
        error::Error,
        token::Token,
    },
};

/// How many hex digits name an attempt.
const ATTEMPT: usize = 16;

pub(super) fn grant(reply: &Value) -> Result<Grant, Error> {
    match reply {
        Value::Int(-3) => Ok(Grant::Granted { fence: None }),
        Value::Int(-4) => Ok(Grant::Withdrawn),
        Value::Int(wait) => Ok(Grant::Busy(Busy::new(Obstacle::Holder, remaining(*wait)))),
        Value::Array(words) => told(words),
        _ => Err(strange()),
    }
}

fn told(reply: &[Value]) -> Result<Grant, Error> {
    let [word, rest @ ..] = reply else {
        return Err(strange());
    };
    match (text(word)?.as_str(), rest) {
        ("granted", [number]) => Ok(Grant::Granted {
            fence: text(number)?.parse().ok(),
        }),
        ("held", [wait]) => Ok(Grant::AlreadyHeld(
            remaining(read(wait)?).ok_or_else(strange)?,
        )),
        ("busy", [wait]) => Ok(Grant::Busy(Busy::new(
            Obstacle::Holder,
            remaining(read(wait)?),
        ))),
        ("busy", [what, wait]) => {
            let obstacle = match text(what)?.as_str() {
                "holder" => Obstacle::Holder,
                "readers" => Obstacle::OtherReaders,
                "writer" => Obstacle::WaitingWriter,
                _ => return Err(strange()),
            };
            Ok(Grant::Busy(Busy::new(obstacle, remaining(read(wait)?))))
        }
        ("withdrawn", []) => Ok(Grant::Withdrawn),
        _ => Err(strange()),
    }
}

pub(super) fn released(reply: i64) -> Result<Released, Error> {
    match reply {
        1 => Ok(Released::Released),
        2 => {
            tracing::debug!("a lock was released, but the waiters could not be told; they poll");
            Ok(Released::Released)
        }
        0 => Ok(Released::Expired),
        -1 => Ok(Released::HeldByAnother),
        _ => Err(strange()),
    }
}

/// `None`: nobody holds it.
pub(super) fn remaining(reply: i64) -> Option<Remaining> {
    match u64::try_from(reply) {
        Ok(millis) => Some(Remaining::Millis(millis)),
        Err(_) => (reply == -1).then_some(Remaining::Persistent),
    }
}

pub(super) fn holders(reply: &[Value], family: Family) -> Result<Vec<Holder>, Error> {
    match family {
        Family::Exclusive => reply.chunks(2).map(exclusive).collect(),
        Family::ReadWrite => reply.chunks(3).map(member).collect(),
    }
}

fn exclusive(reply: &[Value]) -> Result<Holder, Error> {
    let [value, left] = reply else {
        return Err(strange());
    };
    let left = remaining(read(left)?).ok_or_else(strange)?;
    Ok(Holder::from_value(&bytes(value)?, left))
}

fn member(reply: &[Value]) -> Result<Holder, Error> {
    let [token, note, left] = reply else {
        return Err(strange());
    };
    let note = bytes(note)?;
    let mode = match note.first() {
        Some(b'r') => Mode::Read,
        Some(b'w') => Mode::Write,
        _ => return Err(strange()),
    };
    if note.len() < 1 + ATTEMPT {
        return Err(strange());
    }
    let left = remaining(read(left)?).ok_or_else(strange)?;
    let attempt = note.slice(1..=ATTEMPT);
    let holder = Holder::new(mode, Token::new(bytes(token)?), Some(attempt), left);
    Ok(holder.with_metadata(note.slice(1 + ATTEMPT..)))
}

fn text(value: &Value) -> Result<String, Error> {
    read(value)
}

fn bytes(value: &Value) -> Result<Bytes, Error> {
    read::<Vec<u8>>(value).map(Bytes::from)
}

fn read<T: FromRedisValue>(value: &Value) -> Result<T, Error> {
    from_redis_value(value.clone()).map_err(Error::protocol)
}

fn strange() -> Error {
    Error::protocol("a script's reply has an unexpected shape")
}

impl From<link::Error> for Error {
    fn from(error: link::Error) -> Self {
        match error.kind() {
            Kind::Unavailable => Self::unavailable(error),
            Kind::TimedOut | Kind::Lost => Self::unknown(error),
            Kind::Refused => {
                let code = error.code().unwrap_or_default().to_owned();
                Self::refused(code, error)
            }
            Kind::Garbled => Self::protocol(error),
        }
    }
}
