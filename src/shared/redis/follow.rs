//! Listening to the events of the namespace, over one subscription.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::task::AbortHandle;

use super::{
    events::{Caller, Event},
    heeded::Heeded,
    names::Names,
};
use crate::{
    link::{Health, Listener, Route, Server, Settings, Signal, Subscription},
    shared::Coherence,
    task,
};

/// The listening side of one process.
#[derive(Debug)]
pub(super) struct Follow {
    subscription: Subscription,
    names: Names,
    heeded: Arc<Heeded>,
    link: Route,
    task: Mutex<Option<AbortHandle>>,
}

impl Follow {
    /// `link` is for answering those who purge.
    pub(super) fn new(server: Server, timeout: Duration, names: Names, link: Route) -> Self {
        let settings = Settings {
            connect_timeout: timeout,
            command_timeout: timeout,
            name: "events",
        };
        Self {
            subscription: Subscription::new(server, settings),
            names,
            heeded: Arc::new(Heeded::default()),
            link,
            task: Mutex::default(),
        }
    }

    pub(super) fn health(&self) -> Health {
        self.subscription.health()
    }

    pub(super) fn heeded(&self) -> &Heeded {
        &self.heeded
    }

    /// Starts to listen, unless that is already being done.
    pub(super) fn start(&self, coherence: &Arc<Coherence>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let events = self.subscription.listen(&self.names.channel());
        let answers = self.names.answers(self.heeded.process());
        let answers = self.subscription.listen(&answers);
        let hearing = Hearing {
            coherence: Arc::downgrade(coherence),
            heeded: Arc::clone(&self.heeded),
            names: self.names.clone(),
            link: self.link.clone(),
        };
        let listening = listen(events, answers, hearing);
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

/// What a process does with what it hears.
struct Hearing {
    coherence: Weak<Coherence>,
    heeded: Arc<Heeded>,
    names: Names,
    /// Over which it answers those who purge.
    link: Route,
}

async fn listen(mut events: Listener, mut answers: Listener, hearing: Hearing) {
    let mut channel = Channel::Open;
    loop {
        let signal = tokio::select! {
            signal = events.next() => signal,
            signal = answers.next() => {
                if let Signal::Message(purge) = signal {
                    hearing.heeded.answered(&purge);
                }
                continue;
            }
        };
        let Some(coherence) = hearing.coherence.upgrade() else {
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
                Some(Event::Purged(purge, caller)) => {
                    coherence.purged(purge);
                    if let Some(caller) = caller {
                        hearing.answer(&caller);
                    }
                }
                None => tracing::debug!("an event makes no sense and is ignored"),
            },
        }
    }
}

impl Hearing {
    /// Tells the one who purged that it has been heeded here.
    fn answer(&self, caller: &Caller) {
        let channel = self.names.answers(&caller.process);
        let (link, purge) = (self.link.clone(), caller.purge.clone());
        drop(task::spawn(async move {
            // Who purged counts this process out, then.
            drop(link.publish(&channel, purge.as_str()).await);
        }));
    }
}

/// With its runtime the listening may end before the cache does.
impl Drop for Hearing {
    fn drop(&mut self) {
        if let Some(coherence) = self.coherence.upgrade() {
            coherence.interrupted();
        }
    }
}

/// What has been told of the channel.
#[derive(PartialEq)]
enum Channel {
    Open,
    Refused,
}
