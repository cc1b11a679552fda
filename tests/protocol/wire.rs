//! What is on its way to the server: a bag, for nothing keeps messages on several links in order.

use crate::process::Kind;
use crate::state::{Entry, Failure, Slot, Time, Token};

const CAPACITY: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Wire {
    /// Sorted, so that equal bags are equal.
    messages: [Option<Message>; CAPACITY],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) from: u8,
    pub(crate) token: Token,
    pub(crate) slot: Slot,
    pub(crate) script: Script,
    pub(crate) run: Run,
}

/// Ghost: whether the server may run a message again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) enum Run {
    Once,
    Again,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) enum Script {
    /// `behind` is when the lease began that the caller has waited for.
    Claim {
        behind: Time,
        key: u8,
        /// The fresh entry that will not do.
        refused: Token,
    },
    Fill(Entry),
    Release {
        mark: Mark,
        /// The entry that was to be renewed.
        over: Token,
    },
    /// A claim of unknown outcome is given up.
    Undo,
    Purge(Kind),
}

/// What a release leaves beside the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) enum Mark {
    Nothing,
    HitForMiss,
    Failed(Failure),
}

impl Wire {
    pub(crate) fn send(&mut self, message: Message) {
        let free = self.messages.iter().position(Option::is_none);
        self.messages[free.expect("the wire has room for every message")] = Some(message);
        self.sort();
    }

    pub(crate) fn take(&mut self, at: usize) -> Message {
        let message = self.messages[at].take().expect("a message to take");
        self.sort();
        message
    }

    /// Leaves a copy of the message on the way.
    pub(crate) fn copy(&mut self, at: usize) -> Message {
        let message = Message {
            run: Run::Again,
            ..self.take(at)
        };
        self.send(message);
        message
    }

    /// The places of the different messages.
    pub(crate) fn distinct(&self) -> impl Iterator<Item = usize> + '_ {
        (0..CAPACITY).filter(|&at| {
            self.messages[at].is_some() && (at == 0 || self.messages[at - 1] != self.messages[at])
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().flatten()
    }

    fn sort(&mut self) {
        // None first: the order is all that matters.
        self.messages.sort_unstable();
    }
}
