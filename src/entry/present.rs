//! [`Present`]: an entry as hits show it at present.
//!
//! `Age` and the `ttl` in `Cache-Status` change once a second, and what an entry is worth a few times
//! in its life. In between all hits have the same head, which is made once and copied.

use std::{ops::Range, sync::Arc};

use http::{Response, header, response::Parts};
use tokio::time::Instant;

use super::{Entry, Worth};
use crate::{http::age, status::Outcome};

/// An entry, with what it is worth and the head of a hit, for as long as neither changes.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) entry: Arc<Entry>,
    pub(crate) worth: Worth,
    pub(crate) head: Parts,
    valid: Range<Instant>,
    is_softened: bool,
}

impl Present {
    /// `entry` as it is at `now`.
    pub(crate) fn of(entry: Arc<Entry>, now: Instant) -> Arc<Self> {
        // Looked at first: with a soft purge that comes meanwhile, this does not hold.
        let is_softened = entry.softened.get().is_some();
        Arc::new(Self {
            worth: entry.worth(now),
            head: head(&entry, now, Outcome::hit(entry.ttl(now))),
            valid: entry.unchanged(now),
            is_softened,
            entry,
        })
    }

    /// Whether it is still the entry as it is at `now`.
    #[inline]
    pub(crate) fn holds(&self, now: Instant) -> bool {
        self.valid.contains(&now) && self.is_softened == self.entry.softened.get().is_some()
    }
}

/// The head of `entry` at `now`, with `Age` and `Cache-Status`.
pub(crate) fn head(entry: &Entry, now: Instant, outcome: Outcome) -> Parts {
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = entry.head.status;
    head.headers.clone_from(&entry.head.headers);
    head.headers.insert(header::AGE, age::value(entry.age(now)));
    outcome.write(&mut head.headers);
    head
}
