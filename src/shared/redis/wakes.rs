//! Wakes in a Cluster: each shard has a channel in its own slot, so that a build's end is told on the node where
//! it was stored, and not on all of them.
//!
//! A wake is a hint, with polls beneath it: what is missed while a slot moves costs a waiter a second.

use std::sync::{Arc, Weak};

use super::events::{Event, Events, Heard};
use crate::{link::Ear, shared::Coherence};

/// What hears wakes, and heeds nothing else.
pub(super) fn ear(events: &Arc<Events>, coherence: &Arc<Coherence>) -> Ear {
    let (events, coherence) = (Arc::clone(events), Arc::downgrade(coherence));
    Arc::new(move |message| hear(message, &events, &coherence))
}

fn hear(message: &[u8], events: &Events, coherence: &Weak<Coherence>) {
    let Some(coherence) = coherence.upgrade() else {
        return;
    };
    match events.hear(message) {
        Heard::Told(Event::Woken(resource)) => coherence.wake(resource),
        // Whatever has to be heeded is told on the namespace's channel.
        Heard::Told(_) => {}
        Heard::Doubtful(..) => coherence.doubted(),
    }
}

#[cfg(test)]
mod tests {
    use tokio_test::{assert_pending, assert_ready, task};

    use super::*;
    use crate::{key::Digest, purges::Purges, shared::redis::Secret};

    fn events(secret: Option<&[u8]>) -> Arc<Events> {
        Arc::new(Events::new("shop".to_owned(), secret.map(Secret::new)))
    }

    fn coherence() -> Arc<Coherence> {
        Coherence::new(Arc::new(Purges::new(10)))
    }

    #[test]
    fn a_wake_wakes_those_who_wait_for_its_resource_alone() {
        let (events, coherence) = (events(None), coherence());
        let [one, other] = [Digest::of(b"one"), Digest::of(b"other")];
        let mut waits = [coherence.watch(one), coherence.watch(other)];
        let ear = ear(&events, &coherence);

        ear(events.woken(one).as_bytes());

        let [one, other] = waits.each_mut();
        assert_ready!(task::spawn(one.event()).poll());
        assert_pending!(task::spawn(other.event()).poll());
    }

    #[test]
    fn a_wake_that_is_not_believed_wakes_nobody_and_is_counted() {
        let (events, coherence) = (events(Some(b"a secret of some length")), coherence());
        let resource = Digest::of(b"one");
        let mut wait = coherence.watch(resource);
        let ear = ear(&events, &coherence);

        ear(b"garbage");
        ear(self::events(None).woken(resource).as_bytes());

        assert_pending!(task::spawn(wait.event()).poll());
        assert_eq!(coherence.doubts(), 2);
    }
}
