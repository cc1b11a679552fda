//! The names of keys, and the words of messages.

use crate::{
    entry::codec::VERSION,
    key::Digest,
    shared::{Place, Slot},
    token::Token,
};

/// The names in one namespace. All keys of a resource are in one Cluster slot.
#[derive(Clone, Debug)]
pub(super) struct Names {
    namespace: String,
}

impl Names {
    pub(super) fn new(namespace: String) -> Self {
        Self { namespace }
    }

    fn name(&self, place: &Place, kind: &str) -> String {
        let Self { namespace } = self;
        let Place {
            resource, variant, ..
        } = place;
        match variant {
            Some(variant) => format!("{namespace}:{{{resource}}}:{kind}:{variant}"),
            None => format!("{namespace}:{{{resource}}}:{kind}"),
        }
    }

    pub(super) fn entry(&self, place: &Place) -> String {
        self.name(place, &format!("e{VERSION}"))
    }

    /// The entry of the resource that a variant belongs to.
    pub(super) fn resource(&self, place: &Place) -> String {
        self.entry(&Place {
            variant: None,
            ..*place
        })
    }

    pub(super) fn lease(&self, place: &Place, slot: Slot) -> String {
        self.name(
            place,
            match slot {
                Slot::Build => "l",
                Slot::Extra => "l1",
            },
        )
    }

    /// That the last response was for its own request alone.
    pub(super) fn marker(&self, place: &Place) -> String {
        self.name(place, "m")
    }

    /// How the last build under this lease failed.
    pub(super) fn failure(&self, place: &Place, slot: Slot) -> String {
        self.name(
            place,
            match slot {
                Slot::Build => "f",
                Slot::Extra => "f1",
            },
        )
    }

    pub(super) fn tombstone(&self, place: &Place, token: &Token) -> String {
        let resource = Place {
            variant: None,
            ..*place
        };
        self.name(&resource, &format!("x:{}", token.as_str()))
    }

    /// When which tag was purged.
    pub(super) fn tags(&self) -> String {
        format!("{}:tags", self.namespace)
    }

    /// The channel on which the processes of the namespace tell each other what happened.
    pub(super) fn channel(&self) -> String {
        format!("{}:events", self.namespace)
    }
}

/// What a process is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Something happened to a resource.
    Woken(Digest),
    /// A process purged a tag.
    Purged { tag: Digest },
}

pub(super) fn woken(resource: Digest) -> String {
    format!("w{resource}")
}

pub(super) fn purged(tag: Digest) -> String {
    format!("p{tag}")
}

impl Event {
    /// Reads a message; what makes no sense is nothing.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        match message.split_first()? {
            (b'w', resource) => Digest::parse(resource).map(Self::Woken),
            (b'p', tag) => Digest::parse(tag).map(|tag| Self::Purged { tag }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_they_were_written() {
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));

        assert_eq!(Event::parse(woken(one).as_bytes()), Some(Event::Woken(one)));
        assert_eq!(
            Event::parse(purged(other).as_bytes()),
            Some(Event::Purged { tag: other })
        );
    }

    #[test]
    fn a_garbled_message_is_nothing() {
        for message in [&b""[..], b"w", b"wxyz", b"p00", b"?", &[0xff; 65]] {
            assert_eq!(Event::parse(message), None);
        }
    }
}
