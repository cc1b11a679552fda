//! Listening to the events of the namespace, over one subscription.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use redis::Client;
use tokio::task::AbortHandle;

use super::names::{self, Event};
use crate::{
    key::Digest,
    link::{Health, Listener, Settings, Signal, Subscription},
    shared::Coherence,
    task,
};

/// The listening side of one process.
#[derive(Debug)]
pub(super) struct Follow {
    subscription: Subscription,
    channel: String,
    /// What this process calls itself: it has already acted on its own purges.
    me: Digest,
    task: Mutex<Option<AbortHandle>>,
}

impl Follow {
    pub(super) fn new(client: &Client, timeout: Duration, channel: String) -> Self {
        let settings = Settings {
            connect_timeout: timeout,
            command_timeout: timeout,
            name: "events",
        };
        let me = Digest::of(&fastrand::u128(..).to_be_bytes());
        Self {
            subscription: Subscription::new(client, settings),
            channel,
            me,
            task: Mutex::default(),
        }
    }

    pub(super) fn health(&self) -> Health {
        self.subscription.health()
    }

    /// The message that tells the others of a purge.
    pub(super) fn purged(&self, tag: Digest) -> String {
        names::purged(tag, self.me)
    }

    /// Starts to listen, unless that is already being done.
    pub(super) fn start(&self, coherence: &Arc<Coherence>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let listener = self.subscription.listen(&self.channel);
        let listening = listen(listener, Arc::downgrade(coherence), self.me);
        *task = task::spawn(listening).map(|task| task.abort_handle());
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

async fn listen(mut listener: Listener, coherence: Weak<Coherence>, me: Digest) {
    loop {
        let signal = listener.next().await;
        let Some(coherence) = coherence.upgrade() else {
            return;
        };
        match signal {
            Signal::Subscribed => coherence.resumed(),
            Signal::Lost => coherence.interrupted(),
            Signal::Refused(error) => {
                tracing::warn!(%error, "the events' channel is refused: every hit asks Redis");
                coherence.interrupted();
            }
            Signal::Message(message) => match Event::parse(&message) {
                Some(Event::Woken(resource)) => coherence.wake(resource),
                Some(Event::Purged { by, .. }) if by == me => {}
                Some(Event::Purged { tag, .. }) => coherence.purged(tag),
                None => tracing::debug!("an event makes no sense and is ignored"),
            },
        }
    }
}
