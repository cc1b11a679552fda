//! The words of messages, who said them, and whether to believe it.
//!
//! ```text
//! 1:<origin>:w:<resource>                          something happened to a resource
//! 1:<origin>:p:<purge>[:<name of the purge>]       a purge, and what to answer when it is heeded
//! 1:<origin>:h:<name of the purge>                 the answer
//! ```
//!
//! A message ends in `#` and its signature where there is a secret: HMAC-SHA-256 of the namespace and all
//! that stands before. Without a secret, signatures are not looked at.
//!
//! What is not said as it should be is never acted on, and need not be false: it may come from a worker of
//! another version, or one that has another secret. Where it may tell of a purge, the server is asked
//! what has been purged (see [`record`](super::record)).

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::names::{member, parse_member};
use crate::{
    key::Digest,
    purges::Purge,
    token::{Token, hex},
};

const VERSION: &str = "1";

/// What tells the processes that know it from all others.
#[derive(Clone)]
pub(crate) struct Secret {
    mac: Hmac<Sha256>,
    length: usize,
}

impl Secret {
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self {
            mac: Hmac::new_from_slice(secret).expect("HMAC takes keys of any length"),
            length: secret.len(),
        }
    }

    /// Shorter ones than this can be guessed, or are a mistake.
    pub(crate) fn is_too_short(&self) -> bool {
        self.length < 16
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// How one process speaks, and how it understands the others.
#[derive(Debug)]
pub(super) struct Events {
    namespace: String,
    origin: Token,
    secret: Option<Secret>,
}

/// What a process is told by another one, or by itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Something happened to a resource.
    Woken(Digest),
    /// A process has purged, and may want to know who has heeded it.
    Purged(Purge, Option<Caller>),
    /// A process has heeded the purge of this name.
    Heeded(Answer),
}

/// Who is to be told that a purge has been heeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) process: Token,
    pub(super) purge: Token,
}

/// Who has heeded which purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) process: Token,
    pub(super) purge: Token,
}

/// What has been understood of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is to be acted on.
    Told(Event),
    /// It may be false.
    Doubtful(Flaw, Option<Event>),
}

/// Why a message is not acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Of another version, or none of ours.
    Unreadable,
    Unsigned,
    WronglySigned,
}

impl Events {
    pub(super) fn new(namespace: String, secret: Option<Secret>) -> Self {
        Self {
            namespace,
            origin: Token::label(),
            secret,
        }
    }

    /// What this process is called.
    pub(super) fn origin(&self) -> &Token {
        &self.origin
    }

    /// Whether only those are believed who know the secret.
    pub(super) fn are_signed(&self) -> bool {
        self.secret.is_some()
    }

    pub(super) fn woken(&self, resource: Digest) -> String {
        self.say(&format!("w:{resource}"))
    }

    /// `name`: what those who heed it are to answer.
    pub(super) fn purged(&self, purge: Purge, name: Option<&Token>) -> String {
        let member = member(purge);
        self.say(&match name {
            None => format!("p:{member}"),
            Some(name) => format!("p:{member}:{}", name.as_str()),
        })
    }

    pub(super) fn heeded(&self, purge: &Token) -> String {
        self.say(&format!("h:{}", purge.as_str()))
    }

    fn say(&self, words: &str) -> String {
        let mut message = format!("{VERSION}:{}:{words}", self.origin.as_str());
        if let Some(secret) = &self.secret {
            let signature = self.mac(secret, &message).finalize().into_bytes();
            message.push('#');
            message.push_str(&hex(&signature));
        }
        message
    }

    /// The namespace comes first: what was said in one counts for nothing in another.
    fn mac(&self, secret: &Secret, text: &str) -> Hmac<Sha256> {
        let mut mac = secret.mac.clone();
        mac.update(self.namespace.as_bytes());
        mac.update(&[0]);
        mac.update(text.as_bytes());
        mac
    }

    /// Reads a message.
    pub(super) fn hear(&self, message: &[u8]) -> Heard {
        let Ok(message) = std::str::from_utf8(message) else {
            return Heard::Doubtful(Flaw::Unreadable, None);
        };
        let (text, signature) = match message.split_once('#') {
            Some((text, signature)) => (text, Some(signature)),
            None => (message, None),
        };
        let Some(event) = Event::parse(text) else {
            return Heard::Doubtful(Flaw::Unreadable, None);
        };
        match self.flaw(text, signature) {
            None => Heard::Told(event),
            Some(flaw) => Heard::Doubtful(flaw, Some(event)),
        }
    }

    fn flaw(&self, text: &str, signature: Option<&str>) -> Option<Flaw> {
        let secret = self.secret.as_ref()?;
        let Some(signature) = signature else {
            return Some(Flaw::Unsigned);
        };
        let is_right = bytes_of(signature).is_some_and(|signature| {
            // In constant time.
            self.mac(secret, text).verify_slice(&signature).is_ok()
        });
        (!is_right).then_some(Flaw::WronglySigned)
    }
}

impl Event {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        (parts.next()? == VERSION).then_some(())?;
        let process = Token::parse(parts.next()?)?;
        let (kind, about, name) = (parts.next()?, parts.next()?, parts.next());
        let event = match (kind, name) {
            ("w", None) => Self::Woken(Digest::parse(about.as_bytes())?),
            ("p", None) => Self::Purged(parse_member(about)?, None),
            ("p", Some(name)) => {
                let purge = Token::parse(name)?;
                Self::Purged(parse_member(about)?, Some(Caller { process, purge }))
            }
            ("h", None) => {
                let purge = Token::parse(about)?;
                Self::Heeded(Answer { process, purge })
            }
            _ => return None,
        };
        parts.next().is_none().then_some(event)
    }
}

/// Reads hex digits.
fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| {
        let digits = std::str::from_utf8(pair).ok()?;
        (pair.len() == 2).then_some(())?;
        u8::from_str_radix(digits, 16).ok()
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::purges::Reach;

    fn unsigned() -> Events {
        Events::new("shop".to_owned(), None)
    }

    fn signed(secret: &str) -> Events {
        signed_in("shop", secret)
    }

    fn signed_in(namespace: &str, secret: &str) -> Events {
        let secret = Secret::new(secret.as_bytes());
        Events::new(namespace.to_owned(), Some(secret))
    }

    const ONE: &str = "a secret of the shop";
    const OTHER: &str = "what others guess it is";

    fn resource() -> Digest {
        Digest::of(b"resource")
    }

    fn flaw(heard: &Heard) -> Option<Flaw> {
        match heard {
            Heard::Told(_) => None,
            Heard::Doubtful(flaw, _) => Some(*flaw),
        }
    }

    #[test]
    fn messages_read_as_they_were_written_signed_or_not() {
        for (speaker, listener) in [
            (unsigned(), unsigned()),
            (signed(ONE), signed(ONE)),
            (signed(ONE), unsigned()),
        ] {
            let heard = |message: String| match listener.hear(message.as_bytes()) {
                Heard::Told(event) => event,
                doubtful @ Heard::Doubtful(..) => panic!("{doubtful:?}"),
            };
            assert_eq!(heard(speaker.woken(resource())), Event::Woken(resource()));

            let (process, purge) = (speaker.origin().clone(), Token::label());
            let answer = Answer {
                process: process.clone(),
                purge: purge.clone(),
            };
            assert_eq!(heard(speaker.heeded(&purge)), Event::Heeded(answer));

            let caller = Caller { process, purge };
            for reach in [Reach::All, Reach::Tag(Digest::of(b"tag"))] {
                for purge in [Purge::hard(reach), Purge::soft(reach)] {
                    for caller in [None, Some(caller.clone())] {
                        let name = caller.as_ref().map(|caller| &caller.purge);
                        let read = heard(speaker.purged(purge, name));
                        assert_eq!(read, Event::Purged(purge, caller));
                    }
                }
            }
        }
    }

    #[test]
    fn where_there_is_a_secret_whoever_does_not_know_it_is_not_believed() {
        let listener = signed(ONE);
        let said = |speaker: &Events| speaker.woken(resource());
        let heard = |message: String| flaw(&listener.hear(message.as_bytes()));

        assert_eq!(heard(said(&signed(ONE))), None);
        assert_eq!(heard(said(&unsigned())), Some(Flaw::Unsigned));
        assert_eq!(heard(said(&signed(OTHER))), Some(Flaw::WronglySigned));
        let elsewhere = signed_in("other-shop", ONE);
        assert_eq!(heard(said(&elsewhere)), Some(Flaw::WronglySigned));
        for signature in ["", "0", "zz", "00"] {
            let message = format!("{}#{signature}", said(&unsigned()));
            assert_eq!(heard(message), Some(Flaw::WronglySigned), "{signature}");
        }
        let mut cut = said(&listener);
        cut.truncate(cut.len() - 2);
        assert_eq!(heard(cut), Some(Flaw::WronglySigned));
    }

    #[test]
    fn a_doubtful_message_still_says_what_it_may_be_about() {
        let purge = Purge::hard(Reach::All);
        let message = unsigned().purged(purge, None);

        let heard = signed(ONE).hear(message.as_bytes());

        let event = Some(Event::Purged(purge, None));
        assert_eq!(heard, Heard::Doubtful(Flaw::Unsigned, event));
    }

    #[test]
    fn a_signature_is_for_its_own_words_alone() {
        let events = signed(ONE);
        let said = events.woken(resource());
        let (_, signature) = said.split_once('#').unwrap();
        let other = unsigned().woken(resource());

        let forged = format!("{other}#{signature}");

        assert_eq!(
            flaw(&events.hear(forged.as_bytes())),
            Some(Flaw::WronglySigned),
            "another origin"
        );
    }

    #[test]
    fn a_garbled_message_or_one_of_another_version_is_unreadable() {
        let origin = Token::label();
        let later = format!("2:{}:w:{}", origin.as_str(), resource());
        let longer = format!("{}:x", unsigned().woken(resource()));
        for message in [
            &b""[..],
            b"w",
            b"1",
            b"1:x:w:y",
            b"#",
            &[0xff; 65],
            later.as_bytes(),
            longer.as_bytes(),
        ] {
            for events in [unsigned(), signed(ONE)] {
                let heard = events.hear(message);
                assert_eq!(heard, Heard::Doubtful(Flaw::Unreadable, None));
            }
        }
    }

    #[test]
    fn a_secret_is_long_enough_and_never_shown() {
        let secret = Secret::new(b"sixteen letters!");

        assert!(!secret.is_too_short());
        assert!(Secret::new(b"fifteen letters").is_too_short());
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }

    proptest! {
        #[test]
        fn a_changed_message_is_never_believed(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let events = signed(ONE);
            let right = events.purged(Purge::hard(Reach::All), Some(&Token::label()));
            let mut wrong = right.clone().into_bytes();
            let at = at.index(wrong.len());
            wrong[at] = byte;
            // A hex digit may be written in two ways.
            prop_assume!(!wrong.eq_ignore_ascii_case(right.as_bytes()));

            prop_assert!(flaw(&events.hear(&wrong)).is_some());
        }

        #[test]
        fn garbage_is_never_believed(message in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(flaw(&signed(ONE).hear(&message)).is_some());
        }
    }
}
