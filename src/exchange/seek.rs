//! Before a build: look again, claim, and while another process builds, wait for it.

use std::{sync::Arc, time::Duration};

use http::Method;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep},
};

use super::{Intent, leading::Ownership, poll::Poll};
use crate::{
    asked::{Asked, Errand},
    cache::Cache,
    entry::{Entry, Worth},
    flight::{Failure, Flight, News, Verdict},
    key::{Digest, Key},
    memos::{Memo, Note},
    policy::{Mode, Policy},
    purges::Moment,
    shared::{Claim, Claimed, Lease, Marker, Purpose, Shared, Slot},
    time::TierTime,
    token::Token,
};

/// What a flight looks for, and where.
#[derive(Debug)]
pub(super) struct Seek<'a> {
    pub(super) cache: &'a Cache,
    pub(super) policy: &'a Policy,
    pub(super) key: &'a Key,
    pub(super) resource: &'a Key,
    pub(super) tags: &'a Arc<[Digest]>,
    pub(super) asked: &'a Asked,
    pub(super) stale: Option<&'a Arc<Entry>>,
    pub(super) ownership: Ownership,
    pub(super) intent: Intent,
    pub(super) slot: Slot,
    pub(super) flight: &'a Flight,
}

/// What came of it.
pub(super) enum Sought {
    Found(News),
    /// Nobody here waits: another process is at it, or nothing can come of it for others.
    Nobody,
    Build {
        lease: Option<Lease>,
        stale: Option<Arc<Entry>>,
    },
    /// The stale entry has answered those here; the build is for those who come.
    Refresh {
        lease: Lease,
        stale: Arc<Entry>,
    },
}

impl Seek<'_> {
    /// `permit` to refresh is given back where another process is at it.
    pub(super) async fn run(self, permit: &mut Option<OwnedSemaphorePermit>) -> Sought {
        let stores = self.policy.mode == Mode::Cache;
        if let Some(news) = self.look_again().filter(|_| stores) {
            return Sought::Found(news);
        }
        let key = self.asked.key_in_class(self.key);
        if let Some(Note::HitForMiss) = self.cache.note(&key, self.tags) {
            // This flight only probes: nobody waits for it.
            self.flight.tell(News::Landed(Verdict::Uncacheable));
        }
        match self.cache.shared() {
            Some(shared) if stores => self.claim(shared, permit).await,
            None if stores => Sought::build(None, self.trusted()),
            _ => Sought::build(None, None),
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
        let fresh = entry.worth(now) == Worth::Fresh && self.cache.trusts(&entry, now);
        let new = self.intent == Intent::Answer || self.is_later(&entry);
        (fresh && new && entry.head.fits(&self.asked.headers) && self.asked.takes(&entry, now))
            .then(|| News::Landed(Verdict::Stored(entry)))
    }

    async fn claim(
        &self,
        shared: &Arc<Shared>,
        permit: &mut Option<OwnedSemaphorePermit>,
    ) -> Sought {
        let place = Cache::place(self.resource, self.key);
        // Registered before the claim is sent, so that no release is missed.
        let mut watch = shared.watch(place.resource);
        let mut budget = shared.budget();
        let mut poll = Poll::default();
        let mut awaited = None;
        let mut purpose = self.purpose();
        // The fresh entry that will not do, if there is one: it stays so, however long the wait.
        let mut refused = self.held().filter(|_| purpose == Purpose::Refresh);
        let mut slot = self.slot;
        loop {
            // Another flight of this process may have been at it.
            if awaited.is_some()
                && let Some(news) = self.look_again()
            {
                return Sought::Found(news);
            }
            let Ok(token) = Token::random() else {
                return Sought::build(None, self.trusted());
            };
            let began = self.cache.moment();
            let claim = Claim {
                place,
                slot,
                token,
                have: refused.clone().or_else(|| self.held()),
                purpose,
                awaited,
                lease_ttl: self.policy.pace.lease_ttl(shared.lease_ttl()),
                began,
                tags: Arc::clone(self.tags),
                deadline: Instant::now(),
            };
            let claimed = shared.claim(claim, &mut budget).await;
            let left = match self.take(claimed, began, awaited) {
                Claims::Settled(sought) => return self.permitted(sought, permit),
                Claims::Renew(entry) => {
                    purpose = Purpose::Refresh;
                    refused = Some(entry);
                    continue;
                }
                Claims::Busy { .. } if self.next(&mut slot) => continue,
                Claims::Busy { since, left } => {
                    awaited = Some(since);
                    // It answered: from now on the build is what is waited for.
                    budget = shared.budget();
                    *permit = None;
                    left
                }
            };
            tokio::select! {
                () = watch.event() => {}
                () = sleep(poll.next().min(left.max(SHORTEST_POLL))) => {}
                // A refresh has nobody in it; what it waits for is the entry of another process.
                () = self.flight.sealed_empty(), if self.ownership == Ownership::Requests => {
                    return Sought::Nobody;
                }
            }
        }
    }

    /// A refresh that has followed another process needs the right to build again.
    fn permitted(&self, sought: Sought, permit: &mut Option<OwnedSemaphorePermit>) -> Sought {
        let (Sought::Build { .. } | Sought::Refresh { .. }) = &sought else {
            return sought;
        };
        if self.ownership == Ownership::Nobody && permit.is_none() {
            *permit = self.cache.refresh_permit();
        }
        match sought {
            sought if self.ownership == Ownership::Requests || permit.is_some() => sought,
            Sought::Build {
                lease: Some(lease), ..
            }
            | Sought::Refresh { lease, .. } => {
                self.cache.give_back(lease);
                Sought::Nobody
            }
            _ => Sought::Nobody,
        }
    }

    /// Goes on to the next of the leases for extra builds, if there is one.
    fn next(&self, slot: &mut Slot) -> bool {
        match slot {
            Slot::Extra(number) if *number < self.policy.extra_builds => {
                *number += 1;
                true
            }
            Slot::Extra(_) | Slot::Build => false,
        }
    }

    /// Whether a fresh entry of the shared tier is what the flight is there for. A request that renews
    /// takes that of the build it has waited for; a refresh, any that is later than the one it is of.
    fn wants(&self, entry: &Entry, awaited: Option<TierTime>) -> bool {
        let is_new = match (self.intent, self.ownership) {
            (Intent::Answer, _) => true,
            (Intent::Renew, Ownership::Requests) => awaited.is_some(),
            (Intent::Renew, Ownership::Nobody) => awaited.is_some() || self.is_later(entry),
        };
        is_new && self.asked.takes(entry, Instant::now())
    }

    fn is_later(&self, entry: &Entry) -> bool {
        self.stale
            .is_some_and(|known| entry.built.is_after(&known.built))
    }

    fn purpose(&self) -> Purpose {
        match (self.asked.errand, &self.asked.method, self.intent) {
            (Errand::Look, ..) | (_, &Method::HEAD, _) => Purpose::Look,
            (Errand::Build, _, Intent::Answer) => Purpose::Serve,
            (Errand::Build, _, Intent::Renew) => Purpose::Refresh,
        }
    }

    /// Acts on the answer to a claim that was made at `began`.
    fn take(&self, claimed: Option<Claimed>, began: Moment, awaited: Option<TierTime>) -> Claims {
        Claims::Settled(match claimed {
            None => self.without_tier(awaited),
            Some(Claimed::Absent { stale }) if self.ownership == Ownership::Nobody => {
                // The build was for its own process: nobody here wants one too.
                self.note(stale);
                Sought::Nobody
            }
            Some(Claimed::Absent { stale } | Claimed::Unwritable { stale }) => {
                Sought::build(None, self.note(stale))
            }
            Some(Claimed::Fresh(entry)) => {
                self.note(Some(Arc::clone(&entry)));
                self.cache.memos().clear(self.key);
                if self.wants(&entry, awaited) {
                    Sought::Found(match awaited {
                        None => News::Found(entry),
                        Some(_) => News::Awaited(entry),
                    })
                } else if self.purpose() == Purpose::Look {
                    Sought::build(None, Some(entry))
                } else {
                    return Claims::Renew(entry);
                }
            }
            Some(Claimed::Varies(fields)) => {
                self.cache
                    .local()
                    .varies(self.resource, Arc::clone(&fields));
                Sought::Found(News::Elsewhere(fields))
            }
            Some(Claimed::Failed { failure, stale }) => {
                let stale = self
                    .note(stale)
                    .filter(|stale| stale.may_stand_in(Instant::now(), self.cache.purges()));
                let failure = Arc::new(Failure::of(failure));
                let failure = match stale {
                    Some(stale) => Arc::new(Failure::Stale(stale, failure)),
                    None => failure,
                };
                Sought::Found(News::Landed(Verdict::Failed(failure)))
            }
            Some(Claimed::Leased {
                lease,
                stale,
                marker,
            }) => self.lead(lease, self.note(stale), self.heed(marker, began)),
            Some(Claimed::Busy {
                since,
                left,
                stale,
                marker,
            }) => {
                return self.stand_back((since, left), self.note(stale), self.heed(marker, began));
            }
        })
    }

    /// The lease is ours. What is stale within its window answers those here, and is refreshed.
    fn lead(&self, lease: Lease, stale: Option<Arc<Entry>>, freedom: Freedom) -> Sought {
        match stale {
            _ if freedom == Freedom::All && self.ownership == Ownership::Nobody => {
                self.cache.give_back(lease);
                Sought::Nobody
            }
            Some(stale) if self.answers_while_refreshed(&stale) => {
                self.flight.tell(News::Found(Arc::clone(&stale)));
                Sought::Refresh { lease, stale }
            }
            stale => Sought::build(Some(lease), stale),
        }
    }

    /// Another process builds.
    fn stand_back(
        &self,
        (since, left): (TierTime, Duration),
        stale: Option<Arc<Entry>>,
        freedom: Freedom,
    ) -> Claims {
        match (freedom, stale) {
            (Freedom::All, _) if self.ownership == Ownership::Nobody => {
                Claims::Settled(Sought::Nobody)
            }
            (Freedom::All, stale) => Claims::Settled(Sought::build(None, stale)),
            (Freedom::None, Some(stale))
                if self.ownership == Ownership::Requests
                    && self.answers_while_refreshed(&stale) =>
            {
                Claims::Settled(Sought::Found(News::Found(stale)))
            }
            (Freedom::None, _) => Claims::Busy { since, left },
        }
    }

    /// Whether it answers those here: a request that renews wants no stale entry.
    fn answers_while_refreshed(&self, stale: &Entry) -> bool {
        if self.intent == Intent::Renew && self.ownership == Ownership::Requests {
            return false;
        }
        let now = Instant::now();
        stale.worth(now) == Worth::StaleWhileRevalidate && self.asked.takes(stale, now)
    }

    /// Under a hit-for-miss marker nobody waits, here either, for as long as it lasts.
    fn heed(&self, marker: Marker, began: Moment) -> Freedom {
        let Marker::HitForMiss(left) = marker else {
            return Freedom::None;
        };
        let memo = Memo {
            note: Note::HitForMiss,
            until: Instant::now() + left,
            began,
        };
        let key = self.asked.key_in_class(self.key);
        self.cache.memos().set(key, memo);
        self.flight.tell(News::Landed(Verdict::Uncacheable));
        Freedom::All
    }

    /// What the shared tier has just given goes into the local one, where whoever needs it looks.
    /// Without it, what is there already is as good as the events are.
    fn note(&self, entry: Option<Arc<Entry>>) -> Option<Arc<Entry>> {
        if let Some(entry) = &entry {
            self.cache.keep(self.key, Arc::clone(entry));
        }
        entry.or_else(|| self.trusted())
    }

    /// Nobody is there to ask: what is held here is as good as it gets.
    fn without_tier(&self, awaited: Option<TierTime>) -> Sought {
        match self.held() {
            Some(entry)
                if entry.worth(Instant::now()) == Worth::Fresh && self.wants(&entry, None) =>
            {
                Sought::Found(News::Found(entry))
            }
            // When it was last heard of, another process was at it.
            _ if awaited.is_some() && self.ownership == Ownership::Nobody => Sought::Nobody,
            stale => Sought::build(None, stale),
        }
    }

    /// What the local tier has, fresh or not, or had when the request came.
    fn held(&self) -> Option<Arc<Entry>> {
        let purges = self.cache.purges();
        let known = || self.stale.filter(|held| held.is_valid(purges)).cloned();
        self.cache.local().entry(self.key, purges).or_else(known)
    }

    fn trusted(&self) -> Option<Arc<Entry>> {
        let now = Instant::now();
        self.held().filter(|entry| self.cache.trusts(entry, now))
    }
}

impl Sought {
    fn build(lease: Option<Lease>, stale: Option<Arc<Entry>>) -> Self {
        Self::Build { lease, stale }
    }
}

enum Claims {
    Settled(Sought),
    Busy {
        since: TierTime,
        left: Duration,
    },
    /// There is a fresh entry that is not wanted: have it renewed.
    Renew(Arc<Entry>),
}

/// Who need not wait.
#[derive(Clone, Copy, PartialEq)]
enum Freedom {
    None,
    All,
}

/// A lease that is about to end is no reason to ask at once.
const SHORTEST_POLL: Duration = Duration::from_millis(5);
