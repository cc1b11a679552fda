//! Before a build: look again, claim, and while another process builds, wait for it.

use std::{sync::Arc, time::Duration};

use http::Method;
use tokio::time::{Instant, sleep};

use super::{Intent, leading::Ownership};
use crate::{
    asked::{Asked, Errand},
    cache::Cache,
    entry::{Entry, Worth},
    flight::{Failure, Flight, News, Verdict},
    key::{Digest, Key},
    memos::{Memo, Note},
    policy::{Mode, Policy},
    purges::Moment,
    shared::{Claim, Claimed, Lease, Marker, Purpose, Shared, Slot, TOLD},
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
    /// Somebody else is at it, and nobody here waits for it.
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
    pub(super) async fn run(self) -> Sought {
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
            Some(shared) if stores => self.claim(shared).await,
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
        (fresh && entry.head.fits(&self.asked.headers) && self.wants(&entry, None))
            .then(|| News::Landed(Verdict::Stored(entry)))
    }

    async fn claim(&self, shared: &Arc<Shared>) -> Sought {
        let place = Cache::place(self.resource, self.key);
        // Registered before the claim is sent, so that no release is missed.
        let mut watch = shared.watch(place.resource);
        let mut budget = shared.budget();
        let mut poll = Poll::default();
        let mut awaited = None;
        let mut purpose = self.purpose();
        let mut unwanted = None;
        let mut slot = self.slot;
        loop {
            let Ok(token) = Token::random() else {
                return Sought::build(None, self.trusted());
            };
            let began = self.cache.moment();
            let claim = Claim {
                place,
                slot,
                token,
                have: unwanted.take().or_else(|| self.held()),
                purpose,
                awaited,
                lease_ttl: self.policy.pace.lease_ttl(shared.lease_ttl()),
                began,
                tags: Arc::clone(self.tags),
                deadline: Instant::now(),
            };
            let claimed = shared.claim(claim, &mut budget).await;
            let left = match self.take(claimed, began, awaited) {
                Claims::Settled(sought) => return sought,
                Claims::Renew(entry) => {
                    purpose = Purpose::Refresh;
                    unwanted = Some(entry);
                    continue;
                }
                Claims::Busy { .. } if self.next(&mut slot) => continue,
                Claims::Busy { since, left } => {
                    awaited = Some(since);
                    // It answered: from now on the build is what is waited for.
                    budget = shared.budget();
                    left
                }
            };
            // What another process renews meanwhile is new enough.
            if purpose == Purpose::Refresh {
                purpose = Purpose::Serve;
            }
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

    /// Whether a fresh entry is what the flight is there for. Who renews one takes another's, if it
    /// is a later one.
    fn wants(&self, entry: &Entry, awaited: Option<TierTime>) -> bool {
        let is_new = match self.intent {
            Intent::Answer => true,
            Intent::Renew => {
                let known = self.stale.map(|known| &known.built);
                awaited.is_some() || known.is_some_and(|known| entry.built.is_after(known))
            }
        };
        is_new && self.asked.takes(entry, Instant::now())
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
            None => self.without_tier(),
            Some(Claimed::Absent { stale } | Claimed::Unwritable { stale }) => {
                Sought::build(None, self.note(stale))
            }
            Some(Claimed::Fresh(entry)) => {
                self.note(Some(Arc::clone(&entry)));
                self.cache.memos().clear(self.key);
                if self.wants(&entry, awaited) {
                    Sought::Found(News::Found(entry))
                } else if self.asked.method == Method::HEAD {
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
            }) => {
                self.heed(marker, began);
                self.lead(lease, self.note(stale))
            }
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
    fn lead(&self, lease: Lease, stale: Option<Arc<Entry>>) -> Sought {
        match stale {
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

    fn answers_while_refreshed(&self, stale: &Entry) -> bool {
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
    fn without_tier(&self) -> Sought {
        match self.held() {
            Some(entry) if entry.worth(Instant::now()) == Worth::Fresh => {
                Sought::Found(News::Found(entry))
            }
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
#[derive(PartialEq)]
enum Freedom {
    None,
    All,
}

/// A lease that is about to end is no reason to ask at once.
const SHORTEST_POLL: Duration = Duration::from_millis(5);

/// Polls beneath the events: from 50 ms, doubling to just below a second, jittered by a fifth.
#[derive(Debug)]
struct Poll {
    pause: Duration,
}

impl Default for Poll {
    fn default() -> Self {
        let pause = Duration::from_millis(50);
        Self { pause }
    }
}

impl Poll {
    fn next(&mut self) -> Duration {
        let pause = self.pause.mul_f64(0.8 + 0.4 * fastrand::f64());
        // However its build ended is told for no longer: a pause that is longer could miss it.
        self.pause = (self.pause * 2).min(TOLD.mul_f64(0.8));
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_become_slower_and_stay_below_the_life_of_what_they_look_for() {
        let mut poll = Poll::default();

        let pauses: Vec<_> = (0..100).map(|_| poll.next()).collect();

        let ms = Duration::from_millis;
        assert!((ms(40)..=ms(60)).contains(&pauses[0]), "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause < TOLD), "{pauses:?}");
        assert!(
            pauses[10..].iter().all(|pause| *pause > TOLD / 2),
            "{pauses:?}"
        );
    }
}
