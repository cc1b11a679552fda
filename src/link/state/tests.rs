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
    let (_epoch, change) = fixture.connect(term);
    assert!(matches!(change, Change::Connected));
    assert!(matches!(
        fixture.machine.admit(fixture.now),
        Admission::Send
    ));
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

#[test]
fn a_link_that_comes_and_goes_is_told_once_in_a_while() {
    let (mut fixture, term, mut epoch) = Fixture::connected();
    let (mut broke, mut healed) = (0, 0);

    for _ in 0..100 {
        fixture.now += NEWS / 50;
        broke += usize::from(
            fixture
                .machine
                .lost(epoch, Error::lost(), fixture.now)
                .is_some(),
        );
        let (next, change) = fixture.connect(term);
        healed += usize::from(matches!(change, Change::Healed { .. }));
        epoch = next;
    }

    assert_eq!((broke, healed), (2, 2));
}

#[test]
fn an_outage_that_begins_in_a_quiet_time_is_told_when_it_lasts() {
    let (mut fixture, term, epoch) = Fixture::connected();
    fixture.machine.lost(epoch, Error::lost(), fixture.now);
    let (epoch, _) = fixture.connect(term);

    let at_once = fixture.machine.lost(epoch, Error::lost(), fixture.now);
    fixture.now += NEWS;
    let later = fixture.fail(term);

    assert!(at_once.is_none());
    assert!(matches!(later, Some(Change::Broke(_))));
    assert!(fixture.fail(term).is_none());
}
