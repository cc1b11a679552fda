//! [`Present`]: the head of a hit as it is at present.
//!
//! `Age` and the `ttl` in `Cache-Status` change once a second. All hits in between have the same
//! head, which is made once and copied.

use std::{
    ops::Range,
    sync::{PoisonError, RwLock},
};

use http::response::Parts;
use tokio::time::Instant;

/// The head that was made last.
#[derive(Debug, Default)]
pub(crate) struct Present(RwLock<Option<Made>>);

#[derive(Debug)]
struct Made {
    head: Parts,
    valid: Range<Instant>,
}

impl Present {
    /// The head at `now`: the one that was made last, or else what `make` makes, with the time for
    /// which it holds.
    ///
    /// Nobody waits: whoever finds it being replaced makes another.
    #[inline]
    pub(crate) fn at(&self, now: Instant, make: impl FnOnce() -> (Parts, Range<Instant>)) -> Parts {
        if let Ok(made) = self.0.try_read()
            && let Some(made) = made.as_ref()
            && made.valid.contains(&now)
        {
            return made.head.clone();
        }
        self.renew(make)
    }

    /// What was made does not hold any more.
    pub(crate) fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    #[cold]
    fn renew(&self, make: impl FnOnce() -> (Parts, Range<Instant>)) -> Parts {
        let (head, valid) = make();
        if let Ok(mut made) = self.0.try_write() {
            let head = head.clone();
            *made = Some(Made { head, valid });
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Response, header};

    use super::*;

    fn made(age: u16, valid: Range<Instant>) -> (Parts, Range<Instant>) {
        let (mut head, ()) = Response::new(()).into_parts();
        head.headers.insert(header::AGE, age.into());
        (head, valid)
    }

    #[test]
    fn a_head_is_made_anew_when_it_holds_no_longer() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let present = Present::default();
        let age = |now, age| {
            let head = present.at(now, || made(age, now..now + second));
            head.headers[header::AGE].clone()
        };

        assert_eq!(age(start, 7), "7");
        assert_eq!(age(start + second / 2, 8), "7");
        assert_eq!(age(start + second, 8), "8");
        assert_eq!(
            age(start, 9),
            "9",
            "what another one made later is not for now"
        );
    }

    #[test]
    fn whoever_finds_it_being_replaced_does_not_wait() {
        let present = Present::default();
        let start = Instant::now();
        let valid = start..start + Duration::from_secs(1);
        let replacing = present.0.write().unwrap();

        let head = present.at(start, || made(1, valid));

        assert_eq!(head.headers[header::AGE], "1");
        drop(replacing);
    }
}
