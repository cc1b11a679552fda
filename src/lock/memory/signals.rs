//! Who waits for which key, within the process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::lock::backend::{BoxFuture, Change, Family, Key, Watch};

type Channel = (Key, Family);
type Table = Mutex<HashMap<Channel, watch::Sender<()>>>;

#[derive(Debug, Default)]
pub(super) struct Signals {
    table: Arc<Table>,
}

impl Signals {
    pub(super) fn watch(&self, key: &Key, family: Family) -> MemoryWatch {
        let channel = (key.clone(), family);
        let receiver = with(&self.table, |table| {
            table
                .entry(channel.clone())
                .or_insert_with(|| watch::Sender::new(()))
                .subscribe()
        });
        MemoryWatch {
            table: Arc::clone(&self.table),
            channel,
            receiver,
            stage: Stage::New,
        }
    }

    pub(super) fn wake(&self, woken: &[Channel]) {
        if woken.is_empty() {
            return;
        }
        with(&self.table, |table| {
            for sender in woken.iter().filter_map(|channel| table.get(channel)) {
                sender.send_replace(());
            }
        });
    }
}

#[derive(Debug)]
pub(super) struct MemoryWatch {
    table: Arc<Table>,
    channel: Channel,
    receiver: watch::Receiver<()>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    New,
    Listening,
}

impl Watch for MemoryWatch {
    fn changed(&mut self) -> BoxFuture<'_, Change> {
        Box::pin(async move {
            if matches!(self.stage, Stage::New) {
                self.stage = Stage::Listening;
                return Change::Listening;
            }
            // The sender stays in the table as long as this watch lives.
            drop(self.receiver.changed().await);
            Change::Released
        })
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        with(&self.table, |table| {
            let last = |sender: &watch::Sender<()>| sender.receiver_count() <= 1;
            if table.get(&self.channel).is_some_and(last) {
                table.remove(&self.channel);
            }
        });
    }
}

fn with<T>(table: &Table, work: impl FnOnce(&mut HashMap<Channel, watch::Sender<()>>) -> T) -> T {
    work(&mut table.lock().unwrap_or_else(PoisonError::into_inner))
}
