//! What is sent and what comes back, in the words of a store.

use std::time::Duration;

use async_memcached::{Error as ClientError, ErrorKind, MetaValue, Status};

use crate::{
    store::{Error, Found, Read, Version, Written},
    time::LONGEST,
};

/// Beyond that a number of seconds is taken for a date.
const LONGEST_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A life in whole seconds, at least one: none at all would be for ever.
pub(super) fn seconds(life: Duration) -> String {
    format!("T{}", life.min(LONGEST_LIFE).as_secs().max(1))
}

/// The record that `read` asks for, if it is among the hits.
pub(super) fn found(read: &Read, hits: &[MetaValue]) -> Option<Found> {
    let hit = hits
        .iter()
        .find(|hit| hit.key.as_deref() == Some(read.key().as_bytes()))?;
    let version = Version::new(hit.cas?);
    let left = match hit.ttl_remaining? {
        // The current second has begun already.
        seconds @ 0.. => Duration::from_secs(u64::try_from(seconds).ok()?.saturating_sub(1)),
        _without_end => LONGEST,
    };
    Some(match (&hit.data, hit.status == Some(Status::Value)) {
        (Some(value), _) => Found::new(version, left, value.clone()),
        (None, true) => Found::new(version, left, Vec::new()),
        (None, false) => Found::unchanged(version, left),
    })
}

pub(super) fn written(reply: Result<Option<MetaValue>, ClientError>) -> Result<Written, Error> {
    let status = match reply {
        Ok(Some(MetaValue {
            cas: Some(version),
            status: None | Some(Status::Stored),
            ..
        })) => return Ok(Written::Stored(Version::new(version))),
        Ok(Some(MetaValue {
            status: Some(status),
            ..
        }))
        | Err(ClientError::Protocol(status)) => status,
        Ok(_) => return Err(Error::refused("it did not say what it has written")),
        Err(error) => return Err(failure(error)),
    };
    match status {
        Status::NotStored | Status::Exists | Status::NotFound => Ok(Written::Refused),
        Status::Error(ErrorKind::Server(told)) if told.contains("too large") => {
            Ok(Written::TooLarge)
        }
        status => Err(failure(status.into())),
    }
}

pub(super) fn removed(reply: Result<Option<MetaValue>, ClientError>) -> Result<(), Error> {
    match reply {
        Ok(_) | Err(ClientError::Protocol(Status::NotFound)) => Ok(()),
        Err(error) => Err(failure(error)),
    }
}

/// A connection that was not made, that ended, or an error that the server told. Of that only what is not
/// quoted from a command is kept.
pub(super) fn failure(error: ClientError) -> Error {
    match error {
        ClientError::Connect(source) => Error::unavailable(source),
        ClientError::Io(source) => Error::unknown(source),
        ClientError::Protocol(Status::Error(ErrorKind::Server(told))) => Error::refused(told),
        ClientError::Protocol(Status::Error(ErrorKind::Protocol(_))) => {
            Error::unknown("what came from the server breaks its protocol")
        }
        ClientError::Protocol(_) => Error::refused("the server does not know the command"),
        other => Error::unknown(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(ttl: i64) -> MetaValue {
        MetaValue {
            key: Some(b"key".to_vec()),
            cas: Some(7),
            data: Some(b"value".to_vec()),
            ttl_remaining: Some(ttl),
            status: Some(Status::Value),
            ..MetaValue::default()
        }
    }

    #[test]
    fn lives_are_whole_seconds_and_never_for_ever_nor_a_date() {
        let ms = Duration::from_millis;
        for (life, sent) in [
            (ms(0), "T1"),
            (ms(1), "T1"),
            (ms(1999), "T1"),
            (ms(2000), "T2"),
            (LONGEST, "T2592000"),
        ] {
            assert_eq!(seconds(life), sent);
        }
    }

    #[test]
    fn what_is_left_is_rounded_down() {
        let left = |ttl| {
            let hit = hit(ttl);
            found(&Read::new("key"), &[hit]).unwrap().left()
        };

        assert_eq!(left(60), Duration::from_secs(59));
        assert_eq!(left(0), Duration::ZERO);
        assert_eq!(left(-1), LONGEST);
    }

    #[test]
    fn a_hit_is_for_the_record_of_its_name_and_may_be_empty() {
        let mut empty = hit(2);
        empty.data = None;

        assert_eq!(
            found(&Read::new("other"), std::slice::from_ref(&empty)),
            None
        );
        let found = found(&Read::new("key"), &[empty]).unwrap();
        assert!(found.value().unwrap().is_empty());
    }

    #[test]
    fn each_answer_to_a_write_is_told_apart() {
        let stored = MetaValue {
            cas: Some(8),
            status: Some(Status::Stored),
            ..MetaValue::default()
        };
        let version = Version::new(8);
        assert_eq!(written(Ok(Some(stored))).unwrap(), Written::Stored(version));
        for status in [Status::NotStored, Status::Exists, Status::NotFound] {
            let refused = MetaValue {
                cas: Some(0),
                status: Some(status.clone()),
                ..MetaValue::default()
            };
            assert_eq!(written(Ok(Some(refused))).unwrap(), Written::Refused);
            assert_eq!(written(Err(status.into())).unwrap(), Written::Refused);
        }
        let server = |told: &str| Status::Error(ErrorKind::Server(told.to_owned()));
        let large = server("object too large for cache");
        assert_eq!(written(Err(large.into())).unwrap(), Written::TooLarge);
        let full = server("out of memory storing object");
        let refused = written(Err(full.into())).unwrap_err();
        assert_eq!(refused.kind(), crate::store::ErrorKind::Refused);
    }
}
