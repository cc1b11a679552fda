//! Sharded channels: each is listened to at the master that holds its slot, wherever that slot goes.
//!
//! ```text
//!  channels --SlotMap--> Roster --start, stop--> Session of a master: SSUBSCRIBE, messages, pings
//!                          ^                        | `sunsubscribe`, MOVED, a lost connection
//!                          +-- a pause, a new map <-+
//! ```
//!
//! What is said meanwhile is missed, and nobody is told so: only what is good to know and can be done without
//! belongs on such a channel.

mod roster;
mod session;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use self::{
    roster::{Roster, Step, Term},
    session::{End, Session},
};
use super::known::Cluster;
use crate::link::logs;

/// While the slots of some channels are nobody's, the Cluster is asked again so often.
const INCOMPLETE: Duration = Duration::from_secs(1);
const COMPLETE: Duration = Duration::from_secs(15);

/// What hears the messages. It is called where they are read, and must not block.
pub(crate) type Ear = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Listens to sharded channels.
pub(crate) struct ShardedListener {
    cluster: Arc<Cluster>,
    channels: Vec<Arc<str>>,
    /// For connecting, and for an answer.
    patience: Duration,
    ear: Ear,
    roster: Roster,
    sessions: JoinSet<(Term, End)>,
    handles: HashMap<Term, AbortHandle>,
}

impl ShardedListener {
    pub(crate) fn new(
        cluster: &Arc<Cluster>,
        channels: impl Iterator<Item = String>,
        patience: Duration,
        ear: Ear,
    ) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            channels: channels.map(Arc::from).collect(),
            patience,
            ear,
            roster: Roster::default(),
            sessions: JoinSet::new(),
            handles: HashMap::new(),
        }
    }

    /// Listens until it is dropped.
    pub(crate) async fn listen(mut self) {
        let mut looks = self.cluster.looks();
        loop {
            let until = self.follow();
            self.wait(&mut looks, until).await;
        }
    }

    /// Listens where the slots are now; says until when that is left alone.
    fn follow(&mut self) -> Instant {
        let now = Instant::now();
        let owner = |slot| self.cluster.owner(slot);
        let groups = roster::by_master(&self.channels, owner);
        let placed: usize = groups.values().map(Vec::len).sum();
        for step in self.roster.follow(groups, now) {
            self.take(step);
        }
        let pause = if placed < self.channels.len() {
            self.cluster.doubt();
            INCOMPLETE
        } else {
            COMPLETE
        };
        let rested = self.roster.rested();
        rested.map_or(now + pause, |rested| rested.min(now + pause))
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Stop(term) => {
                if let Some(session) = self.handles.remove(&term) {
                    session.abort();
                }
            }
            Step::Start(term, master, channels) => {
                let session = Session {
                    cluster: Arc::clone(&self.cluster),
                    master,
                    channels,
                    patience: self.patience,
                    ear: Arc::clone(&self.ear),
                };
                let session = async move { (term, session.run().await) };
                let handle = self.sessions.spawn(session);
                self.handles.insert(term, handle);
            }
        }
    }

    /// Returns when there may be something to do.
    async fn wait(&mut self, looks: &mut watch::Receiver<u64>, until: Instant) {
        tokio::select! {
            Some(ended) = self.sessions.join_next() => {
                // One that was stopped is forgotten already.
                if let Ok((term, end)) = ended {
                    self.ended(term, &end);
                }
            }
            Ok(()) = looks.changed() => {}
            () = sleep_until(until) => {}
        }
    }

    fn ended(&mut self, term: Term, end: &End) {
        self.handles.remove(&term);
        if !matches!(end, End::Refused(_)) {
            self.cluster.doubt();
        }
        let told = self
            .roster
            .ended(term, end, Instant::now(), fastrand::f64());
        if let (Some(master), End::Refused(cause)) = (told, end) {
            logs::shards_refused(&master.to_string(), cause);
        }
    }
}

impl fmt::Debug for ShardedListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedListener")
            .field("channels", &self.channels.len())
            .finish_non_exhaustive()
    }
}
