//! Keeping this process true to what the others do.
//!
//! Events only wake and purge: whoever is woken asks the shared tier again and acts on its answer,
//! never on the message. While events may be missed, local entries are not trusted, and nobody joins
//! what was under way before; when they flow again, whatever is older than that is dropped.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::timeout};

use crate::{
    key::Digest,
    purges::{Purge, Purges, Reach},
};

/// What this process knows of the events of the fleet.
#[derive(Debug)]
pub(crate) struct Coherence {
    purges: Arc<Purges>,
    proven: AtomicBool,
    /// Whether anything has been asked of the tier that an event could have been missed for.
    heard: watch::Sender<bool>,
    watched: Mutex<HashMap<Digest, watch::Sender<()>>>,
    doubtful: AtomicU64,
}

impl Coherence {
    pub(crate) fn new(purges: Arc<Purges>) -> Arc<Self> {
        Arc::new(Self {
            purges,
            proven: AtomicBool::new(false),
            heard: watch::Sender::new(false),
            watched: Mutex::default(),
            doubtful: AtomicU64::new(0),
        })
    }

    /// Whether every purge of another process reaches this one.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Acquire)
    }

    /// Whether anything has been asked of the tier.
    pub(super) fn has_heard(&self) -> bool {
        *self.heard.borrow()
    }

    /// Waits, for `limit` at most, for the first word of the events, so that what a process asks for
    /// first is not dropped as soon as they flow.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, nothing has happened.
    pub(super) async fn first_heard(&self, limit: Duration) {
        if self.has_heard() {
            return;
        }
        let mut heard = self.heard.subscribe();
        if timeout(limit, heard.wait_for(|heard| *heard))
            .await
            .is_err()
        {
            self.expect_nothing();
        }
    }

    /// Nobody waits for the events any longer: what is asked for from now on is asked without them.
    pub(super) fn expect_nothing(&self) {
        self.heard.send_replace(true);
    }

    /// Events flow from now on; what happened before may have been missed.
    pub(crate) fn resumed(&self) {
        if self.heard.send_replace(true) {
            self.purges.purge(Purge::hard(Reach::All));
        }
        self.proven.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Events may be missed from now on.
    pub(crate) fn interrupted(&self) {
        self.heard.send_replace(true);
        if self.proven.swap(false, Ordering::AcqRel) {
            self.purges.interrupt();
        }
        self.wake_all();
    }

    /// Another process (or this one) has purged.
    pub(crate) fn purged(&self, purge: Purge) {
        self.purges.purge(purge);
    }

    /// A message was not believed.
    pub(crate) fn doubted(&self) {
        self.doubtful.fetch_add(1, Ordering::Relaxed);
    }

    /// How many messages were not believed.
    pub(crate) fn doubts(&self) -> u64 {
        self.doubtful.load(Ordering::Relaxed)
    }

    /// Something happened to `resource`.
    pub(crate) fn wake(&self, resource: Digest) {
        if let Some(sender) = self.watched().get(&resource) {
            sender.send_replace(());
        }
    }

    /// Whether anybody waits for what happens to `resource`.
    pub(super) fn is_watched(&self, resource: Digest) -> bool {
        self.watched().contains_key(&resource)
    }

    fn wake_all(&self) {
        for sender in self.watched().values() {
            sender.send_replace(());
        }
    }

    pub(super) fn watch(self: &Arc<Self>, resource: Digest) -> Watch {
        let mut watched = self.watched();
        let sender = watched
            .entry(resource)
            .or_insert_with(|| watch::Sender::new(()));
        Watch {
            coherence: Arc::clone(self),
            resource,
            events: sender.subscribe(),
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<Digest, watch::Sender<()>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registration for what happens to one resource; dropped, it ends.
#[derive(Debug)]
pub(crate) struct Watch {
    coherence: Arc<Coherence>,
    resource: Digest,
    events: watch::Receiver<()>,
}

impl Watch {
    /// The next event since the last one that was returned.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, no event is missed.
    pub(crate) async fn event(&mut self) {
        if self.events.changed().await.is_err() {
            // The sender lives as long as anybody watches.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.coherence.watched();
        // This receiver is still one of those counted.
        if watched
            .get(&self.resource)
            .is_some_and(|sender| sender.receiver_count() <= 1)
        {
            watched.remove(&self.resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purges::Since;

    const LIMIT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_waited_for_the_first_word_of_the_events_is_not_dropped_by_it() {
        let purges = Arc::new(Purges::new(10));
        let coherence = Coherence::new(Arc::clone(&purges));
        let began = purges.now();

        tokio::join!(coherence.first_heard(LIMIT), async { coherence.resumed() });

        assert!(coherence.is_proven());
        assert!(!purges.overtake(began, &[]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_did_not_wait_long_enough_is_dropped_when_the_events_flow() {
        let purges = Arc::new(Purges::new(10));
        let coherence = Coherence::new(Arc::clone(&purges));

        coherence.first_heard(LIMIT).await;
        let began = purges.now();
        coherence.resumed();

        assert_eq!(purges.since(began, &[]), Since::Purged);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_detaches_when_it_begins_and_drops_when_it_ends_however_often_it_is_told() {
        let purges = Arc::new(Purges::new(10));
        let coherence = Coherence::new(Arc::clone(&purges));
        coherence.resumed();
        let before = purges.now();

        coherence.interrupted();
        let within = purges.now();
        coherence.interrupted();

        assert!(!coherence.is_proven());
        assert!(purges.overtake(before, &[]) && purges.since(before, &[]) == Since::Nothing);
        assert!(!purges.overtake(within, &[]), "one gap detaches once");

        coherence.resumed();
        assert_eq!(purges.since(within, &[]), Since::Purged);
    }
}
