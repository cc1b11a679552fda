//! Before a build: look again, claim, and while another process builds, wait for it.

use std::{sync::Arc, time::Duration};

use http::Method;
use tokio::time::{Instant, sleep};

use super::leading::Ownership;
use crate::{
    asked::{Asked, Errand},
    cache::Cache,
    entry::{Entry, Worth},
    flight::{Failure, Flight, News, Verdict},
    key::{Digest, Key},
    local::Note,
    policy::{Mode, Policy},
    shared::{Claim, Claimed, Lease, Marker, Purpose, Shared, Slot},
    token::Token,
};

/// What a flight looks for, and where.
#[derive(Debug)]
pub(super) struct Seek<'a> {
    pub(super) cache: &'a Cache,
    pub(super) policy: &'a Policy,
    pub(super) key: &'a Key,
    pub(super) resource: &'a Key,
    pub(super) tag: Digest,
    pub(super) asked: &'a Asked,
    pub(super) stale: Option<&'a Arc<Entry>>,
    pub(super) ownership: Ownership,
    pub(super) slot: Slot,
    pub(super) flight: &'a Flight,
}

/// What came of it.
pub(super) enum Sought {
    Found(News),
    /// Somebody else is at it, and nobody here waits for it.
    Nobody,
    Build {
        lease: Option<Lease>,
        stale: Option<Arc<Entry>>,
    },
}

impl Seek<'_> {
    pub(super) async fn run(self) -> Sought {
        let stores = self.policy.mode == Mode::Cache;
        if let Some(news) = self.look_again().filter(|_| stores) {
            return Sought::Found(news);
        }
        let key = self.asked.key_in_class(self.key);
        if let Some(Note::HitForMiss) = self.cache.note(&key, self.tag) {
            // This flight only probes: nobody waits for it.
            self.flight.tell(News::Landed(Verdict::Uncacheable));
        }
        match self.cache.shared() {
            Some(shared) if stores => self.claim(shared).await,
            _ => self.build(None, None),
        }
    }

    /// Another flight may have landed between the request's look and this one's start.
    fn look_again(&self) -> Option<News> {
        let fields = self.cache.local().fields(self.resource);
        if let Some(fields) = fields.filter(|_| self.key == self.resource) {
            return Some(News::Elsewhere(fields));
        }
        let entry = self.cache.local().entry(self.key, self.cache.purges())?;
        let now = Instant::now();
        let fresh = entry.worth(now) == Worth::Fresh && self.cache.trusts_local();
        (fresh && entry.head.fits(&self.asked.headers) && self.asked.takes(&entry, now))
            .then(|| News::Landed(Verdict::Stored(entry)))
    }

    async fn claim(&self, shared: &Arc<Shared>) -> Sought {
        let place = Cache::place(self.resource, self.key);
        // Registered before the claim is sent, so that no release is missed.
        let mut watch = shared.watch(place.resource);
        let mut budget = shared.budget();
        let mut poll = Poll::new();
        let mut purpose = match (self.asked.errand, &self.asked.method) {
            (Errand::Look, _) | (_, &Method::HEAD) => Purpose::Look,
            (Errand::Build, _) => Purpose::Serve,
        };
        loop {
            let Ok(token) = Token::random() else {
                return self.build(None, None);
            };
            let claim = Claim {
                place,
                slot: self.slot,
                token,
                have: self.stale.cloned(),
                purpose,
                began: self.cache.moment(),
                deadline: Instant::now(),
            };
            let left = match self.take(shared.claim(claim, &mut budget).await) {
                Claims::Settled(sought) => return sought,
                Claims::Busy(left) => left,
            };
            if self.ownership == Ownership::Nobody {
                return Sought::Nobody;
            }
            tokio::select! {
                () = watch.event() => {}
                () = sleep(poll.next().min(left.max(SHORTEST_POLL))) => {}
                () = self.flight.sealed_empty() => return Sought::Nobody,
            }
            purpose = Purpose::ServeAfterWait;
        }
    }

    /// Acts on the answer to a claim.
    fn take(&self, claimed: Option<Claimed>) -> Claims {
        Claims::Settled(match claimed {
            None => match self.held() {
                Some(entry) => found(Arc::clone(entry)),
                None => self.build(None, None),
            },
            Some(Claimed::Absent) => self.build(None, None),
            Some(Claimed::Unwritable { stale }) => self.build(None, stale),
            Some(Claimed::Fresh(entry)) if self.asked.takes(&entry, Instant::now()) => {
                self.keep(entry)
            }
            Some(Claimed::Fresh(entry)) => self.build(None, Some(entry)),
            Some(Claimed::Varies(fields)) => {
                self.cache
                    .local()
                    .varies(self.resource, Arc::clone(&fields));
                Sought::Found(News::Elsewhere(fields))
            }
            Some(Claimed::Failed(entry)) => {
                let failure = Arc::new(Failure::of(entry));
                Sought::Found(News::Landed(Verdict::Failed(failure)))
            }
            Some(Claimed::Leased {
                lease,
                stale,
                marker,
            }) => {
                if marker == Marker::HitForMiss {
                    self.flight.tell(News::Landed(Verdict::Uncacheable));
                }
                self.build(Some(lease), stale)
            }
            Some(Claimed::Busy {
                marker: Marker::HitForMiss,
                ..
            }) => {
                self.flight.tell(News::Landed(Verdict::Uncacheable));
                self.build(None, None)
            }
            Some(Claimed::Busy {
                stale: Some(stale), ..
            }) if stale.worth(Instant::now()) == Worth::StaleWhileRevalidate => found(stale),
            Some(Claimed::Busy { left, .. }) => return Claims::Busy(left),
        })
    }

    /// The local entry that was to be confirmed, where there is nobody to ask.
    fn held(&self) -> Option<&Arc<Entry>> {
        let held = self.stale.filter(|held| held.is_valid(self.cache.purges()));
        held.filter(|held| held.worth(Instant::now()) == Worth::Fresh)
    }

    /// A fresh entry of the shared tier goes into the local one.
    fn keep(&self, entry: Arc<Entry>) -> Sought {
        self.cache
            .local()
            .insert(self.key.clone(), Arc::clone(&entry));
        self.cache.local().clear_memo(self.key);
        found(entry)
    }

    fn build(&self, lease: Option<Lease>, stale: Option<Arc<Entry>>) -> Sought {
        // What the shared tier has just given is not purged.
        let known = || {
            self.stale
                .filter(|stale| stale.is_valid(self.cache.purges()))
        };
        // Since the request looked, another flight may have left one that this build can confirm.
        let left = || {
            let stores = self.policy.mode == Mode::Cache;
            let local = stores.then(|| self.cache.local());
            local.and_then(|local| local.entry(self.key, self.cache.purges()))
        };
        let stale = stale.or_else(|| known().cloned()).or_else(left);
        Sought::Build { lease, stale }
    }
}

enum Claims {
    Settled(Sought),
    Busy(Duration),
}

fn found(entry: Arc<Entry>) -> Sought {
    Sought::Found(News::Found(entry))
}

/// A lease that is about to end is no reason to ask at once.
const SHORTEST_POLL: Duration = Duration::from_millis(5);

/// Polls beneath the events: from 50 ms, doubling to a second, jittered by a fifth.
#[derive(Debug)]
struct Poll(Duration);

impl Poll {
    fn new() -> Self {
        Self(Duration::from_millis(50))
    }

    fn next(&mut self) -> Duration {
        let pause = self.0.mul_f64(0.8 + 0.4 * fastrand::f64());
        self.0 = (self.0 * 2).min(Duration::from_secs(1));
        pause
    }
}
