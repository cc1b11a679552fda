//! The link's state machine: what it is, without a runtime or a socket.
//!
//! ```text
//!           first command              connected
//!   Idle ------------------> Connecting ----------> Connected <-----------+
//!    ^                           |                      |                 |
//!    |                    failed |        lost, refused, 3 timeouts       | connected
//!    |                           v                      v                 |
//!    +--- supervisor gone --- Broken <------------------+                 |
//!                                ^ |  after the pause                     |
//!                         failed | +-----------------> Probing -----------+
//! ```
//!
//! Two numbers keep late news from doing harm: the *term* of the supervisor (a supervisor whose runtime is gone or
//! stands still is replaced under the next term) and the *epoch* of the connection (what an old connection's command met says nothing
//! about the new one).

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{backoff, error::Error};

/// So many timeouts in a row, with no reply between, and the connection is given up.
const TIMEOUTS: u32 = 3;

/// A link that comes and goes is news no more often than this.
const NEWS: Duration = Duration::from_secs(5);

/// What the link is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nobody asked for a connection yet.
    Idle,
    /// The first attempt to connect is under way; commands wait for it.
    Connecting,
    /// Commands are sent.
    Connected,
    /// Commands fail at once; the next attempt to connect comes after a pause.
    Broken,
    /// Commands fail at once; an attempt to connect is under way.
    Probing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Term(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u64);

#[derive(Debug)]
pub(super) struct Machine {
    phase: Phase,
    since: Instant,
    term: Term,
    epoch: Epoch,
    /// Timeouts on this connection since its last reply.
    timeouts: u32,
    /// How often the link broke or failed to connect since the last reply.
    failures: u32,
    /// Set while commands fail.
    outage: Option<Outage>,
    /// When the last outage was told.
    told: Option<Instant>,
    cause: Option<Arc<Error>>,
    /// The supervisor's last sign of life.
    heard: Instant,
    /// How long a live supervisor may be silent while it has work to do.
    patience: Duration,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    news: News,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Told,
    Kept,
}

/// What a command is to do.
#[derive(Debug)]
pub(super) enum Admission {
    Send,
    /// Start a supervisor of this term, then wait.
    Start(Term),
    Wait,
    Refuse(Error),
}

/// What the supervisor is to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Connect { after: Duration },
    Ping,
    Rest,
    Retire,
}

/// A change of state that people want to know of.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Connected,
    Healed { after: Duration },
    Broke(Arc<Error>),
}

impl Machine {
    /// `attempt`: how long one attempt to connect may take at most.
    pub(super) fn new(now: Instant, attempt: Duration) -> Self {
        Self {
            phase: Phase::Idle,
            since: now,
            term: Term(0),
            epoch: Epoch(0),
            timeouts: 0,
            failures: 0,
            outage: None,
            told: None,
            cause: None,
            heard: now,
            patience: 2 * (attempt + backoff::longest()),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Since when the link is connected, down, or neither.
    pub(super) fn since(&self) -> Instant {
        self.outage
            .as_ref()
            .map_or(self.since, |outage| outage.since)
    }

    pub(super) fn cause(&self) -> Option<&Arc<Error>> {
        self.cause.as_ref()
    }

    /// Whether a command can be admitted without any change.
    pub(super) fn ready(&self) -> Option<Epoch> {
        (self.phase == Phase::Connected).then_some(self.epoch)
    }

    pub(super) fn admit(&mut self, now: Instant) -> Admission {
        let stalled = now.duration_since(self.heard) > self.patience;
        match self.phase {
            Phase::Connected => Admission::Send,
            Phase::Idle => {
                self.enter(Phase::Connecting, now);
                Admission::Start(self.appoint(now))
            }
            Phase::Connecting | Phase::Broken | Phase::Probing if stalled => {
                self.enter(Phase::Connecting, now);
                Admission::Start(self.appoint(now))
            }
            Phase::Connecting => Admission::Wait,
            Phase::Broken | Phase::Probing => Admission::Refuse(Error::broken(self.cause.as_ref())),
        }
    }

    /// `unit`: a random number from 0 to 1.
    pub(super) fn step(&self, term: Term, unit: f64) -> Step {
        if term != self.term {
            return Step::Retire;
        }
        match self.phase {
            Phase::Idle => Step::Retire,
            Phase::Connecting | Phase::Probing => Step::Connect {
                after: Duration::ZERO,
            },
            Phase::Broken => Step::Connect {
                after: backoff::pause(self.failures.saturating_sub(1), unit),
            },
            Phase::Connected if self.timeouts > 0 => Step::Ping,
            Phase::Connected => Step::Rest,
        }
    }

    /// The supervisor begins an attempt to connect.
    pub(super) fn probe(&mut self, term: Term, now: Instant) {
        if term != self.term {
            return;
        }
        self.heard = now;
        if self.phase == Phase::Broken {
            self.enter(Phase::Probing, now);
        }
    }

    /// The attempt brought a connection. `None`: this supervisor was replaced meanwhile.
    pub(super) fn connected(&mut self, term: Term, now: Instant) -> Option<Change> {
        if term != self.term || !matches!(self.phase, Phase::Connecting | Phase::Probing) {
            return None;
        }
        let change = match self.outage.take() {
            Some(outage) if outage.news == News::Told => Change::Healed {
                after: now.duration_since(outage.since),
            },
            _ => Change::Connected,
        };
        self.heard = now;
        self.epoch.0 += 1;
        self.timeouts = 0;
        self.enter(Phase::Connected, now);
        Some(change)
    }

    /// The attempt failed.
    pub(super) fn failed(&mut self, term: Term, cause: Error, now: Instant) -> Option<Change> {
        if term != self.term || !matches!(self.phase, Phase::Connecting | Phase::Probing) {
            return None;
        }
        self.breaks(cause, now)
    }

    /// A reply came.
    pub(super) fn answered(&mut self, epoch: Epoch) {
        if epoch == self.epoch {
            self.timeouts = 0;
            self.failures = 0;
        }
    }

    /// Whether [`answered`](Self::answered) would change anything.
    pub(super) fn minds_answers(&self) -> bool {
        self.timeouts > 0 || self.failures > 0
    }

    /// A command or PING waited for its whole time in vain.
    pub(super) fn timed_out(&mut self, epoch: Epoch, now: Instant) -> Option<Change> {
        if self.ready() != Some(epoch) {
            return None;
        }
        self.timeouts += 1;
        if self.timeouts < TIMEOUTS {
            return None;
        }
        self.breaks(Error::timed_out(), now)
    }

    /// Someone gave up waiting before the command's whole time had passed: reason enough for a PING.
    pub(super) fn doubted(&mut self, epoch: Epoch) {
        if self.ready() == Some(epoch) {
            self.timeouts = self.timeouts.max(1);
        }
    }

    /// The connection is lost or unusable.
    pub(super) fn lost(&mut self, epoch: Epoch, cause: Error, now: Instant) -> Option<Change> {
        if self.ready() != Some(epoch) {
            return None;
        }
        self.breaks(cause, now)
    }

    /// The supervisor ended, with its runtime and therefore the connection.
    ///
    /// `false`: another supervisor has taken over.
    pub(super) fn abandoned(&mut self, term: Term, now: Instant) -> bool {
        let current = term == self.term;
        if current {
            self.enter(Phase::Idle, now);
        }
        current
    }

    fn breaks(&mut self, cause: Error, now: Instant) -> Option<Change> {
        let cause = Arc::new(cause);
        self.heard = now;
        self.failures = self.failures.saturating_add(1);
        self.cause = Some(Arc::clone(&cause));
        self.enter(Phase::Broken, now);
        self.tell(cause, now)
    }

    /// Each outage is told once; one that comes soon after another only if it lasts.
    fn tell(&mut self, cause: Arc<Error>, now: Instant) -> Option<Change> {
        let quiet = self.told.is_some_and(|told| now < told + NEWS);
        let outage = self.outage.get_or_insert(Outage {
            since: now,
            news: News::Kept,
        });
        if quiet || outage.news == News::Told {
            return None;
        }
        outage.news = News::Told;
        self.told = Some(now);
        Some(Change::Broke(cause))
    }

    fn appoint(&mut self, now: Instant) -> Term {
        self.heard = now;
        self.term.0 += 1;
        self.term
    }

    fn enter(&mut self, phase: Phase, now: Instant) {
        self.phase = phase;
        self.since = now;
    }
}
