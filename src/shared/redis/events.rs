//! The words of messages.

use super::names::{member, parse_member};
use crate::{key::Digest, purges::Purge, token::Token};

/// What a process is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Something happened to a resource.
    Woken(Digest),
    /// A process has purged, and may want to know who has heeded it.
    Purged(Purge, Option<Caller>),
}

/// Who is to be told that a purge has been heeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) process: Token,
    pub(super) purge: Token,
}

pub(super) fn woken(resource: Digest) -> String {
    format!("w{resource}")
}

pub(super) fn purged(purge: Purge, caller: Option<&Caller>) -> String {
    let member = member(purge);
    match caller {
        None => format!("p{member}"),
        Some(Caller { process, purge }) => {
            format!("p{member}:{}:{}", process.as_str(), purge.as_str())
        }
    }
}

impl Event {
    /// Reads a message; what makes no sense is nothing.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        match message.split_first()? {
            (b'w', resource) => Digest::parse(resource).map(Self::Woken),
            (b'p', purge) => {
                let mut parts = std::str::from_utf8(purge).ok()?.split(':');
                let purge = parse_member(parts.next()?)?;
                let caller = parts.next().zip(parts.next()).map(Caller::parse);
                Some(Self::Purged(purge, caller.flatten()))
            }
            _ => None,
        }
    }
}

impl Caller {
    fn parse((process, purge): (&str, &str)) -> Option<Self> {
        Some(Self {
            process: Token::parse(process)?,
            purge: Token::parse(purge)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purges::Reach;

    #[test]
    fn messages_read_as_they_were_written() {
        let resource = Digest::of(b"resource");
        let woken = woken(resource);
        assert_eq!(Event::parse(woken.as_bytes()), Some(Event::Woken(resource)));

        let caller = Caller {
            process: Token::random().unwrap(),
            purge: Token::random().unwrap(),
        };
        for reach in [Reach::All, Reach::Tag(Digest::of(b"tag"))] {
            for purge in [Purge::hard(reach), Purge::soft(reach)] {
                for caller in [None, Some(caller.clone())] {
                    let message = purged(purge, caller.as_ref());
                    let read = Event::parse(message.as_bytes());
                    assert_eq!(read, Some(Event::Purged(purge, caller)));
                }
            }
        }
    }

    #[test]
    fn a_garbled_message_is_nothing() {
        for message in [
            &b""[..],
            b"w",
            b"wxyz",
            b"p00",
            b"p~",
            b"p",
            b"?",
            &[0xff; 65],
        ] {
            assert_eq!(Event::parse(message), None);
        }
    }
}
