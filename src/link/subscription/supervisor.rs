//! The one background task of a subscription: connects while anyone listens.

use std::sync::{Arc, Weak};

use tokio::time::{Instant, sleep};

use super::{
    Core,
    session::{End, Session},
};
use crate::link::{
    state::{Change, Step, Term},
    supervisor::spawn_detached,
};

/// Starts the supervisor of `term` on the caller's runtime.
pub(super) fn start(core: &Arc<Core>, term: Term) {
    let post = Post {
        core: Arc::downgrade(core),
        term,
    };
    spawn_detached(supervise(post));
}

/// A supervisor's post; given up when the task ends or its runtime does.
struct Post {
    core: Weak<Core>,
    term: Term,
}

impl Drop for Post {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.with(|state| {
                if state.machine.abandoned(self.term, Instant::now()) {
                    state.table.abandoned();
                }
            });
        }
    }
}

async fn supervise(post: Post) {
    while let Some(core) = post.core.upgrade() {
        let step = core.with(|state| state.machine.step(post.term, fastrand::f64()));
        let Step::Connect { after } = step else {
            return;
        };
        drop(core);
        sleep(after).await;
        let Some(core) = post.core.upgrade() else {
            return;
        };
        if core.with(|state| state.retire(post.term)) {
            return;
        }
        attempt(&core, post.term).await;
    }
}

/// Connects and stays until the connection is lost or nobody listens any more.
async fn attempt(core: &Core, term: Term) {
    core.with(|state| state.machine.probe(term, Instant::now()));
    let pubsub = match core.connector.subscription().await {
        Ok(pubsub) => pubsub,
        Err(error) => {
            core.change(|state| state.machine.failed(term, error, Instant::now()));
            return;
        }
    };
    let mut epoch = None;
    core.change(|state| {
        let change: Change = state.machine.connected(term, Instant::now())?;
        epoch = state.machine.ready();
        state.table.connected();
        Some(change)
    });
    let Some(epoch) = epoch else {
        return;
    };
    match Session::new(core, epoch, term).run(pubsub).await {
        End::Retired => {}
        End::Lost(error) => core.change(|state| {
            let change = state.machine.lost(epoch, error, Instant::now());
            state.table.lost();
            change
        }),
    }
}

impl super::State {
    /// Ends this supervisor if nobody listens.
    pub(super) fn retire(&mut self, term: Term) -> bool {
        self.table.is_empty() && self.machine.abandoned(term, Instant::now()) && {
            self.table.lost();
            true
        }
    }
}
