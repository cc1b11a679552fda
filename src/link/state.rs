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

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{backoff, error::Error};

/// So many timeouts in a row, with no reply between, and the connection is given up.
const TIMEOUTS: u32 = 3;

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
    /// Since when commands fail, if they do.
    down: Option<Instant>,
    cause: Option<Arc<Error>>,
    /// The supervisor's last sign of life.
    heard: Instant,
    /// How long a live supervisor may be silent while it has work to do.
    patience: Duration,
}

/// What a command is to do.
#[derive(Debug)]
pub(super) enum Admission {
    Send(Epoch),
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
            down: None,
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
        self.down.unwrap_or(self.since)
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
            Phase::Connected => Admission::Send(self.epoch),
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
        let change = match self.down.take() {
            Some(down) => Change::Healed {
                after: now.duration_since(down),
            },
            None => Change::Connected,
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
        let news = self
            .down
            .is_none()
            .then(|| Change::Broke(Arc::clone(&cause)));
        self.heard = now;
        self.failures = self.failures.saturating_add(1);
        self.cause = Some(cause);
        self.down.get_or_insert(now);
        self.enter(Phase::Broken, now);
        news
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

#[cfg(test)]
mod tests {
    use super::*;

    const ATTEMPT: Duration = Duration::from_millis(500);

    /// A machine with a clock that the test moves.
    struct Fixture {
        machine: Machine,
        now: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                machine: Machine::new(now, ATTEMPT),
                now,
            }
        }

        fn connected() -> (Self, Term, Epoch) {
            let mut fixture = Self::new();
            let term = fixture.start();
            let (epoch, _) = fixture.connect(term);
            (fixture, term, epoch)
        }

        fn start(&mut self) -> Term {
            match self.machine.admit(self.now) {
                Admission::Start(term) => term,
                other => panic!("{other:?}"),
            }
        }

        fn connect(&mut self, term: Term) -> (Epoch, Change) {
            self.machine.probe(term, self.now);
            let change = self.machine.connected(term, self.now).unwrap();
            (self.machine.ready().unwrap(), change)
        }

        fn fail(&mut self, term: Term) -> Option<Change> {
            self.machine.probe(term, self.now);
            self.machine
                .failed(term, Error::connect_timed_out(), self.now)
        }
    }

    #[test]
    fn the_first_command_starts_a_supervisor_and_others_wait_with_it() {
        let mut fixture = Fixture::new();

        let term = fixture.start();

        assert!(matches!(
            fixture.machine.admit(fixture.now),
            Admission::Wait
        ));
        let at_once = Step::Connect {
            after: Duration::ZERO,
        };
        assert_eq!(fixture.machine.step(term, 0.5), at_once);
        let (epoch, change) = fixture.connect(term);
        assert!(matches!(change, Change::Connected));
        assert!(
            matches!(fixture.machine.admit(fixture.now), Admission::Send(sent) if sent == epoch)
        );
    }

    #[test]
    fn commands_are_refused_while_it_is_broken_and_while_it_probes() {
        let mut fixture = Fixture::new();
        let term = fixture.start();

        assert!(matches!(fixture.fail(term), Some(Change::Broke(_))));
        assert!(matches!(
            fixture.machine.admit(fixture.now),
            Admission::Refuse(_)
        ));
        fixture.machine.probe(term, fixture.now);

        assert_eq!(fixture.machine.phase(), Phase::Probing);
        assert!(matches!(
            fixture.machine.admit(fixture.now),
            Admission::Refuse(_)
        ));
    }

    #[test]
    fn an_outage_is_told_once_and_its_end_with_its_length() {
        let (mut fixture, term, epoch) = Fixture::connected();

        let told = fixture.machine.lost(epoch, Error::lost(), fixture.now);
        assert!(matches!(told, Some(Change::Broke(_))));
        for _ in 0..3 {
            fixture.now += Duration::from_secs(1);
            assert!(fixture.fail(term).is_none());
        }
        let (_, change) = fixture.connect(term);

        assert!(
            matches!(change, Change::Healed { after } if after == Duration::from_secs(3)),
            "{change:?}"
        );
    }

    #[test]
    fn three_timeouts_in_a_row_break_it() {
        let (mut fixture, _, epoch) = Fixture::connected();

        for _ in 0..2 {
            assert!(fixture.machine.timed_out(epoch, fixture.now).is_none());
        }
        fixture.machine.answered(epoch);
        for _ in 0..2 {
            assert!(fixture.machine.timed_out(epoch, fixture.now).is_none());
        }
        assert_eq!(fixture.machine.phase(), Phase::Connected);

        assert!(fixture.machine.timed_out(epoch, fixture.now).is_some());
        assert_eq!(fixture.machine.phase(), Phase::Broken);
    }

    #[test]
    fn doubt_calls_for_a_ping_and_never_breaks_it_alone() {
        let (mut fixture, term, epoch) = Fixture::connected();
        assert_eq!(fixture.machine.step(term, 0.0), Step::Rest);

        for _ in 0..10 {
            fixture.machine.doubted(epoch);
        }

        assert_eq!(fixture.machine.step(term, 0.0), Step::Ping);
        fixture.machine.answered(epoch);
        assert_eq!(fixture.machine.step(term, 0.0), Step::Rest);
    }

    #[test]
    fn pauses_grow_until_a_reply_comes() {
        let (mut fixture, term, epoch) = Fixture::connected();
        let longest = |machine: &Machine| match machine.step(term, 1.0) {
            Step::Connect { after } => after,
            other => panic!("{other:?}"),
        };

        fixture.machine.lost(epoch, Error::lost(), fixture.now);
        assert_eq!(longest(&fixture.machine), Duration::from_millis(20));
        let (epoch, _) = fixture.connect(term);
        fixture.machine.lost(epoch, Error::lost(), fixture.now);
        assert_eq!(longest(&fixture.machine), Duration::from_millis(40));
        let (epoch, _) = fixture.connect(term);
        fixture.machine.answered(epoch);
        fixture.machine.lost(epoch, Error::lost(), fixture.now);

        assert_eq!(longest(&fixture.machine), Duration::from_millis(20));
    }

    #[test]
    fn news_of_an_old_connection_does_no_harm_to_the_new_one() {
        let (mut fixture, term, old) = Fixture::connected();
        fixture.machine.lost(old, Error::lost(), fixture.now);
        fixture.connect(term);

        assert!(
            fixture
                .machine
                .lost(old, Error::lost(), fixture.now)
                .is_none()
        );
        for _ in 0..5 {
            assert!(fixture.machine.timed_out(old, fixture.now).is_none());
        }

        assert_eq!(fixture.machine.phase(), Phase::Connected);
    }

    #[test]
    fn a_supervisor_that_is_gone_is_replaced_by_the_next_command() {
        let (mut fixture, old, _) = Fixture::connected();

        assert!(fixture.machine.abandoned(old, fixture.now));
        let term = fixture.start();

        assert_eq!(fixture.machine.step(old, 0.0), Step::Retire);
        fixture.connect(term);
        assert!(!fixture.machine.abandoned(old, fixture.now));
        assert_eq!(fixture.machine.phase(), Phase::Connected);
    }

    #[test]
    fn a_supervisor_that_stands_still_is_replaced_once_patience_ends() {
        let (mut fixture, old, epoch) = Fixture::connected();
        fixture.now += Duration::from_secs(60);
        fixture.machine.lost(epoch, Error::lost(), fixture.now);
        assert!(matches!(
            fixture.machine.admit(fixture.now),
            Admission::Refuse(_)
        ));

        fixture.now += 3 * (ATTEMPT + backoff::longest());
        let term = fixture.start();

        assert!(fixture.machine.connected(old, fixture.now).is_none());
        let (_, change) = fixture.connect(term);
        assert!(matches!(change, Change::Healed { .. }));
    }
}
