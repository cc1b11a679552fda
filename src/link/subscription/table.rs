//! Who listens to what, and what the server has been told of it. No I/O.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::Arc,
};

use bytes::Bytes;

use super::{Signal, mailbox::Mailbox};
use crate::link::Error;

/// A longer message is not ours; whoever listens re-reads instead.
const LONGEST_MESSAGE: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Table {
    channels: HashMap<Arc<str>, Channel>,
    server: Server,
    next_listener: u64,
}

#[derive(Debug, Default)]
struct Channel {
    listeners: HashMap<u64, Arc<Mailbox>>,
    standing: Standing,
}

#[derive(Debug, Default)]
enum Standing {
    #[default]
    Wanted,
    Subscribed,
    Refused(Arc<Error>),
}

/// What the server knows.
#[derive(Debug, Default)]
enum Server {
    #[default]
    Down,
    Up {
        subscribed: HashSet<Arc<str>>,
        /// Channels whose first listener came or whose last one left.
        changed: HashSet<Arc<str>>,
    },
}

/// What to tell the server next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Orders {
    pub(super) subscribe: Vec<Arc<str>>,
    pub(super) unsubscribe: Vec<Arc<str>>,
}

impl Table {
    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Registers a listener, which hears at once how its channel stands.
    pub(super) fn listen(&mut self, name: &Arc<str>) -> (u64, Arc<Mailbox>) {
        let id = self.next_listener;
        self.next_listener += 1;
        let mailbox = Arc::<Mailbox>::default();
        let channel = self.channels.entry(Arc::clone(name)).or_default();
        match &channel.standing {
            Standing::Wanted => {}
            Standing::Subscribed => mailbox.post(Signal::Subscribed),
            Standing::Refused(error) => mailbox.post(Signal::Refused(Arc::clone(error))),
        }
        channel.listeners.insert(id, Arc::clone(&mailbox));
        if channel.listeners.len() == 1 {
            self.note(name);
        }
        (id, mailbox)
    }

    pub(super) fn leave(&mut self, name: &Arc<str>, listener: u64) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        channel.listeners.remove(&listener);
        if channel.listeners.is_empty() {
            self.channels.remove(name);
            self.note(name);
        }
    }

    /// A new connection, to which every channel is new.
    pub(super) fn connected(&mut self) {
        self.server = Server::Up {
            subscribed: HashSet::new(),
            changed: self.channels.keys().cloned().collect(),
        };
    }

    /// The connection is gone: whoever was subscribed has a gap.
    pub(super) fn lost(&mut self) {
        self.server = Server::Down;
        for channel in self.channels.values_mut() {
            if let Standing::Subscribed = mem::take(&mut channel.standing) {
                channel.tell(&Signal::Lost);
            }
        }
    }

    /// The supervisor is gone: every listener must look after a new one.
    pub(super) fn abandoned(&mut self) {
        self.lost();
        for channel in self.channels.values() {
            channel.tell(&Signal::Lost);
        }
    }

    /// The next orders, for at most `batch` channels. `None`: the server knows all there is.
    pub(super) fn next_orders(&mut self, batch: usize) -> Option<Orders> {
        let Server::Up {
            subscribed,
            changed,
        } = &mut self.server
        else {
            return None;
        };
        let names: Vec<_> = changed.iter().take(batch).cloned().collect();
        let mut orders = Orders::default();
        for name in &names {
            changed.remove(name);
            match (self.channels.get_mut(name), subscribed.contains(name)) {
                (Some(_), false) => orders.subscribe.push(Arc::clone(name)),
                (None, true) => {
                    subscribed.remove(name);
                    orders.unsubscribe.push(Arc::clone(name));
                }
                // Left and joined again before the server heard of it: nothing was missed.
                (Some(channel), true) => channel.confirm(),
                (None, false) => {}
            }
        }
        (!names.is_empty()).then_some(orders)
    }

    pub(super) fn confirmed(&mut self, name: &Arc<str>) {
        if let Server::Up { subscribed, .. } = &mut self.server {
            subscribed.insert(Arc::clone(name));
        }
        match self.channels.get_mut(name) {
            Some(channel) => channel.confirm(),
            None => self.note(name),
        }
    }

    pub(super) fn refused(&mut self, name: &Arc<str>, error: Error) {
        if let Some(channel) = self.channels.get_mut(name) {
            let error = Arc::new(error);
            channel.tell(&Signal::Refused(Arc::clone(&error)));
            channel.standing = Standing::Refused(error);
        }
    }

    pub(super) fn any_refused(&self) -> bool {
        self.refusals().next().is_some()
    }

    /// Asks again for the channels that were refused.
    pub(super) fn retry_refused(&mut self) {
        let refused: Vec<_> = self.refusals().cloned().collect();
        for name in &refused {
            self.note(name);
        }
    }

    pub(super) fn message(&self, name: &str, payload: &[u8]) {
        let Some(channel) = self.channels.get(name) else {
            return;
        };
        if payload.len() > LONGEST_MESSAGE {
            channel.tell(&Signal::Lost);
            channel.tell(&Signal::Subscribed);
        } else {
            channel.tell(&Signal::Message(Bytes::copy_from_slice(payload)));
        }
    }

    fn refusals(&self) -> impl Iterator<Item = &Arc<str>> {
        self.channels
            .iter()
            .filter(|(_, channel)| matches!(channel.standing, Standing::Refused(_)))
            .map(|(name, _)| name)
    }

    fn note(&mut self, name: &Arc<str>) {
        if let Server::Up { changed, .. } = &mut self.server {
            changed.insert(Arc::clone(name));
        }
    }
}

impl Channel {
    fn confirm(&mut self) {
        if !matches!(self.standing, Standing::Subscribed) {
            self.standing = Standing::Subscribed;
            self.tell(&Signal::Subscribed);
        }
    }

    fn tell(&self, signal: &Signal) {
        for mailbox in self.listeners.values() {
            mailbox.post(signal.clone());
        }
    }
}
