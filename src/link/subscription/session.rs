//! One connection's life: tell the server who listens to what, hand out messages, ping.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use redis::{
    RedisResult,
    aio::{PubSub, PubSubSink, PubSubStream},
};
use tokio::time::{Instant, sleep_until, timeout};

use super::{Core, table::Orders};
use crate::link::{
    error::Error,
    state::{Epoch, Term},
};

const PING: Duration = Duration::from_secs(3);
/// How long the connection outlives its last listener: the next one often comes soon.
const LINGER: Duration = Duration::from_secs(2);
/// After so long a refused channel is asked for again, and then after twice as long.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// So many channels go into one SUBSCRIBE.
const BATCH: usize = 128;

pub(super) struct Session<'a> {
    core: &'a Core,
    epoch: Epoch,
    term: Term,
}

pub(super) enum End {
    /// Nobody listened any more.
    Retired,
    Lost(Error),
}

impl<'a> Session<'a> {
    pub(super) fn new(core: &'a Core, epoch: Epoch, term: Term) -> Self {
        Self { core, epoch, term }
    }

    pub(super) async fn run(self, pubsub: PubSub) -> End {
        let (sink, stream) = pubsub.split();
        tokio::select! {
            () = self.read(stream) => End::Lost(Error::lost()),
            end = self.tend(sink) => end,
        }
    }

    async fn read(&self, mut messages: PubSubStream) {
        while let Some(message) = messages.next().await {
            let channel = message.get_channel_name();
            let payload = message.get_payload_bytes();
            self.core
                .with(|state| state.table.message(channel, payload));
        }
    }

    async fn tend(&self, mut sink: PubSubSink) -> End {
        match self.tend_until(&mut sink).await {
            Ok(()) => End::Retired,
            Err(error) => End::Lost(error),
        }
    }

    /// Returns when nobody listens any more.
    async fn tend_until(&self, sink: &mut PubSubSink) -> Result<(), Error> {
        let mut ping = Instant::now() + PING;
        let mut retry = Retry::new();
        let mut leave = None;
        loop {
            while let Some(orders) = self.core.with(|state| state.table.next_orders(BATCH)) {
                self.carry_out(sink, orders).await?;
            }
            let (empty, refused) = self
                .core
                .with(|state| (state.table.is_empty(), state.table.any_refused()));
            leave = empty.then(|| leave.unwrap_or_else(|| Instant::now() + LINGER));
            let chore = [Some(ping), leave, refused.then_some(retry.at)]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(ping);
            tokio::select! {
                () = self.core.work.notified() => continue,
                () = sleep_until(chore) => {}
            }
            let now = Instant::now();
            if leave.is_some_and(|leave| leave <= now)
                && self.core.with(|state| state.retire(self.term))
            {
                return Ok(());
            }
            if refused && retry.at <= now {
                self.core.with(|state| state.table.retry_refused());
                retry.next(now);
            }
            if ping <= now {
                self.in_time(sink.ping::<redis::Value>()).await?;
                self.core.connector.look_after().await?;
                ping = Instant::now() + PING;
            }
        }
    }

    async fn carry_out(&self, sink: &mut PubSubSink, orders: Orders) -> Result<(), Error> {
        if !orders.unsubscribe.is_empty() {
            let names: Vec<_> = orders.unsubscribe.iter().map(|name| &**name).collect();
            self.in_time(sink.unsubscribe(names)).await?;
        }
        if orders.subscribe.is_empty() {
            return Ok(());
        }
        match self.subscribe(sink, &orders.subscribe).await {
            // One name that is forbidden has the whole command refused.
            Err(error) if forbidden(&error) && orders.subscribe.len() > 1 => {
                for name in orders.subscribe {
                    self.subscribe_one(sink, name).await?;
                }
                Ok(())
            }
            Err(error) if forbidden(&error) => {
                self.refuse(&orders.subscribe, &error);
                Ok(())
            }
            outcome => outcome,
        }
    }

    async fn subscribe_one(&self, sink: &mut PubSubSink, name: Arc<str>) -> Result<(), Error> {
        let names = [name];
        match self.subscribe(sink, &names).await {
            Err(error) if forbidden(&error) => {
                self.refuse(&names, &error);
                Ok(())
            }
            outcome => outcome,
        }
    }

    async fn subscribe(&self, sink: &mut PubSubSink, channels: &[Arc<str>]) -> Result<(), Error> {
        let names: Vec<_> = channels.iter().map(|name| &**name).collect();
        self.in_time(sink.subscribe(names)).await?;
        self.core.with(|state| {
            for name in channels {
                state.table.confirmed(name);
            }
        });
        Ok(())
    }

    fn refuse(&self, channels: &[Arc<str>], error: &Error) {
        self.core.with(|state| {
            for name in channels {
                state.table.refused(name, error.clone());
            }
        });
    }

    async fn in_time<T>(&self, exchange: impl Future<Output = RedisResult<T>>) -> Result<T, Error> {
        let sent = Instant::now();
        let reply = timeout(self.core.settings.command_timeout, exchange)
            .await
            .map_err(|_| Error::timed_out())
            .and_then(|reply| reply.map_err(Error::from_reply));
        match &reply {
            Ok(_) => self.core.counters.answered(sent.elapsed()),
            Err(error) => self.core.counters.failed(error.kind()),
        }
        if reply.is_ok() {
            self.core.with(|state| state.machine.answered(self.epoch));
        }
        reply
    }
}

fn forbidden(error: &Error) -> bool {
    error.code() == Some("NOPERM")
}

struct Retry {
    at: Instant,
    pause: Duration,
}

impl Retry {
    fn new() -> Self {
        Self {
            at: Instant::now() + RETRY,
            pause: RETRY,
        }
    }

    fn next(&mut self, now: Instant) {
        self.pause = (self.pause * 2).min(LONGEST_RETRY);
        self.at = now + self.pause;
    }
}
