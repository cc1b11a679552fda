//! [`Present`]: the fields of a hit as they are at present.
//!
//! `Age` and the `ttl` in `Cache-Status` change once a second. All hits in between have the same
//! fields, which are made once and copied.

use std::{
    ops::Range,
    sync::{RwLock, TryLockError},
};

use http::HeaderMap;
use tokio::time::Instant;

/// The fields that were made last.
#[derive(Debug, Default)]
pub(crate) struct Present(RwLock<Option<Made>>);

#[derive(Debug)]
struct Made {
    headers: HeaderMap,
    valid: Range<Instant>,
}

impl Present {
    /// The fields at `now`: those that were made last, or else those that `make` makes, with the time
    /// for which they hold.
    ///
    /// Nobody waits: whoever finds them being replaced makes its own.
    pub(crate) fn at(
        &self,
        now: Instant,
        make: impl FnOnce() -> (HeaderMap, Range<Instant>),
    ) -> HeaderMap {
        if let Some(headers) = self.made_for(now) {
            return headers;
        }
        let (headers, valid) = make();
        if let Ok(mut made) = self.0.try_write() {
            let headers = headers.clone();
            *made = Some(Made { headers, valid });
        }
        headers
    }

    fn made_for(&self, now: Instant) -> Option<HeaderMap> {
        let made = match self.0.try_read() {
            Ok(made) => made,
            Err(TryLockError::Poisoned(made)) => made.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        made.as_ref()
            .filter(|made| made.valid.contains(&now))
            .map(|made| made.headers.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderValue, header};

    use super::*;

    fn made(age: u16, valid: Range<Instant>) -> (HeaderMap, Range<Instant>) {
        let age = HeaderValue::from(age);
        (HeaderMap::from_iter([(header::AGE, age)]), valid)
    }

    #[test]
    fn fields_are_made_anew_when_they_hold_no_longer() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let present = Present::default();
        let age = |now, age| {
            let headers = present.at(now, || made(age, now..now + second));
            headers[header::AGE].clone()
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
    fn whoever_finds_them_being_replaced_does_not_wait() {
        let present = Present::default();
        let start = Instant::now();
        let valid = start..start + Duration::from_secs(1);
        let replacing = present.0.write().unwrap();

        let headers = present.at(start, || made(1, valid));

        assert_eq!(headers[header::AGE], "1");
        drop(replacing);
    }
}
