//! Listening to the events of the namespace, over one subscription.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use redis::Client;
use tokio::task::AbortHandle;

use super::names::Event;
use crate::{
    link::{Health, Listener, Settings, Signal, Subscription},
    shared::Coherence,
    task,
};

/// The listening side of one process.
#[derive(Debug)]
pub(super) struct Follow {
    subscription: Subscription,
    channel: String,
    task: Mutex<Option<AbortHandle>>,
}

impl Follow {
    pub(super) fn new(client: &Client, timeout: Duration, channel: String) -> Self {
        let settings = Settings {
            connect_timeout: timeout,
            command_timeout: timeout,
            name: "events",
        };
        Self {
            subscription: Subscription::new(client, settings),
            channel,
            task: Mutex::default(),
        }
    }

    pub(super) fn health(&self) -> Health {
        self.subscription.health()
    }

    /// Starts to listen, unless that is already being done.
    pub(super) fn start(&self, coherence: &Arc<Coherence>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let listener = self.subscription.listen(&self.channel);
        let listening = listen(listener, Arc::downgrade(coherence));
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

async fn listen(mut listener: Listener, coherence: Weak<Coherence>) {
    let mut channel = Channel::Open;
    loop {
        let signal = listener.next().await;
        let Some(coherence) = coherence.upgrade() else {
            return;
        };
        match signal {
            Signal::Subscribed => {
                channel = Channel::Open;
                coherence.resumed();
            }
            Signal::Lost => coherence.interrupted(),
            Signal::Refused(error) => {
                // The server is asked again and again, and refuses each time.
                if mem::replace(&mut channel, Channel::Refused) == Channel::Open {
                    tracing::warn!(%error, "the events' channel is refused: every hit asks Redis");
                }
                coherence.interrupted();
            }
            Signal::Message(message) => match Event::parse(&message) {
                Some(Event::Woken(resource)) => coherence.wake(resource),
                Some(Event::Purged { tag }) => coherence.purged(tag),
                None => tracing::debug!("an event makes no sense and is ignored"),
            },
        }
    }
}

/// What has been told of the channel.
#[derive(PartialEq)]
enum Channel {
    Open,
    Refused,
}
