use proptest::prelude::*;
use tokio_test::{assert_pending, assert_ready, task};

use super::*;
use crate::purges::Purges;

const LIMITS: Limits = Limits {
    per_flight: 10,
    in_all: 100,
};

fn key(name: &str) -> Key {
    Key::new(name.as_bytes())
}

fn join(flights: &Flights, name: &str) -> Joined {
    flights.join(&key(name), Moment::default(), LIMITS, |_| false)
}

fn start(flights: &Flights, name: &str) -> (Seat, Pilot) {
    match join(flights, name) {
        Joined::Starter(seat, pilot) => (seat, pilot),
        other => panic!("not a starter but {other:?}"),
    }
}

fn wait(flights: &Flights, name: &str) -> Seat {
    match join(flights, name) {
        Joined::Waiter(seat) => seat,
        other => panic!("not a waiter but {other:?}"),
    }
}

#[test]
fn the_first_one_starts_and_the_others_wait() {
    let flights = Flights::default();

    let (_first, _pilot) = start(&flights, "a");
    let _second = wait(&flights, "a");
    let (_other, _other_pilot) = start(&flights, "b");

    assert_eq!((flights.len(), flights.waiters()), (2, 3));
}

#[test]
fn a_flight_leaves_the_table_with_its_pilot_and_only_then() {
    let flights = Flights::default();
    let (seat, pilot) = start(&flights, "a");

    drop(seat);
    assert_eq!((flights.len(), flights.waiters()), (1, 0));
    drop(pilot);

    assert_eq!(flights.len(), 0);
}

#[test]
fn an_old_flight_does_not_remove_a_newer_one() {
    let flights = Flights::default();
    let (_old_seat, old) = start(&flights, "a");
    old.flight().seal();
    let (_new_seat, new) = start(&flights, "a");

    drop(old);

    assert_eq!(flights.len(), 1);
    let _waiter = wait(&flights, "a");
    drop(new);
    assert_eq!(flights.len(), 0);
}

#[test]
fn a_purge_turns_newcomers_to_a_flight_of_their_own() {
    let (flights, purges) = (Flights::default(), Purges::new(10));
    let (_seat, pilot) = start(&flights, "a");

    let newcomer = flights.join(&key("a"), purges.now(), LIMITS, |_| true);

    assert!(matches!(newcomer, Joined::Starter(..)));
    pilot.flight().tell(News::Landed(Verdict::Uncacheable));
}

#[test]
fn limits_count_those_who_are_there() {
    let flights = Flights::default();
    let (first, _pilot) = start(&flights, "a");
    let _others: Vec<_> = (1..LIMITS.per_flight)
        .map(|_| wait(&flights, "a"))
        .collect();
    assert!(matches!(join(&flights, "a"), Joined::Full));

    drop(first);

    let _another = wait(&flights, "a");
    assert!(matches!(join(&flights, "a"), Joined::Full));
    assert_eq!(
        flights.waiters(),
        LIMITS.per_flight,
        "who was turned away is not counted"
    );
}

#[test]
fn news_reach_those_who_wait_and_those_who_come_later() {
    let flights = Flights::default();
    let (first, pilot) = start(&flights, "a");
    let mut waiting = task::spawn(first.news());
    assert_pending!(waiting.poll());

    pilot.flight().tell(News::Landed(Verdict::Uncacheable));

    assert!(waiting.is_woken());
    assert!(matches!(
        assert_ready!(waiting.poll()),
        News::Landed(Verdict::Uncacheable)
    ));
    let late = wait(&flights, "a");
    let mut late = task::spawn(late.news());
    assert!(matches!(
        assert_ready!(late.poll()),
        News::Landed(Verdict::Uncacheable)
    ));
}

#[test]
fn news_wake_everybody_at_once_whoever_of_them_is_run() {
    let limits = Limits {
        per_flight: 1000,
        in_all: 1000,
    };
    let flights = Flights::default();
    let (_seat, pilot) = start(&flights, "a");
    let seats: Vec<_> = (0..500)
        .map(|_| flights.join(&key("a"), Moment::default(), limits, |_| false))
        .collect();
    let mut waiting: Vec<_> = seats
        .iter()
        .map(|joined| match joined {
            Joined::Waiter(seat) => task::spawn(seat.news()),
            other => panic!("not a waiter but {other:?}"),
        })
        .collect();
    for news in &mut waiting {
        assert_pending!(news.poll());
    }

    pilot.flight().tell(News::Landed(Verdict::Uncacheable));

    assert!(waiting.iter().all(task::Spawn::is_woken));
}

#[test]
fn a_flight_that_ends_without_news_is_abandoned() {
    let flights = Flights::default();
    let (seat, pilot) = start(&flights, "a");

    drop(pilot);

    let mut news = task::spawn(seat.news());
    assert!(matches!(
        assert_ready!(news.poll()),
        News::Landed(Verdict::Abandoned)
    ));
}

#[test]
fn a_flight_whose_task_panics_has_failed() {
    let flights = Flights::default();
    let (seat, pilot) = start(&flights, "a");

    let task = std::thread::spawn(move || {
        let _pilot = pilot;
        std::panic::resume_unwind(Box::new("the task panicked"));
    });
    assert!(task.join().is_err());

    let mut news = task::spawn(seat.news());
    assert!(matches!(
        assert_ready!(news.poll()),
        News::Landed(Verdict::Failed(_))
    ));
}

#[test]
fn a_flight_is_empty_when_nobody_waits_or_reads() {
    let flights = Flights::default();
    let (seat, pilot) = start(&flights, "a");
    let flight = Arc::clone(pilot.flight());
    let mut emptied = task::spawn(flight.sealed_empty());
    assert_pending!(emptied.poll());
    let reading = seat.presence();

    drop(seat);
    assert_pending!(emptied.poll());
    drop(reading);

    assert!(emptied.is_woken());
    assert_ready!(emptied.poll());
    assert!(
        matches!(join(&flights, "a"), Joined::Starter(..)),
        "it is sealed in that moment"
    );
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Join,
    Leave,
    Read,
    Stop,
    Seal,
    SealIfEmpty,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Join),
        4 => Just(Step::Leave),
        2 => Just(Step::Read),
        2 => Just(Step::Stop),
        1 => Just(Step::Seal),
        1 => Just(Step::SealIfEmpty),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// The machine against the plainest model of it: two counts and a door.
    #[test]
    fn the_occupancy_is_right_whatever_happens(steps in steps(), limit in 1_usize..5) {
        let mut state = State::default();
        let (mut waiters, mut readers, mut sealed) = (0_usize, 0_usize, false);
        for step in steps {
            match step {
                Step::Join => {
                    let expected = match () {
                        () if sealed => Err(Turned::Sealed),
                        () if waiters >= limit => Err(Turned::Full),
                        () => Ok(()),
                    };
                    prop_assert_eq!(state.join(limit), expected);
                    waiters += usize::from(expected.is_ok());
                }
                Step::Leave if waiters > 0 => {
                    waiters -= 1;
                    let last = waiters + readers == 0;
                    prop_assert_eq!(state.leave() == Left::Last, last);
                }
                Step::Read => {
                    state.begin_reading();
                    readers += 1;
                }
                Step::Stop if readers > 0 => {
                    readers -= 1;
                    let last = waiters + readers == 0;
                    prop_assert_eq!(state.stop_reading() == Left::Last, last);
                }
                Step::Leave | Step::Stop => {}
                Step::Seal => {
                    state.seal();
                    sealed = true;
                }
                Step::SealIfEmpty => {
                    let empty = waiters + readers == 0;
                    prop_assert_eq!(state.seal_if_empty(), empty);
                    sealed |= empty;
                }
            }
        }
    }

    /// Seats and pilots in any order: at most one open flight for a key, and nothing is left.
    #[test]
    fn nothing_is_left_of_flights_that_end_in_any_order(
        steps in prop::collection::vec((0_u8..4, any::<prop::sample::Index>()), 0..60),
    ) {
        let flights = Flights::default();
        let (mut seats, mut pilots) = (Vec::new(), Vec::new());
        for (step, index) in steps {
            match step {
                0 | 1 => match join(&flights, if step == 0 { "a" } else { "b" }) {
                    Joined::Starter(seat, pilot) => {
                        seats.push(seat);
                        pilots.push(pilot);
                    }
                    Joined::Waiter(seat) => {
                        prop_assert!(!pilots.is_empty(), "nobody waits without a task");
                        seats.push(seat);
                    }
                    Joined::Full => {}
                },
                2 if !seats.is_empty() => drop(seats.swap_remove(index.index(seats.len()))),
                3 if !pilots.is_empty() => drop(pilots.swap_remove(index.index(pilots.len()))),
                _ => {}
            }
            prop_assert!(flights.len() <= 2);
            prop_assert_eq!(flights.waiters(), seats.len());
        }
        drop(seats);
        drop(pilots);
        prop_assert_eq!((flights.len(), flights.waiters()), (0, 0));
    }
}
