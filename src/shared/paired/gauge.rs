//! How one part of the pair fares: told in the log when that changes, once in a while, and to whoever asks.

use std::{
    error::Error,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    cache::{LinkHealth, LinkState},
    chain::Chain,
    shared::notice::{Bulletin, Effect},
};

/// What is known of one part.
#[derive(Debug)]
pub(super) struct Gauge {
    name: &'static str,
    reading: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    bulletin: Bulletin,
    state: LinkState,
    since: Instant,
    last_error: Option<String>,
    latency: Option<Duration>,
    failures: u64,
}

impl Gauge {
    pub(super) fn new(name: &'static str) -> Self {
        let reading = Reading {
            bulletin: Bulletin::default(),
            state: LinkState::Idle,
            since: Instant::now(),
            last_error: None,
            latency: None,
            failures: 0,
        };
        Self {
            name,
            reading: Mutex::new(reading),
        }
    }

    /// It has answered what it was asked at `asked`.
    pub(super) fn answered(&self, asked: Instant) {
        let mut reading = self.reading();
        reading.latency = Some(asked.elapsed());
        reading.turn(LinkState::Connected);
        let effect = reading.bulletin.works();
        drop(reading);
        if effect == Effect::News {
            tracing::info!(part = self.name, "answers again");
        }
    }

    /// It has not.
    pub(super) fn failed(&self, error: &(dyn Error + 'static)) {
        let told = Chain(error).to_string();
        let mut reading = self.reading();
        reading.failures += 1;
        reading.last_error = Some(told.clone());
        reading.turn(LinkState::Broken);
        let effect = reading.bulletin.fails(Instant::now());
        drop(reading);
        if effect == Effect::News {
            tracing::warn!(
                part = self.name,
                cause = told,
                "does not answer: going on without it"
            );
        }
    }

    pub(super) fn health(&self) -> LinkHealth {
        let reading = self.reading();
        LinkHealth {
            name: self.name,
            node: None,
            state: reading.state,
            since: reading.since.elapsed(),
            last_error: reading.last_error.clone(),
            latency: reading.latency,
            failures: reading.failures,
        }
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    fn turn(&mut self, state: LinkState) {
        if self.state != state {
            self.since = Instant::now();
            self.state = state;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store;

    #[tokio::test(start_paused = true)]
    async fn it_is_what_it_last_was_and_since_when() {
        let gauge = Gauge::new("store");
        assert_eq!(gauge.health().state, LinkState::Idle);

        gauge.answered(Instant::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..2 {
            gauge.failed(&store::Error::unavailable("no route"));
            tokio::time::advance(Duration::from_secs(1)).await;
        }

        let health = gauge.health();
        assert_eq!((health.state, health.failures), (LinkState::Broken, 2));
        assert_eq!(health.since, Duration::from_secs(2));
        let told = health.last_error.unwrap();
        assert_eq!(told, "the store cannot be reached: no route");
    }
}
