//! One subscription connection for any number of channels and listeners.
//!
//! A listener hears [`Signal::Subscribed`] when the server has confirmed its channel, and again after each gap:
//! then it re-reads whatever the messages would have told it. Messages only wake.

mod mailbox;
mod session;
mod supervisor;
mod table;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::{sync::Notify, time::Instant};

use self::{mailbox::Mailbox, table::Table};
use super::{
    Error, Server, Settings,
    connect::Connector,
    health::{Counters, Health},
    logs,
    state::{Admission, Change, Machine},
};

/// What a listener hears.
#[derive(Clone, Debug)]
pub(crate) enum Signal {
    /// The server confirmed the channel, for the first time or after a gap: re-read what the messages would have told.
    Subscribed,
    Message(Bytes),
    /// A gap begins: the connection was lost, or the listener fell too far behind.
    Lost,
    /// The server refused this channel. It is asked again from time to time.
    Refused(Arc<Error>),
}

/// The subscription connection: opened for the first listener, closed a moment after the last one left.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    core: Arc<Core>,
}

impl Subscription {
    pub(crate) fn new(server: impl Into<Server>, settings: Settings) -> Self {
        let machine = Machine::new(Instant::now(), Connector::longest(&settings));
        Self {
            core: Arc::new(Core {
                connector: Connector::new(server.into(), settings.clone()),
                settings,
                state: Mutex::new(State {
                    machine,
                    table: Table::default(),
                }),
                work: Notify::new(),
                counters: Counters::default(),
            }),
        }
    }

    /// Registers a listener, from this moment on. Never waits.
    pub(crate) fn listen(&self, channel: &str) -> Listener {
        let channel = Arc::from(channel);
        let (id, mailbox) = self.core.with(|state| state.table.listen(&channel));
        self.core.work.notify_one();
        Core::ensure_supervisor(&self.core);
        Listener {
            core: Arc::clone(&self.core),
            channel,
            id,
            mailbox,
        }
    }

    pub(crate) fn health(&self) -> Health {
        self.core.with(|state| Health {
            name: self.core.settings.name,
            node: self.core.connector.node(),
            phase: state.machine.phase(),
            since: state.machine.since(),
            last_error: state.machine.cause().cloned(),
            latency: self.core.counters.latency(),
            failures: self.core.counters.failures(),
        })
    }
}

/// Listens to one channel until dropped; the channel's last listener unsubscribes.
#[derive(Debug)]
pub(crate) struct Listener {
    core: Arc<Core>,
    channel: Arc<str>,
    id: u64,
    mailbox: Arc<Mailbox>,
}

impl Listener {
    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// A signal is taken only when it is returned.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "the mailbox wakes one waiter"
    )]
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            if let Some(signal) = self.mailbox.take() {
                return signal;
            }
            Core::ensure_supervisor(&self.core);
            self.mailbox.filled().await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.core
            .with(|state| state.table.leave(&self.channel, self.id));
        self.core.work.notify_one();
    }
}

struct Core {
    connector: Connector,
    settings: Settings,
    state: Mutex<State>,
    /// There may be something to tell the server.
    work: Notify,
    counters: Counters,
}

struct State {
    machine: Machine,
    table: Table,
}

impl Core {
    /// For a few lines, never across an await.
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, transition: impl FnOnce(&mut State) -> Option<Change>) {
        if let Some(change) = self.with(transition) {
            let node = self.connector.node();
            logs::changed(self.settings.name, node.as_deref(), &change);
        }
    }

    fn ensure_supervisor(core: &Arc<Self>) {
        let admission = core.with(|state| state.machine.admit(Instant::now()));
        if let Admission::Start(term) = admission {
            supervisor::start(core, term);
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("name", &self.settings.name)
            .finish_non_exhaustive()
    }
}
