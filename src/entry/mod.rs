//! Entries: stored responses.

mod built;
pub(crate) mod codec;
mod present;

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use tokio::time::Instant;

use self::present::Present;
use crate::{
    http::{
        cache_control::RequestDirectives,
        freshness::{Freshness, Revalidation, State},
        vary::{Matching, write_variant},
    },
    key::Digest,
    purges::{Moment, Purges, Since},
    time::LONGEST,
    token::Token,
};

pub(crate) use self::built::Built;

/// The request fields that select a variant of a resource.
pub(crate) type Fields = Arc<[HeaderName]>;

/// Status and fields of a response.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// What the response varies by, and the values it was built for.
    pub(crate) variant: Option<Variant>,
    /// The age at reception, in seconds.
    pub(crate) age: u64,
}

/// Which variant of its resource a response is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) fields: Fields,
    pub(crate) values: Bytes,
}

impl Variant {
    pub(crate) fn of(fields: Fields, request: &HeaderMap) -> Self {
        let values = values(&fields, request).into();
        Self { fields, values }
    }

    /// Whether a request asks for this variant.
    fn fits(&self, request: &HeaderMap) -> bool {
        values(&self.fields, request) == self.values
    }
}

/// A request's values of `fields`, in the form that names a variant.
pub(crate) fn values(fields: &[HeaderName], request: &HeaderMap) -> Vec<u8> {
    let mut values = Vec::new();
    write_variant(fields, request, Matching::Combined, &mut values);
    values
}

impl Head {
    /// Whether the response may answer a request with these fields (RFC 9111 section 4.1).
    pub(crate) fn fits(&self, request: &HeaderMap) -> bool {
        self.variant
            .as_ref()
            .is_none_or(|variant| variant.fits(request))
    }

    /// What the resource varies by.
    pub(crate) fn fields(&self) -> Option<Fields> {
        self.variant
            .as_ref()
            .map(|variant| Arc::clone(&variant.fields))
    }
}

/// When an entry may be used, as instants: a hit compares them and computes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) received: Instant,
    pub(crate) fresh_until: Instant,
    /// Until when it may be served while it is refreshed (RFC 5861 section 3).
    pub(crate) revalidate_until: Instant,
    /// Until when it may be served in place of an error (RFC 5861 section 4).
    pub(crate) error_until: Instant,
    /// Until when it is kept, were it only to be validated.
    pub(crate) kept_until: Instant,
}

impl Lifetime {
    /// Of a response that was received at `received`.
    pub(crate) fn of(freshness: &Freshness, received: Instant) -> Self {
        let usable = freshness.revalidation != Revalidation::Always;
        let fresh = if usable {
            freshness.remaining()
        } else {
            Duration::ZERO
        };
        // A response that was stale on arrival has used up a part of its windows.
        let overdue = freshness.initial_age.saturating_sub(freshness.lifetime);
        let window = |window: Duration| match freshness.revalidation {
            Revalidation::WhenStale => window.saturating_sub(overdue),
            Revalidation::NeverStale | Revalidation::Always => Duration::ZERO,
        };
        Self::starting(
            received,
            fresh,
            window(freshness.stale_while_revalidate),
            window(freshness.stale_if_error),
        )
    }

    pub(crate) fn starting(
        received: Instant,
        fresh: Duration,
        stale_while_revalidate: Duration,
        stale_if_error: Duration,
    ) -> Self {
        let fresh_until = received + fresh.min(LONGEST);
        let window = stale_while_revalidate.max(stale_if_error);
        Self {
            received,
            fresh_until,
            revalidate_until: fresh_until + stale_while_revalidate.min(LONGEST),
            error_until: fresh_until + stale_if_error.min(LONGEST),
            kept_until: fresh_until + window.min(LONGEST),
        }
    }

    /// The same, kept for at least `window` beyond freshness, so that it can be validated.
    pub(crate) fn kept_for(self, window: Duration) -> Self {
        let kept_until = self.fresh_until + window.min(LONGEST);
        Self {
            kept_until: self.kept_until.max(kept_until),
            ..self
        }
    }

    fn worth(&self, now: Instant) -> Worth {
        if now < self.fresh_until {
            Worth::Fresh
        } else if now < self.revalidate_until {
            Worth::StaleWhileRevalidate
        } else if now < self.error_until {
            Worth::StaleIfError
        } else {
            Worth::Nothing
        }
    }

    /// The same, stale from `at` on at the latest.
    fn stale_from(self, at: Instant) -> Self {
        let cut = self.fresh_until.saturating_duration_since(at);
        Self {
            fresh_until: self.fresh_until - cut,
            revalidate_until: self.revalidate_until - cut,
            error_until: self.error_until - cut,
            ..self
        }
    }

    /// When the entry is of no use any more.
    pub(crate) fn end(&self) -> Instant {
        self.kept_until
    }

    /// Until when it may answer anything without being validated.
    pub(crate) fn usable_until(&self) -> Instant {
        self.revalidate_until.max(self.error_until)
    }

    pub(crate) fn fresh_for(&self) -> Duration {
        self.fresh_until - self.received
    }

    /// How long it is kept once it is stale.
    pub(crate) fn stale_window(&self) -> Duration {
        self.end() - self.fresh_until
    }
}

/// What an entry is worth at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    Fresh,
    /// May be served now, while it is refreshed.
    StaleWhileRevalidate,
    /// May be served only if a build fails.
    StaleIfError,
    Nothing,
}

impl Worth {
    /// Whether it may answer without anything having failed.
    pub(crate) fn answers(self) -> bool {
        matches!(self, Self::Fresh | Self::StaleWhileRevalidate)
    }
}

/// A stored response.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    /// The head of a hit.
    pub(crate) present: Present,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) lifetime: Lifetime,
    pub(crate) tags: Box<[Digest]>,
    /// The lease under which the shared tier has it.
    pub(crate) token: OnceLock<Token>,
    /// The age when it was first stored, in seconds.
    stored_age: u64,
    began: Moment,
    pub(crate) built: Built,
    /// How long the build took.
    pub(crate) build_time: Duration,
    /// The latest moment at which no purge had reached it.
    checked: AtomicU64,
    /// When a soft purge made it stale.
    softened: OnceLock<Instant>,
}

/// What an entry is made of, beside its body.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) lifetime: Lifetime,
    pub(crate) tags: Box<[Digest]>,
    pub(crate) began: Moment,
    pub(crate) built: Built,
    pub(crate) build_time: Duration,
}

impl Entry {
    pub(crate) fn new(
        head: Head,
        body: Bytes,
        trailers: Option<HeaderMap>,
        origin: Origin,
    ) -> Self {
        Self {
            stored_age: head.age,
            present: Present::default(),
            head,
            body,
            trailers,
            lifetime: origin.lifetime,
            tags: origin.tags,
            token: OnceLock::new(),
            began: origin.began,
            built: origin.built,
            build_time: origin.build_time,
            checked: AtomicU64::new(origin.began.number()),
            softened: OnceLock::new(),
        }
    }

    pub(crate) fn stored_age(&self) -> u64 {
        self.stored_age
    }

    fn set_stored_age(&mut self, age: u64) {
        self.stored_age = age;
    }

    /// Notes under which lease the shared tier has the entry.
    pub(crate) fn set_token(&self, token: Token) {
        // The first one stays: it is the same lease.
        drop(self.token.set(token));
    }

    /// Whether a request with these directives takes it without validation (RFC 9111 section 5.2.1);
    /// as stale as the response and the layer allow, and no staler.
    pub(crate) fn suits(&self, demand: &RequestDirectives, now: Instant) -> bool {
        let lifetime = self.current();
        let limit = lifetime.usable_until() - lifetime.fresh_until;
        let left = lifetime.fresh_until.saturating_duration_since(now);
        let past = now.saturating_duration_since(lifetime.fresh_until);
        let state = match self.worth(now) {
            // The server prefers it to the wait: it counts as just fresh.
            Worth::Fresh | Worth::StaleWhileRevalidate => State::FreshFor(left),
            Worth::StaleIfError | Worth::Nothing => State::StaleSince(past),
        };
        // To the fraction of a second: `max-age=0` takes nothing that was there before.
        let resident = now.saturating_duration_since(lifetime.received);
        let age = Duration::from_secs(self.head.age).saturating_add(resident);
        demand.accept(age, state, limit)
    }

    /// Its lifetime, as far as no soft purge has cut it short.
    fn current(&self) -> Lifetime {
        match self.softened.get() {
            Some(at) => self.lifetime.stale_from(*at),
            None => self.lifetime,
        }
    }

    pub(crate) fn fresh_until(&self) -> Instant {
        self.current().fresh_until
    }

    /// When it is no answer any more, not even in place of a failure.
    pub(crate) fn usable_until(&self) -> Instant {
        self.current().usable_until()
    }

    #[inline]
    pub(crate) fn worth(&self, now: Instant) -> Worth {
        match self.softened.get() {
            None => self.lifetime.worth(now),
            Some(at) => self.lifetime.stale_from(*at).worth(now),
        }
    }

    /// Whether it is of no use any more, not even to be validated.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.lifetime.end() <= now
    }

    /// The age of the response (RFC 9111 section 4.2.3), in seconds.
    pub(crate) fn age(&self, now: Instant) -> u64 {
        let resident = now.saturating_duration_since(self.lifetime.received);
        self.head.age.saturating_add(resident.as_secs())
    }

    /// The remaining freshness in seconds, negative once it is stale.
    pub(crate) fn ttl(&self, now: Instant) -> i64 {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let fresh_until = self.current().fresh_until;
        if now <= fresh_until {
            seconds(fresh_until - now)
        } else {
            -seconds(now - fresh_until)
        }
    }

    /// For how long after `now` its age and its remaining freshness are the same whole seconds.
    pub(crate) fn unchanged(&self, now: Instant) -> Range<Instant> {
        let second = Duration::from_secs(1);
        let whole = |duration: Duration| Duration::from_secs(duration.as_secs());
        let Lifetime {
            received,
            fresh_until,
            ..
        } = self.current();
        let older = received + whole(now.saturating_duration_since(received)) + second;
        let staler = if now <= fresh_until {
            fresh_until - whole(fresh_until - now) + Duration::from_nanos(1)
        } else {
            fresh_until + whole(now - fresh_until) + second
        };
        now..older.min(staler)
    }

    /// Whether nothing it carries has been purged since its build began. A soft purge makes it stale.
    pub(crate) fn is_valid(&self, purges: &Purges) -> bool {
        let now = purges.now();
        let checked = self.checked.load(Ordering::Relaxed);
        if checked >= now.number() {
            return true;
        }
        match purges.since(Moment::at(checked), &self.tags) {
            Since::Purged => return false,
            Since::Softened(at) => {
                self.softened.get_or_init(|| at);
                self.present.forget();
            }
            Since::Nothing => {}
        }
        self.confirm(now);
        true
    }

    /// Notes that no purge had reached it at `moment`.
    pub(crate) fn confirm(&self, moment: Moment) {
        self.checked.fetch_max(moment.number(), Ordering::Relaxed);
    }

    /// Whether it may answer in place of a build that failed or takes too long (RFC 5861 section 4).
    pub(crate) fn may_stand_in(&self, now: Instant, purges: &Purges) -> bool {
        self.is_valid(purges) && self.worth(now) != Worth::Nothing
    }

    /// Whether a request that came at `joined` may be answered by this entry's build: it was there
    /// before any purge that reached the build.
    pub(crate) fn may_answer(&self, joined: Moment, purges: &Purges) -> bool {
        joined <= self.began || self.is_valid(purges) && self.softened.get().is_none()
    }

    /// The same response without fields and body.
    pub(crate) fn bare(&self) -> Self {
        let head = Head {
            status: self.head.status,
            headers: HeaderMap::new(),
            variant: None,
            age: 0,
        };
        let origin = Origin {
            lifetime: self.lifetime,
            tags: Box::default(),
            began: self.began,
            built: self.built,
            build_time: self.build_time,
        };
        Self::new(head, Bytes::new(), None, origin)
    }

    /// The memory it takes, in bytes: body, fields and an allowance for the rest.
    pub(crate) fn weight(&self) -> usize {
        let fields = |headers: &HeaderMap| -> usize {
            headers
                .iter()
                .map(|(name, value)| name.as_str().len() + value.len() + PER_FIELD)
                .sum()
        };
        let trailers = self.trailers.as_ref().map_or(0, fields);
        let variant = self
            .head
            .variant
            .as_ref()
            .map_or(0, |variant| variant.values.len());
        size_of::<Self>()
            + PER_ENTRY
            + self.body.len()
            + fields(&self.head.headers)
            + trailers
            + variant
            + 16 * self.tags.len()
    }
}

/// What a map takes for a field, twice: the head is there as it was stored, and as hits show it.
const PER_FIELD: usize = 2 * 112;

/// What else an entry takes: its place in the local tier, and the fields that hits have beside.
const PER_ENTRY: usize = 512;

/// A response that nothing stores: it is complete, and worth nothing but to those who wait for it.
pub(crate) fn unstored(
    head: Head,
    body: Bytes,
    trailers: Option<HeaderMap>,
    began: Moment,
) -> Arc<Entry> {
    let now = Instant::now();
    let lifetime = Lifetime::starting(now, Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let tags = Box::default();
    Arc::new(Entry::new(
        head,
        body,
        trailers,
        Origin {
            lifetime,
            tags,
            began,
            built: Built::here(now),
            build_time: Duration::ZERO,
        },
    ))
}

#[cfg(test)]
mod tests;
