use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::*;
use crate::{
    entry::{Built, Head, Lifetime, Origin},
    key::Digest,
    purges::{Moment, Purge, Reach},
};

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
    entry(size, Duration::from_secs(60))
}

fn find(local: &Local, key: &Key, purges: &Purges, now: Instant) -> Option<Arc<Entry>> {
    let mut bytes = key.as_bytes().to_vec();
    match local.find(&mut bytes, &HeaderMap::new(), purges, now) {
        Found::Entry(entry, _worth) => Some(entry),
        Found::Nothing => None,
    }
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
    let popular = || find(&local, &key(0), &purges, Instant::now());
    local.insert(&key(0), minute(10_000), &Purges::new(1));

    for number in 1..1000 {
        assert!(popular().is_some(), "evicted by number {number}");
        local.insert(&key(number), minute(10_000), &Purges::new(1));
    }
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
