use proptest::prelude::*;

use super::*;
use crate::purges::Force;

const HOUR: Duration = Duration::from_secs(3600);

fn version() -> Version {
    Version::new(1)
}

fn tag(number: u8) -> Mark {
    Mark::Tag(Digest::of(&[number]))
}

/// What was known when a build began, and what its entry carries of it.
fn begun(marks: &[Mark]) -> (Ledger, Vec<(Mark, Generation)>) {
    let mut ledger = Ledger::default();
    for mark in marks {
        ledger.note(*mark, State::Known(Record::new(), version()));
    }
    let carried = marks
        .iter()
        .map(|mark| (*mark, ledger.generation(*mark).unwrap()));
    let carried = carried.collect();
    (ledger, carried)
}

fn purge(ledger: &mut Ledger, mark: Mark, force: Force) {
    let record = *ledger.record(mark).unwrap();
    let purge = Purge {
        reach: Reach::All,
        force,
    };
    ledger.note(mark, State::Known(record.purged(purge), version()));
}

fn after(ledger: &mut Ledger, mark: Mark, elapsed: Duration) {
    let record = *ledger.record(mark).unwrap();
    let read = Record::decode(&record.encode(), LIFE.saturating_sub(elapsed)).unwrap();
    ledger.note(mark, State::Known(read, version()));
}

#[test]
fn what_nothing_has_reached_is_valid_and_loses_nothing() {
    let (ledger, carried) = begun(&[Mark::All, tag(1), tag(2)]);

    assert_eq!(judge(&carried, &ledger, HOUR, HOUR), Some(Duration::ZERO));
}

#[test]
fn a_hard_purge_of_any_mark_reaches_it_and_one_of_another_does_not() {
    for at in 0..3 {
        let marks = [Mark::All, tag(1), tag(2)];
        let (mut ledger, carried) = begun(&marks);
        ledger.note(tag(3), State::Known(Record::new(), version()));

        purge(&mut ledger, tag(3), Force::Hard);
        assert!(judge(&carried, &ledger, HOUR, HOUR).is_some());
        purge(&mut ledger, marks[at], Force::Hard);

        assert_eq!(judge(&carried, &ledger, HOUR, HOUR), None);
    }
}

#[test]
fn a_record_that_is_lost_or_written_anew_makes_a_miss() {
    let (mut ledger, carried) = begun(&[Mark::All, tag(1)]);

    ledger.note(tag(1), State::Missing(Condition::Absent));
    assert_eq!(judge(&carried, &ledger, HOUR, HOUR), None);

    let (mark, record, _) = ledger.wanting().remove(0);
    ledger.note(mark, State::Known(record, version()));
    assert_eq!(judge(&carried, &ledger, HOUR, HOUR), None);
}

#[test]
fn a_soft_purge_leaves_the_stale_window_from_then_on() {
    let (mut ledger, carried) = begun(&[Mark::All, tag(1)]);
    purge(&mut ledger, tag(1), Force::Soft);
    let (left, window) = (3 * HOUR, HOUR);

    let cut = judge(&carried, &ledger, left, window).unwrap();
    assert_eq!(cut + window, left, "from now on");

    after(&mut ledger, tag(1), HOUR / 4);
    let left = left.saturating_sub(HOUR / 4);
    let cut = judge(&carried, &ledger, left, window).unwrap();
    assert_eq!(cut + window * 3 / 4, left);

    after(&mut ledger, tag(1), HOUR);
    assert_eq!(judge(&carried, &ledger, left, window), None);
}

#[test]
fn what_has_no_stale_window_is_gone_after_a_soft_purge() {
    let (mut ledger, carried) = begun(&[Mark::All]);

    purge(&mut ledger, Mark::All, Force::Soft);

    assert_eq!(judge(&carried, &ledger, HOUR, Duration::ZERO), None);
}

#[test]
fn of_several_soft_purges_the_last_one_counts_and_none_prolongs_anything() {
    let (mut ledger, carried) = begun(&[Mark::All, tag(1), tag(2)]);
    purge(&mut ledger, tag(1), Force::Soft);
    after(&mut ledger, tag(1), HOUR);
    assert_eq!(judge(&carried, &ledger, 3 * HOUR, HOUR), None);

    purge(&mut ledger, tag(2), Force::Soft);
    let cut = judge(&carried, &ledger, 3 * HOUR, HOUR).unwrap();
    assert_eq!(cut + HOUR, 3 * HOUR);

    let nearly_over = HOUR / 2;
    assert_eq!(
        judge(&carried, &ledger, nearly_over, HOUR),
        Some(Duration::ZERO)
    );
}

#[test]
fn a_record_is_renewed_in_the_second_half_of_its_life_and_keeps_its_age() {
    let fresh = Record::new();
    let young = Record::decode(&fresh.encode(), LIFE / 2).unwrap();
    let worn = Record::decode(&fresh.encode(), (LIFE / 2).saturating_sub(HOUR)).unwrap();
    assert!(!young.is_worn() && worn.is_worn());

    let renewed = Record::decode(&worn.encode(), LIFE.saturating_sub(HOUR)).unwrap();

    assert_eq!(renewed.generation, fresh.generation);
    assert_eq!(renewed.age, LIFE / 2 + 2 * HOUR);
    assert!(!renewed.is_worn());
}

#[test]
fn garbage_is_no_record() {
    let whole = Record::new().encode();
    let mut longer = whole.clone();
    longer.push(0);

    for garbage in [&b""[..], b"garbage", &whole[..27], &longer] {
        assert_eq!(Record::decode(garbage, HOUR), None);
    }
}

/// What happens to two marks, one after the other.
#[derive(Clone, Copy, Debug)]
enum Step {
    Build,
    Purge(u8, Force),
    Lose(u8),
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    let mark = 0_u8..3;
    prop_oneof![
        Just(Step::Build),
        (mark.clone(), any::<bool>()).prop_map(|(mark, hard)| {
            let force = if hard { Force::Hard } else { Force::Soft };
            Step::Purge(mark, force)
        }),
        mark.prop_map(Step::Lose),
        Just(Step::Wait),
    ]
}

/// The reference: a clock, and when what was purged.
#[derive(Clone, Copy, Default)]
struct Past {
    hard: Option<u32>,
    soft: Option<u32>,
}

proptest! {
    /// Generations say of every entry what purge times by one clock would say.
    #[test]
    fn generations_agree_with_a_clock(steps in prop::collection::vec(step(), 1..30)) {
        let marks = [Mark::All, tag(1), tag(2)];
        let (mut ledger, _) = begun(&marks);
        let mut past = [Past::default(); 3];
        let mut built = Vec::new();
        let mut now = 1_u32;
        let (left, window) = (100 * HOUR, 10 * HOUR);

        for step in steps {
            now += 1;
            match step {
                Step::Build => {
                    for (mark, record, _) in ledger.wanting() {
                        ledger.note(mark, State::Known(record, version()));
                    }
                    let carried: Vec<_> = marks
                        .iter()
                        .map(|mark| (*mark, ledger.generation(*mark).unwrap()))
                        .collect();
                    built.push((now, carried));
                }
                Step::Purge(at, force) => {
                    let at = usize::from(at);
                    if ledger.record(marks[at]).is_none() {
                        continue;
                    }
                    purge(&mut ledger, marks[at], force);
                    match force {
                        Force::Hard => past[at].hard = Some(now),
                        Force::Soft => past[at].soft = Some(now),
                    }
                }
                Step::Lose(at) => {
                    let at = usize::from(at);
                    ledger.note(marks[at], State::Missing(Condition::Absent));
                    past[at].hard = Some(now);
                }
                Step::Wait => {
                    for mark in marks {
                        if let Some(record) = ledger.record(mark).copied() {
                            let age = record.age + HOUR;
                            ledger.note(mark, State::Known(Record { age, ..record }, version()));
                        }
                    }
                }
            }
            for (began, carried) in &built {
                let gone = past.iter().any(|past| past.hard > Some(*began));
                let softened = past.iter().any(|past| past.soft > Some(*began));
                let verdict = judge(carried, &ledger, left, window);
                if gone {
                    prop_assert_eq!(verdict, None);
                } else if !softened {
                    prop_assert_eq!(verdict, Some(Duration::ZERO));
                } else if let Some(cut) = verdict {
                    prop_assert!(left <= cut + window);
                }
            }
        }
    }
}
