use std::{hint, panic, sync::atomic::AtomicBool, thread, time::Duration};

use http::{HeaderMap, StatusCode, header};

use super::*;
use crate::{
    entry::{Built, Head, Lifetime, Origin, Worth},
    key::Digest,
    purges::{Moment, Purge, Reach},
};

const MINUTE: Duration = Duration::from_secs(60);

const DEFAULT: u64 = 64 * 1024 * 1024;

fn key(number: u32) -> Key {
    Key::new(&number.to_be_bytes())
}

fn entry(size: usize, fresh: Duration) -> Arc<Entry> {
    let head = Head {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        variant: None,
        age: 0,
    };
    let lifetime = Lifetime::starting(Instant::now(), fresh, Duration::ZERO, Duration::ZERO);
    let origin = Origin {
        lifetime,
        tags: Box::from([Digest::of(b"tag")]),
        began: Moment::default(),
        built: Built::here(Instant::now()),
        build_time: Duration::ZERO,
    };
    Arc::new(Entry::new(head, vec![b'x'; size].into(), None, origin))
}

fn minute(size: usize) -> Arc<Entry> {
    entry(size, MINUTE)
}

fn find(local: &Local, key: &Key, purges: &Purges, now: Instant) -> Option<Arc<Present>> {
    let mut bytes = key.as_bytes().to_vec();
    local.find(&mut bytes, &HeaderMap::new(), purges, now)
}

#[test]
fn entries_never_take_more_than_the_capacity() {
    let capacity = 1024 * 1024;
    let local = Local::new(capacity, 10);

    for number in 0..500 {
        local.insert(&key(number), minute(10_000), &Purges::new(1));
        assert!(local.size().1 <= capacity);
    }

    let (entries, bytes) = local.size();
    assert!(entries > 80 && bytes > capacity / 2, "{entries}, {bytes}");
}

#[test]
fn an_entry_is_kept_up_to_what_one_may_take() {
    let local = Local::new(DEFAULT, 10);
    let purges = Purges::new(10);
    let largest = usize::try_from(local.largest()).unwrap();

    for (number, (size, expected)) in (0..).zip([
        (4 * 1024 * 1024, true),
        (largest - 2_000, true),
        (largest + 20_000, false),
    ]) {
        local.insert(&key(number), minute(size), &purges);

        let is_kept = find(&local, &key(number), &purges, Instant::now()).is_some();
        assert_eq!(is_kept, expected, "{size}");
    }
}

#[test]
fn a_capacity_of_nothing_keeps_nothing() {
    let local = Local::new(0, 10);

    local.insert(&key(1), minute(0), &Purges::new(1));

    assert_eq!((local.size(), local.largest()), ((0, 0), 0));
}

#[test]
fn an_entry_that_is_too_large_leaves_no_older_one_in_its_place() {
    let local = Local::new(100_000, 10);
    local.insert(&key(1), minute(10), &Purges::new(1));

    local.insert(&key(1), minute(200_000), &Purges::new(1));

    assert_eq!(local.size(), (0, 0));
}

#[test]
fn what_is_read_again_and_again_outlives_a_flood_of_what_is_read_once() {
    let local = Local::new(1024 * 1024, 10);
    let purges = Purges::new(10);
    let start = Instant::now();
    // At once, and as seldom as what hits show changes.
    for step in [Duration::ZERO, Duration::from_millis(1001)] {
        let popular = |number| find(&local, &key(0), &purges, start + step * number);
        local.insert(&key(0), entry(10_000, 1000 * MINUTE), &purges);

        for number in 1..1000 {
            assert!(popular(number).is_some(), "evicted by number {number}");
            local.insert(&key(number), minute(10_000), &purges);
        }
    }
}

#[test]
fn what_hits_show_is_made_once_for_as_long_as_it_holds() {
    let local = Local::new(DEFAULT, 10);
    let purges = Purges::new(10);
    local.insert(&key(1), minute(10), &purges);
    let start = Instant::now();
    let later = start + Duration::from_secs(1);
    let at = |now| find(&local, &key(1), &purges, now).unwrap();

    let first = at(start);
    assert!(Arc::ptr_eq(&first, &at(start)));

    let second = at(later);
    assert!(Arc::ptr_eq(&second, &at(later)));
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&first.entry, &second.entry));
    assert_eq!(first.head.headers[header::AGE], "0");
    assert_eq!(second.head.headers[header::AGE], "1");
}

#[test]
fn whoever_finds_a_slot_being_filled_does_not_wait() {
    let local = Local::new(DEFAULT, 10);
    let purges = Purges::new(10);
    local.insert(&key(1), minute(10), &purges);
    let later = Instant::now() + Duration::from_secs(2);
    let at_once = || find(&local, &key(1), &purges, later).unwrap();
    let filling = local.filling.lock().unwrap();

    let (one, other) = (at_once(), at_once());

    assert!(one.holds(later) && other.holds(later));
    assert!(!Arc::ptr_eq(&one, &other), "each has made its own");
    drop(filling);
    let kept = at_once();
    assert!(Arc::ptr_eq(&kept, &at_once()));
}

#[test]
fn what_hits_show_comes_in_no_place_but_its_own() {
    let local = Local::new(DEFAULT, 10);
    let purges = Purges::new(10);
    let later = Instant::now() + Duration::from_secs(2);
    let (old, new) = (minute(10), minute(20));
    local.insert(&key(1), Arc::clone(&old), &purges);
    let past = find(&local, &key(1), &purges, Instant::now()).unwrap();

    local.insert(&key(1), Arc::clone(&new), &purges);
    let renewed = local.renew(key(1).as_bytes(), &past, later);
    assert!(Arc::ptr_eq(&renewed.entry, &old));
    let found = local.entry(&key(1), &purges).unwrap();
    assert!(Arc::ptr_eq(&found, &new), "a younger entry stays");

    local.remove(key(1).as_bytes(), &new);
    local.renew(key(1).as_bytes(), &past, later);
    assert!(
        local.entry(&key(1), &purges).is_none(),
        "what has gone stays away"
    );
}

/// By chance: some hundred of so many rounds catch a renewal between its look and its write.
#[test]
fn what_hits_show_comes_in_no_place_but_its_own_whatever_else_is_being_done() {
    let (local, purges) = (Local::new(DEFAULT, 10), Purges::new(10));
    let fields: Fields = Arc::from([header::ACCEPT]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let start = Instant::now();
                for second in (0..1000).cycle() {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    drop(find(
                        &local,
                        &key(1),
                        &purges,
                        start + Duration::from_secs(second),
                    ));
                }
            });
        }
        let lost = (0..20_000).filter(|_| {
            drop(local.slots.remove(key(1).as_bytes()));
            local.insert(&key(1), entry(10, 1000 * MINUTE), &purges);
            (0..fastrand::u32(0..300)).for_each(|_| hint::spin_loop());
            local.varies(&key(1), Arc::clone(&fields));
            (0..500).for_each(|_| hint::spin_loop());
            local.fields(&key(1)).is_none()
        });
        let lost = lost.count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(lost, 0);
    });
}

#[test]
fn a_panic_of_whoever_fills_a_slot_harms_nobody_else() {
    let (local, purges) = (Local::new(DEFAULT, 10), Purges::new(10));
    let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        let _turn = local.turn();
        panic::resume_unwind(Box::new("while it fills one"));
    }));
    assert!(panicked.is_err() && local.filling.is_poisoned());

    local.insert(&key(1), minute(10), &purges);
    let later = Instant::now() + Duration::from_secs(2);
    let at_once = || find(&local, &key(1), &purges, later).unwrap();

    assert!(Arc::ptr_eq(&at_once(), &at_once()), "it is renewed once");
}

#[test]
fn a_soft_purge_shows_at_once() {
    let local = Local::new(DEFAULT, 10);
    let purges = Purges::new(10);
    local.insert(&key(1), minute(10), &purges);
    let now = Instant::now();
    let worth = || find(&local, &key(1), &purges, now).unwrap().worth;

    assert_eq!(worth(), Worth::Fresh);
    purges.purge(Purge::soft(Reach::Tag(Digest::of(b"tag"))));
    let later = Instant::now();
    let softened = find(&local, &key(1), &purges, later).unwrap();

    assert_eq!(softened.worth, Worth::Nothing);
    assert_ne!(
        softened.head.headers["cache-status"],
        "stampede; hit; ttl=59"
    );
}

#[test]
fn an_entry_of_no_use_is_removed_by_whoever_comes_across_it() {
    let local = Local::new(DEFAULT, 10);
    let purges = Purges::new(10);
    local.insert(&key(1), entry(10, Duration::ZERO), &Purges::new(1));
    local.insert(&key(2), minute(10), &Purges::new(1));
    local.insert(&key(3), minute(10), &Purges::new(1));
    let now = Instant::now();

    drop(find(&local, &key(1), &purges, now));
    assert!(find(&local, &key(2), &purges, now).is_some());
    assert_eq!(local.size().0, 2, "one is over");

    purges.purge(Purge::hard(Reach::Tag(Digest::of(b"tag"))));
    assert!(find(&local, &key(2), &purges, now).is_none());
    assert_eq!(local.size().0, 1, "one is purged and was asked for");
}

#[test]
fn whoever_removes_an_entry_leaves_a_newer_one_in_its_place() {
    let local = Local::new(DEFAULT, 10);
    let (old, new) = (minute(10), minute(20));
    local.insert(&key(1), Arc::clone(&old), &Purges::new(1));
    local.insert(&key(1), Arc::clone(&new), &Purges::new(1));

    local.remove(key(1).as_bytes(), &old);

    let purges = Purges::new(10);
    let found = local.entry(&key(1), &purges).unwrap();
    assert!(Arc::ptr_eq(&found, &new));
}

/// An entry whose build began at `at`, when no more had been purged than at `began`.
fn built(at: Instant, began: Moment, size: usize) -> Arc<Entry> {
    let mut entry = Arc::into_inner(minute(size)).unwrap();
    entry.built = Built::here(at);
    entry.confirm(began);
    Arc::new(entry)
}

fn size(local: &Local, purges: &Purges) -> Option<usize> {
    let entry = local.entry(&key(1), purges)?;
    Some(entry.body.len())
}

#[test]
fn an_older_build_that_ends_later_does_not_replace_a_younger_one() {
    let (local, purges) = (Local::new(DEFAULT, 10), Purges::new(10));
    let (early, late) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    let insert = |at, size| local.insert(&key(1), built(at, purges.now(), size), &purges);

    insert(late, 1);
    insert(early, 2);
    assert_eq!(size(&local, &purges), Some(1));

    insert(late, 3);
    assert_eq!(size(&local, &purges), Some(3));
}

#[test]
fn what_has_been_purged_gives_way_to_any_build() {
    let (local, purges) = (Local::new(DEFAULT, 10), Purges::new(10));
    let (early, late) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    local.insert(&key(1), built(late, purges.now(), 1), &purges);

    purges.purge(Purge::hard(Reach::All));
    local.insert(&key(1), built(early, purges.now(), 2), &purges);

    assert_eq!(size(&local, &purges), Some(2));
}

#[test]
fn uses_are_counted_by_the_resource() {
    let local = Local::new(DEFAULT, 10);

    for number in [1, 2, 1] {
        local.use_once_more(&key(number));
    }

    assert_eq!([1, 2, 3].map(|number| local.uses(&key(number))), [2, 1, 0]);
}
