//! Entries: stored responses.

mod built;
pub(crate) mod codec;
mod lifetime;
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

use crate::{
    http::{
        cache_control::RequestDirectives,
        freshness::State,
        vary::{Matching, write_variant},
    },
    key::Digest,
    purges::{Moment, Purges, Since},
    shared::paired::Kept,
    token::Token,
};

pub(crate) use self::{
    built::Built,
    lifetime::{Lifetime, Worth},
    present::{Present, head},
};

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
    #[inline]
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

/// A stored response.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) lifetime: Lifetime,
    pub(crate) tags: Box<[Digest]>,
    /// The lease under which the shared tier has it.
    pub(crate) token: OnceLock<Token>,
    /// How a store has it.
    pub(crate) kept: OnceLock<Box<Kept>>,
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
            head,
            body,
            trailers,
            lifetime: origin.lifetime,
            tags: origin.tags,
            token: OnceLock::new(),
            kept: OnceLock::new(),
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

    /// The time around `now` in which its age and its remaining freshness are the same whole seconds,
    /// and it is worth the same. No time at all if it is over.
    pub(crate) fn unchanged(&self, now: Instant) -> Range<Instant> {
        let second = Duration::from_secs(1);
        let whole = |duration: Duration| Duration::from_secs(duration.as_secs());
        let lifetime = self.current();
        let Lifetime {
            received,
            fresh_until,
            ..
        } = lifetime;
        let aged = received + whole(now.saturating_duration_since(received));
        let staled = if now <= fresh_until {
            let end = fresh_until - whole(fresh_until - now) + Duration::from_nanos(1);
            end.checked_sub(second).unwrap_or(received)..end
        } else {
            let start = fresh_until + whole(now - fresh_until);
            start..start + second
        };
        let steady = lifetime.steady(now);
        let start = aged.min(now).max(staled.start).max(steady.start);
        let end = (aged + second).min(staled.end).min(steady.end);
        start..end
    }

    /// Whether nothing it carries has been purged since its build began. A soft purge makes it stale.
    #[inline]
    pub(crate) fn is_valid(&self, purges: &Purges) -> bool {
        let now = purges.now();
        // With what it was found to be then.
        let checked = self.checked.load(Ordering::Acquire);
        if checked >= now.number() {
            return true;
        }
        match purges.since(Moment::at(checked), &self.tags) {
            Since::Purged => return false,
            Since::Softened(at) => {
                self.softened.get_or_init(|| at);
            }
            Since::Nothing => {}
        }
        self.confirm(now);
        true
    }

    /// Notes that no purge had reached it at `moment`.
    pub(crate) fn confirm(&self, moment: Moment) {
        self.checked.fetch_max(moment.number(), Ordering::Release);
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
            + self.kept.get().map_or(0, |kept| kept.weight())
    }
}

/// What a map takes for a field, twice: the head is there as it was stored, and as hits show it.
const PER_FIELD: usize = 2 * 112;

/// What else an entry takes: its place in the local tier, and what hits show of it beside.
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
