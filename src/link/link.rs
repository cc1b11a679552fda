//! The link: admission, sending, and what each outcome says about the connection.

use std::{fmt, sync::Arc, time::Duration};

use redis::{Cmd, FromRedisValue, Value, aio::MultiplexedConnection};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

use super::{
    Call, QUEUE, Script, Settings,
    connect::Connector,
    error::Error,
    health::{Counters, Health},
    logs,
    request::{self, Manner, Request},
    server::Server,
    state::{Admission, Change, Epoch, Machine, Phase, Term},
    supervisor,
};

/// One supervised connection to one Redis, shared by all its clones.
///
/// Making one does nothing: the first command connects, and waits for that within its own time.
/// While the connection is down, commands fail at once and one background task reconnects.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    core: Arc<Core>,
}

impl Link {
    pub(crate) fn new(server: impl Into<Server>, settings: Settings) -> Self {
        let machine = Machine::new(Instant::now(), Connector::longest(&settings));
        Self {
            core: Arc::new(Core {
                connector: Connector::new(server.into(), settings.clone()),
                settings,
                shared: watch::Sender::new(Shared {
                    machine,
                    connection: None,
                }),
                slots: Semaphore::new(QUEUE),
                counters: Counters::default(),
            }),
        }
    }

    /// Sends one command, for a caller that waits until `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Replies stay matched to their commands. A command that is dropped before it left the queue is not sent;
    /// one that was sent runs on the server.
    pub(crate) async fn query_by<T: FromRedisValue>(
        &self,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<T, Error> {
        self.ask(Request::Command(command), deadline).await
    }

    /// Calls a script, in one round trip unless the server does not know it yet.
    ///
    /// Never sent again after a timeout or a lost connection.
    ///
    /// # Cancel safety
    ///
    /// As [`query_by`](Self::query_by).
    pub(crate) async fn invoke_by<T: FromRedisValue>(
        &self,
        script: &'static Script,
        call: Call,
        deadline: Instant,
    ) -> Result<T, Error> {
        self.ask(Request::Script(script, &call), deadline).await
    }

    async fn ask<T: FromRedisValue>(
        &self,
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<T, Error> {
        let reply = self.attempt(request, Manner::Usual, deadline).await;
        let outcome = reply.and_then(request::convert);
        if let Err(error) = &outcome {
            self.failed(error);
        }
        outcome
    }

    /// Sends one request, and a script's text if the server does not know it yet.
    pub(super) async fn attempt(
        &self,
        request: Request<'_>,
        manner: Manner,
        deadline: Instant,
    ) -> Result<Value, Error> {
        let (script, call) = match request {
            Request::Command(command) => return self.core.send(command, manner, deadline).await,
            Request::Script(script, call) => (script, call),
        };
        let by_digest = script.evalsha(call);
        match self.core.send(&by_digest, manner, deadline).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                self.core.send(&script.eval(call), manner, deadline).await
            }
            reply => reply,
        }
    }

    /// Counts what a caller was told in the end.
    pub(super) fn failed(&self, error: &Error) {
        self.core.counters.failed(error.kind());
    }

    pub(super) fn phase(&self) -> Phase {
        self.core.shared.borrow().machine.phase()
    }

    #[cfg(test)]
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        self.query_by(command, self.usual_deadline()).await
    }

    #[cfg(test)]
    pub(super) async fn invoke<T: FromRedisValue>(
        &self,
        script: &'static Script,
        call: Call,
    ) -> Result<T, Error> {
        self.invoke_by(script, call, self.usual_deadline()).await
    }

    /// Connects, and has the server know `script`; says whether it is there. If it fails, the next call
    /// sees to both.
    pub(crate) async fn prepare(&self, script: &'static Script) -> bool {
        let load = script.load();
        let sent = self.core.send(&load, Manner::Usual, self.usual_deadline());
        match sent.await {
            Ok(_) => true,
            // It answers, if only to refuse this.
            Err(error) => error.code().is_some(),
        }
    }

    pub(crate) fn health(&self) -> Health {
        let shared = self.core.shared.borrow();
        Health {
            name: self.core.settings.name,
            node: self.core.connector.node(),
            phase: shared.machine.phase(),
            since: shared.machine.since(),
            last_error: shared.machine.cause().cloned(),
            latency: self.core.counters.latency(),
            failures: self.core.counters.failures(),
        }
    }

    /// Returns once the link is in `phase`.
    #[cfg(test)]
    pub(super) async fn becomes(&self, phase: Phase) {
        self.core
            .watch()
            .wait_for(|shared| shared.machine.phase() == phase)
            .await
            .expect("the link holds the sender");
    }

    pub(super) fn usual_deadline(&self) -> Instant {
        Instant::now() + self.core.settings.command_timeout
    }
}

/// What the clones of a link and its supervisor share.
pub(super) struct Core {
    pub(super) connector: Connector,
    pub(super) settings: Settings,
    shared: watch::Sender<Shared>,
    slots: Semaphore,
    counters: Counters,
}

pub(super) struct Shared {
    pub(super) machine: Machine,
    connection: Option<MultiplexedConnection>,
}

impl Core {
    pub(super) fn watch(&self) -> watch::Receiver<Shared> {
        self.shared.subscribe()
    }

    /// Changes the state, wakes whoever waits for it, and logs what people want to know.
    pub(super) fn change(&self, transition: impl FnOnce(&mut Machine) -> Option<Change>) {
        let mut change = None;
        self.shared.send_modify(|shared| {
            change = transition(&mut shared.machine);
            if shared.machine.phase() != Phase::Connected {
                shared.connection = None;
            }
        });
        if let Some(change) = change {
            self.tell(&change);
        }
    }

    pub(super) fn connected(&self, term: Term, connection: MultiplexedConnection) {
        let mut change = None;
        self.shared.send_modify(|shared| {
            change = shared.machine.connected(term, Instant::now());
            if change.is_some() {
                shared.connection = Some(connection);
            }
        });
        if let Some(change) = change {
            self.tell(&change);
        }
    }

    fn tell(&self, change: &Change) {
        let node = self.connector.node();
        logs::changed(self.settings.name, node.as_deref(), change);
    }

    pub(super) fn ready(&self) -> Option<(MultiplexedConnection, Epoch)> {
        let shared = self.shared.borrow();
        let epoch = shared.machine.ready()?;
        Some((shared.connection.clone()?, epoch))
    }

    async fn send(
        self: &Arc<Self>,
        command: &Cmd,
        manner: Manner,
        deadline: Instant,
    ) -> Result<Value, Error> {
        let slot = self.slots.try_acquire().map_err(|_| Error::overloaded())?;
        let sent = self.deliver(command, manner, deadline).await;
        drop(slot);
        sent
    }

    async fn deliver(
        self: &Arc<Self>,
        command: &Cmd,
        manner: Manner,
        deadline: Instant,
    ) -> Result<Value, Error> {
        let (mut connection, epoch) = self.connection(deadline).await?;
        let flight = Flight::new(self, epoch);
        let exchange = request::exchange(&mut connection, command, manner);
        let reply = timeout_at(deadline, exchange).await;
        flight.landed(reply.ok())
    }

    /// The connection, once there is one; the first commands wait for it, later ones never do.
    async fn connection(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<(MultiplexedConnection, Epoch), Error> {
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        let mut changes = self.shared.subscribe();
        match self.admit() {
            Admission::Refuse(error) => return Err(error),
            Admission::Start(term) => supervisor::start(self, term),
            Admission::Send | Admission::Wait => {}
        }
        let settled = changes.wait_for(|shared| shared.machine.phase() != Phase::Connecting);
        match timeout_at(deadline, settled).await {
            Ok(_) => {
                let cause = || self.shared.borrow().machine.cause().cloned();
                self.ready().ok_or_else(|| Error::broken(cause().as_ref()))
            }
            Err(_) => Err(Error::connect_timed_out()),
        }
    }

    fn admit(&self) -> Admission {
        let mut admission = Admission::Wait;
        self.shared.send_if_modified(|shared| {
            admission = shared.machine.admit(Instant::now());
            matches!(admission, Admission::Start(_))
        });
        admission
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("name", &self.settings.name)
            .finish_non_exhaustive()
    }
}

/// A command under way. One that its caller gave up after a good while puts the connection in doubt.
struct Flight<'a> {
    core: &'a Core,
    epoch: Epoch,
    start: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Under,
    Landed,
}

impl<'a> Flight<'a> {
    fn new(core: &'a Core, epoch: Epoch) -> Self {
        Self {
            core,
            epoch,
            start: Instant::now(),
            stage: Stage::Under,
        }
    }

    /// `None`: its time passed.
    fn landed(mut self, reply: Option<redis::RedisResult<Value>>) -> Result<Value, Error> {
        self.stage = Stage::Landed;
        let Some(reply) = reply else {
            self.ran_out_of_time();
            return Err(Error::timed_out());
        };
        let outcome = reply
            .and_then(Value::extract_error)
            .map_err(Error::from_reply);
        match &outcome {
            Err(error) if error.condemns_connection() => {
                let cause = error.clone();
                self.core
                    .change(|machine| machine.lost(self.epoch, cause, Instant::now()));
            }
            _ => self.answered(),
        }
        outcome
    }

    fn answered(&self) {
        self.core.counters.answered(self.start.elapsed());
        let news = {
            let shared = self.core.shared.borrow();
            shared.machine.minds_answers()
        };
        if news {
            self.core.change(|machine| {
                machine.answered(self.epoch);
                None
            });
        }
    }

    fn ran_out_of_time(&self) {
        let epoch = self.epoch;
        if self.start.elapsed() * 2 > self.core.settings.command_timeout {
            self.core
                .change(|machine| machine.timed_out(epoch, Instant::now()));
        } else {
            self.doubt();
        }
    }

    fn doubt(&self) {
        self.core.change(|machine| {
            machine.doubted(self.epoch);
            None
        });
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let patience: Duration = self.core.settings.command_timeout / 5;
        if self.stage == Stage::Under && self.start.elapsed() > patience {
            self.doubt();
        }
    }
}
