//! Listening to the events of the namespace, over one subscription.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use futures_util::future::OptionFuture;
use tokio::task::AbortHandle;

use super::{
    doubts::Doubts,
    events::{Caller, Event, Events, Heard},
    heeded::Heeded,
    names::Names,
    record::{News, Record},
    wakes,
};
use crate::{
    link::{Health, Listener, Route, Server, Settings, ShardedListener, Signal, Subscription},
    shared::Coherence,
    task,
};

/// The listening side of one process.
#[derive(Debug)]
pub(super) struct Follow {
    subscription: Subscription,
    server: Server,
    timeout: Duration,
    names: Names,
    events: Arc<Events>,
    heeded: Arc<Heeded>,
    link: Route,
    task: Mutex<Option<AbortHandle>>,
}

impl Follow {
    /// `link` is for answering those who purge, and for asking what has been purged.
    pub(super) fn new(
        server: Server,
        timeout: Duration,
        (names, events): (Names, Arc<Events>),
        link: Route,
    ) -> Self {
        let settings = Settings {
            connect_timeout: timeout,
            command_timeout: timeout,
            name: "events",
        };
        Self {
            subscription: Subscription::new(server.clone(), settings),
            server,
            timeout,
            names,
            events,
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
        let answers = self.names.answers(self.events.origin());
        let answers = self.subscription.listen(&answers);
        let hearing = Hearing {
            coherence: Arc::downgrade(coherence),
            heeded: Arc::clone(&self.heeded),
            names: self.names.clone(),
            events: Arc::clone(&self.events),
            link: self.link.clone(),
            channel: Channel::Open,
        };
        let wakes = self.wakes(coherence);
        let listening = async move {
            tokio::select! {
                () = hearing.listen(events, answers) => {}
                Some(()) = OptionFuture::from(wakes.map(ShardedListener::listen)) => {}
            }
        };
        *task = task::spawn(listening).map(|task| task.abort_handle());
    }

    /// In a Cluster, wakes are told on channels of their own.
    fn wakes(&self, coherence: &Arc<Coherence>) -> Option<ShardedListener> {
        let cluster = self.server.cluster()?;
        let channels = self.names.wakes_of_shards();
        let ear = wakes::ear(&self.events, coherence);
        Some(ShardedListener::new(cluster, channels, self.timeout, ear))
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
    events: Arc<Events>,
    /// Over which it answers those who purge, and asks what has been purged.
    link: Route,
    channel: Channel,
}

/// What a process is told next.
enum Next {
    Event(Signal),
    Answer(Signal),
    News(News, Vec<Caller>),
}

impl Hearing {
    async fn listen(mut self, mut events: Listener, mut answers: Listener) {
        let mut doubts = Doubts::new(self.record());
        loop {
            let next = tokio::select! {
                signal = events.next() => Next::Event(signal),
                signal = answers.next() => Next::Answer(signal),
                (news, callers) = doubts.answered() => Next::News(news, callers),
            };
            let Some(coherence) = self.coherence.upgrade() else {
                return;
            };
            match next {
                Next::Event(Signal::Message(message)) | Next::Answer(Signal::Message(message)) => {
                    self.hear(&message, &coherence, &mut doubts);
                }
                Next::Event(signal) => self.changed(signal, &coherence, &mut doubts).await,
                Next::Answer(_) => {}
                Next::News(news, callers) => {
                    heed(news, &coherence);
                    for caller in &callers {
                        self.answer(caller);
                    }
                }
            }
        }
    }

    fn record(&self) -> Record {
        Record::new(&self.link, self.names.sets_of_tags())
    }

    /// The channel has begun or ceased to tell.
    async fn changed(&mut self, signal: Signal, coherence: &Coherence, doubts: &mut Doubts) {
        match signal {
            Signal::Subscribed => {
                self.channel = Channel::Open;
                let mut record = self.record();
                if self.events.are_signed() {
                    // Before anything is kept that a purge could be missed of.
                    record.start().await;
                }
                doubts.renew(record);
                coherence.resumed();
            }
            Signal::Refused(error) => {
                // The server is asked again and again, and refuses each time.
                if mem::replace(&mut self.channel, Channel::Refused) == Channel::Open {
                    tracing::warn!(%error, "the events' channel is refused: every hit asks Redis");
                }
                coherence.interrupted();
            }
            Signal::Lost | Signal::Message(_) => coherence.interrupted(),
        }
    }

    fn hear(&self, message: &[u8], coherence: &Coherence, doubts: &mut Doubts) {
        match self.events.hear(message) {
            Heard::Told(event) => {
                doubts.tell_of_calm();
                self.act(event, coherence);
            }
            Heard::Doubtful(flaw, event) => {
                coherence.doubted();
                doubts.tell(flaw);
                match event {
                    // Whoever waits looks again in a moment by himself, and counts only those he believes.
                    Some(Event::Woken(_) | Event::Heeded(_)) => {}
                    Some(Event::Purged(_, caller)) => doubts.doubt(caller),
                    None => doubts.doubt(None),
                }
            }
        }
    }

    fn act(&self, event: Event, coherence: &Coherence) {
        match event {
            Event::Woken(resource) => coherence.wake(resource),
            Event::Purged(purge, caller) => {
                coherence.purged(purge);
                if let Some(caller) = caller {
                    self.answer(&caller);
                }
            }
            Event::Heeded(answer) => self.heeded.answered(&answer),
        }
    }

    /// Tells the one who purged that it has been heeded here.
    fn answer(&self, caller: &Caller) {
        let channel = self.names.answers(&caller.process);
        let (link, answer) = (self.link.clone(), self.events.heeded(&caller.purge));
        drop(task::spawn(async move {
            // Who purged counts this process out, then.
            drop(link.publish(&channel, &answer).await);
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

/// Heeds what the server says has been purged.
fn heed(news: News, coherence: &Coherence) {
    match news {
        News::Purged(purges) => purges.into_iter().for_each(|purge| coherence.purged(purge)),
        // As if the events had been interrupted until now.
        News::Unknown => {
            coherence.interrupted();
            coherence.resumed();
        }
    }
}

/// What has been told of the channel.
#[derive(PartialEq)]
enum Channel {
    Open,
    Refused,
}
