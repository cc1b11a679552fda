//! The one background task of a link: connects, reconnects, and pings when in doubt.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    error::Error,
    link::{Core, Shared},
    state::{Step, Term},
};

/// An idle connection is pinged so often, so that no request is the first to learn that it is gone.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// Starts the supervisor of `term` on the caller's runtime.
pub(super) fn start(core: &Arc<Core>, term: Term) {
    let changes = core.watch();
    let post = Post {
        core: Arc::downgrade(core),
        term,
    };
    spawn_detached(supervise(post, changes));
}

/// Spawns what outlives the request that caused it, and therefore must not hold on to its span.
///
/// Without a runtime the future is dropped.
pub(super) fn spawn_detached(future: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(future));
    }
}

/// A supervisor's post; given up when the task ends or its runtime does.
struct Post {
    core: Weak<Core>,
    term: Term,
}

impl Drop for Post {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.change(|machine| {
                machine.abandoned(self.term, Instant::now());
                None
            });
        }
    }
}

async fn supervise(post: Post, mut changes: watch::Receiver<Shared>) {
    loop {
        let step = changes
            .borrow_and_update()
            .machine
            .step(post.term, fastrand::f64());
        match step {
            Step::Retire => return,
            Step::Rest => {
                let change = timeout(HEARTBEAT, changes.changed()).await;
                let Some(core) = post.core.upgrade() else {
                    return;
                };
                if change.is_err() {
                    ping(&core).await;
                    look_after(&core).await;
                }
            }
            Step::Connect { after } => {
                sleep(after).await;
                let Some(core) = post.core.upgrade() else {
                    return;
                };
                connect(&core, post.term).await;
            }
            Step::Ping => {
                let Some(core) = post.core.upgrade() else {
                    return;
                };
                ping(&core).await;
            }
        }
    }
}

async fn connect(core: &Core, term: Term) {
    core.change(|machine| {
        machine.probe(term, Instant::now());
        None
    });
    match core.connector.commands().await {
        Ok(connection) => core.connected(term, connection),
        Err(error) => core.change(|machine| machine.failed(term, error, Instant::now())),
    }
}

async fn look_after(core: &Core) {
    let Some((_, epoch)) = core.ready() else {
        return;
    };
    if let Err(error) = core.connector.look_after().await {
        core.change(|machine| machine.lost(epoch, error, Instant::now()));
    }
}

async fn ping(core: &Core) {
    let Some((mut connection, epoch)) = core.ready() else {
        return;
    };
    let ping = redis::cmd("PING");
    let patience = core.settings.command_timeout;
    let reply = timeout(patience, ping.query_async::<()>(&mut connection)).await;
    core.change(|machine| match reply {
        Ok(Ok(())) => {
            machine.answered(epoch);
            None
        }
        Ok(Err(error)) => machine.lost(epoch, Error::from_reply(error), Instant::now()),
        Err(_) => machine.timed_out(epoch, Instant::now()),
    });
}
