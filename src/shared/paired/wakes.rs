//! Waking those who wait for a build of another process, as soon as its lock is released.
//!
//! A store has no events, a lock may have: beneath them those who wait ask again and again.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use tokio::time::timeout;

use crate::{
    key::Digest,
    lock::{Acquire, backend::Change},
    shared::Coherence,
    task,
};

/// So often it is looked whether anybody still waits.
const LOOK: Duration = Duration::from_secs(1);

/// The locks whose release is listened for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wakes {
    coherence: Arc<OnceLock<Weak<Coherence>>>,
    listening: Arc<Mutex<HashSet<String>>>,
}

/// One lock that is listened to; dropped, it is no more.
struct Listening {
    key: String,
    all: Arc<Mutex<HashSet<String>>>,
}

impl Wakes {
    /// Through this those who wait are woken.
    pub(super) fn follow(&self, coherence: &Arc<Coherence>) {
        self.coherence.get_or_init(|| Arc::downgrade(coherence));
    }

    /// Wakes those who wait for `resource` when `lock` is released, until nobody does.
    pub(super) fn listen(&self, resource: Digest, lock: Acquire) {
        let Some(coherence) = self.coherence.get().cloned() else {
            return;
        };
        let Some(key) = lock.keys().next().map(str::to_owned) else {
            return;
        };
        if !locked(&self.listening).insert(key.clone()) {
            return;
        }
        let all = Arc::clone(&self.listening);
        let listening = Listening { key, all };
        // Without a runtime nobody waits.
        drop(task::spawn(wake(lock, resource, coherence, listening)));
    }
}

async fn wake(lock: Acquire, resource: Digest, coherence: Weak<Coherence>, listening: Listening) {
    let Some(mut watch) = lock.watch() else {
        return;
    };
    loop {
        let change = timeout(LOOK, watch.changed()).await;
        let Some(coherence) = coherence.upgrade() else {
            return;
        };
        match change {
            // What was released before is found by the next poll.
            Ok(Change::Listening | Change::Released) => coherence.wake(resource),
            Ok(Change::Refused(error)) => {
                tracing::debug!(%error, key = listening.key, "the lock cannot be watched");
                return;
            }
            Err(_elapsed) if !coherence.is_watched(resource) => return,
            Err(_elapsed) => {}
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        locked(&self.all).remove(&self.key);
    }
}

fn locked(listening: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    listening.lock().unwrap_or_else(PoisonError::into_inner)
}
