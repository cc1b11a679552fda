//! Memos: short notes beside keys of how their last build ended.
//!
//! They are bounded by their bytes, which bounds their number too: each takes a kilobyte at least. Where
//! there are too many, the oldest go first.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, PoisonError, RwLock},
};

use foldhash::fast::RandomState;
use tokio::time::Instant;

use crate::{
    flight::Failure,
    key::{Digest, Key},
    purges::{Moment, Purges},
};

/// So much the smallest memo takes, its place in the book included.
const LEAST: usize = 1024;

/// A short note beside a key.
#[derive(Clone, Debug)]
pub(crate) struct Memo {
    pub(crate) note: Note,
    pub(crate) until: Instant,
    /// When the build began that it was learnt from: a purge forgets it.
    pub(crate) began: Moment,
}

/// What a memo says.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// The last response declared itself uncacheable: nobody waits for the next one.
    HitForMiss,
    /// The last build failed: newcomers share that failure.
    Failed(Arc<Failure>),
}

impl Memo {
    fn weight(&self, key: &Key) -> usize {
        let failure = match &self.note {
            Note::HitForMiss => 0,
            Note::Failed(failure) => failure.weight(),
        };
        (key.as_bytes().len() + failure).max(LEAST)
    }
}

/// The memos of a cache.
#[derive(Debug)]
pub(crate) struct Memos {
    book: RwLock<Book>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Book {
    known: HashMap<Key, Page, RandomState>,
    /// In the order in which they were written; some have been overwritten since.
    order: VecDeque<(Key, u64)>,
    written: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Page {
    memo: Memo,
    number: u64,
}

impl Memos {
    /// At most `count` memos, and as many bytes as that number of the smallest.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            book: RwLock::default(),
            capacity: count.saturating_mul(LEAST),
        }
    }

    /// The note beside `key`, if no purge of `tag` has overtaken it.
    pub(crate) fn note(&self, key: &Key, tag: Digest, purges: &Purges) -> Option<Note> {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        let memo = &book.known.get(key)?.memo;
        let valid = Instant::now() < memo.until && !purges.overtake(memo.began, &[tag]);
        valid.then(|| memo.note.clone())
    }

    pub(crate) fn set(&self, key: Key, memo: Memo) {
        self.with(|book| {
            book.write(key, memo);
            book.shrink(self.capacity, Instant::now());
        });
    }

    pub(crate) fn clear(&self, key: &Key) {
        let known = {
            let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
            book.known.contains_key(key)
        };
        if known {
            self.with(|book| book.erase(key));
        }
    }

    fn with(&self, change: impl FnOnce(&mut Book)) {
        change(&mut self.book.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Book {
    fn write(&mut self, key: Key, memo: Memo) {
        self.erase(&key);
        self.written += 1;
        self.bytes += memo.weight(&key);
        self.order.push_back((key.clone(), self.written));
        let number = self.written;
        self.known.insert(key, Page { memo, number });
    }

    fn erase(&mut self, key: &Key) {
        if let Some(page) = self.known.remove(key) {
            self.bytes -= page.memo.weight(key);
        }
    }

    /// Takes the oldest out until the rest fits, and those whose time is over wherever they come first.
    fn shrink(&mut self, capacity: usize, now: Instant) {
        while let Some((key, number)) = self.order.front() {
            let page = self.known.get(key).filter(|page| page.number == *number);
            let stays = page.is_some_and(|page| now < page.memo.until && self.bytes <= capacity);
            if stays {
                break;
            }
            let written_over = page.is_none();
            let Some((key, _)) = self.order.pop_front() else {
                break;
            };
            if !written_over {
                self.erase(&key);
            }
        }
        // One that stays first for long must not let those pile up that were written over behind it.
        if self.order.len() > 2 * self.known.len() + 16 {
            let known = &self.known;
            self.order
                .retain(|(key, number)| known.get(key).is_some_and(|page| page.number == *number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::entry::{self, Head};

    const SECOND: Duration = Duration::from_secs(1);

    fn key(number: usize) -> Key {
        Key::new(&number.to_be_bytes())
    }

    fn memo(note: Note, period: Duration) -> Memo {
        Memo {
            note,
            until: Instant::now() + period,
            began: Moment::default(),
        }
    }

    fn failure(bytes: usize) -> Note {
        let head = Head {
            status: StatusCode::BAD_GATEWAY,
            headers: HeaderMap::new(),
            variant: None,
            age: 0,
        };
        let body = Bytes::from(vec![0; bytes]);
        let response = entry::unstored(head, body, None, Moment::default());
        Note::Failed(Arc::new(Failure::Response(response)))
    }

    fn known(memos: &Memos, keys: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let purges = Purges::new(10);
        let tag = Digest::of(b"");
        keys.into_iter()
            .filter(|number| memos.note(&key(*number), tag, &purges).is_some())
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_bounded_in_number_and_the_oldest_go_first() {
        let memos = Memos::new(10);

        for number in 0..1000 {
            memos.set(key(number), memo(Note::HitForMiss, SECOND));
        }

        assert_eq!(known(&memos, 0..1000), (990..1000).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn large_failures_are_bounded_by_their_bytes() {
        let memos = Memos::new(100);

        for number in 0..1000 {
            memos.set(key(number), memo(failure(10 * LEAST), SECOND));
        }

        assert_eq!(known(&memos, 0..1000).len(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_written_again_is_as_young_as_its_last_writing() {
        let memos = Memos::new(10);
        memos.set(key(0), memo(Note::HitForMiss, SECOND));
        for number in 1..10 {
            memos.set(key(number), memo(Note::HitForMiss, SECOND));
        }

        memos.set(key(0), memo(failure(1), SECOND));
        memos.set(key(10), memo(Note::HitForMiss, SECOND));

        assert_eq!(known(&memos, [0, 1, 2]), [0, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_what_is_cleared_over_or_written_over() {
        let memos = Memos::new(1000);
        memos.set(key(0), memo(Note::HitForMiss, 1000 * SECOND));

        for _ in 0..1000 {
            memos.set(key(1), memo(Note::HitForMiss, SECOND));
            memos.clear(&key(2));
        }
        memos.clear(&key(1));

        let book = memos.book.read().unwrap();
        assert_eq!((book.known.len(), book.bytes), (1, LEAST));
        assert!(book.order.len() < 50, "{}", book.order.len());
    }

    #[tokio::test(start_paused = true)]
    async fn those_whose_time_is_over_make_room_without_being_asked_for() {
        let memos = Memos::new(1000);
        for number in 0..100 {
            memos.set(key(number), memo(Note::HitForMiss, SECOND));
        }

        tokio::time::advance(SECOND).await;
        memos.set(key(100), memo(Note::HitForMiss, SECOND));

        assert_eq!(memos.book.read().unwrap().known.len(), 1);
    }
}
