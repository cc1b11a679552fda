//! The store, asked within bounds, and the generations in it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    gauge::Gauge,
    generations::{self, Ledger, Mark, Record, State},
    names::Names,
};
use crate::{
    cache::LinkHealth,
    caught::in_time,
    shared::{Effect, Fault, Outage},
    store::{Condition, Error, ErrorKind, Found, Read, Store, Write, Written},
    time::LONGEST,
};

/// Where the records are.
#[derive(Debug)]
pub(super) struct Stock {
    store: Arc<dyn Store>,
    resolution: Duration,
    names: Names,
    gauge: Gauge,
}

impl Stock {
    pub(super) fn new(store: Arc<dyn Store>, names: Names) -> Self {
        let gauge = Gauge::new("store");
        // Sums of it are to be counted with.
        let resolution = store.resolution().min(LONGEST);
        Self {
            store,
            resolution,
            names,
            gauge,
        }
    }

    pub(super) fn resolution(&self) -> Duration {
        self.resolution
    }

    pub(super) fn health(&self) -> LinkHealth {
        self.gauge.health()
    }

    /// One answer for each of `reads`.
    pub(super) async fn get(
        &self,
        reads: &[Read],
        deadline: Instant,
    ) -> Result<Vec<Option<Found>>, Outage> {
        let reading = async { self.store.get(reads).await };
        let found = self.bounded(deadline, reading).await?;
        if found.len() != reads.len() {
            return Err(Error::refused("it gave other records than it was asked for").into());
        }
        Ok(found)
    }

    pub(super) async fn put(&self, write: &Write, deadline: Instant) -> Result<Written, Outage> {
        self.bounded(deadline, async { self.store.put(write).await })
            .await
    }

    pub(super) async fn remove(&self, key: &str, deadline: Instant) -> Result<(), Outage> {
        self.bounded(deadline, async { self.store.remove(key).await })
            .await
    }

    async fn bounded<T>(
        &self,
        deadline: Instant,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Outage> {
        let asked = Instant::now();
        let outcome = in_time(deadline, operation).await;
        let outcome = outcome.unwrap_or_else(|cause| Err(Error::unknown(cause)));
        match &outcome {
            Err(error) if error.kind() != ErrorKind::Refused => self.gauge.failed(error),
            Ok(_) | Err(_) => self.gauge.answered(asked),
        }
        Ok(outcome?)
    }

    // ===== generations =====

    /// Reads the records of `marks`.
    pub(super) async fn read(
        &self,
        marks: &[Mark],
        ledger: &mut Ledger,
        deadline: Instant,
    ) -> Result<(), Outage> {
        if marks.is_empty() {
            return Ok(());
        }
        let found = self.get(&self.reads(marks), deadline).await?;
        note(marks, found, ledger);
        Ok(())
    }

    pub(super) fn reads(&self, marks: &[Mark]) -> Vec<Read> {
        let names = marks.iter().map(|mark| self.names.generation(*mark));
        names.map(Read::new).collect()
    }

    /// Writes the records that are missing, and anew those that will not last, so that a build can begin.
    /// One of two processes that do so at once succeeds, and both go by its record.
    pub(super) async fn complete(
        &self,
        ledger: &mut Ledger,
        deadline: Instant,
    ) -> Result<(), Outage> {
        let wanting = ledger.wanting();
        let writes: Vec<_> = wanting
            .iter()
            .map(|(mark, record, condition)| self.generation(*mark, record, *condition))
            .collect();
        let puts = writes.iter().map(|write| self.put(write, deadline));
        let mut lost = Vec::new();
        for ((mark, record, _), written) in wanting.iter().zip(together(puts).await) {
            match written? {
                Written::Stored(version) => ledger.note(*mark, State::Known(*record, version)),
                Written::Refused | Written::TooLarge => lost.push(*mark),
            }
        }
        self.read(&lost, ledger, deadline).await
    }

    pub(super) fn generation(&self, mark: Mark, record: &Record, condition: Condition) -> Write {
        let key = self.names.generation(mark);
        Write::new(key, record.encode(), generations::LIFE).only_if(condition)
    }
}

/// Notes what was found for `marks`.
pub(super) fn note(
    marks: &[Mark],
    found: impl IntoIterator<Item = Option<Found>>,
    ledger: &mut Ledger,
) {
    for (mark, found) in marks.iter().zip(found) {
        ledger.note(*mark, state(found.as_ref()));
    }
}

fn state(found: Option<&Found>) -> State {
    let Some(found) = found else {
        return State::Missing(Condition::Absent);
    };
    let record = found
        .value()
        .and_then(|value| Record::decode(value, found.left()));
    match record {
        Some(record) => State::Known(record, found.version()),
        None => State::Missing(Condition::Unchanged(found.version())),
    }
}

impl From<Error> for Outage {
    fn from(error: Error) -> Self {
        let (effect, fault) = match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::Unavailable => (Effect::None, Fault::Unreachable),
            ErrorKind::OutcomeUnknown => (Effect::Unknown, Fault::Unreachable),
            ErrorKind::Refused => (Effect::None, Fault::Refused),
        };
        Self {
            effect,
            fault,
            source: error.into(),
        }
    }
}

/// Awaits all of `futures` at the same time.
async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in running.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
