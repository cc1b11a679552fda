//! How a build ends: stored, shared with those who wait, or failed; and what is remembered of it.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::{
    build::{self, Delivery, Payload},
    keeper::Keeper,
    landing::Landing,
};
use crate::{
    asked::Circle,
    body::BoxError,
    cache::Cache,
    entry::{self, Built, Entry, Head, Lifetime, Origin, Variant},
    flight::{Failure, LARGEST_FAILURE, News, Verdict},
    http::vary::Vary,
    judge::{Fate, Judged, Sharing},
    key::{Class, Digest, Key},
    memos::{Memo, Note},
    purges::Since,
    shared::{Filled, Held, Place, Release, TOLD},
};

/// A resource that seems to vary by more fields than these is learnt anew.
const MOST_FIELDS: usize = 32;

/// What takes no time to be written down.
const SMALL: usize = 64 * 1024;

/// While a stale entry stands in, a broken handler is tried again ever more rarely, down to this.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);

/// After so many failures in a row: the memo's time, doubled with each.
fn back_off(memo: Duration, failures: u32) -> Duration {
    let doubled = memo.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(LONGEST_BACK_OFF.max(memo))
}

impl<B, E> Landing<B, E>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    /// A complete response: into an entry, or only to those who wait.
    pub(super) async fn conclude(self, judged: Judged, body: Bytes, trailers: Option<HeaderMap>) {
        let policy = &self.policy;
        if judged.is_shareable() {
            // How soon it failed says nothing of how long builds take.
            let took = self.began.elapsed();
            let (layer, limit) = (policy.name.as_deref(), policy.build_timeout);
            policy.pace.note(layer, took, limit);
        }
        match judged.fate {
            Fate::Stored(lifetime) => match (self.file(&judged, lifetime), &self.carried) {
                (Some((key, head)), Ok(tags)) => {
                    let origin = self.origin(lifetime, tags.clone());
                    let entry = Entry::new(head, body, trailers, origin);
                    self.store(key, Arc::new(entry)).await;
                }
                _ => self.share(judged, body, trailers).await,
            },
            Fate::Shared(_) => self.share(judged, body, trailers).await,
            Fate::Failed(Sharing::Status(status)) => {
                self.fail(Failure::Status(status), "status").await;
            }
            Fate::Failed(Sharing::Response) => {
                let shareable = body.len() <= LARGEST_FAILURE;
                let head = self.head_of(&judged).filter(|_| shareable);
                let failure = head.map_or(Failure::Status(judged.head.status), |head| {
                    let began = self.pilot.flight().began;
                    Failure::Response(entry::unstored(head, body, trailers, began))
                });
                self.fail(failure, "status").await;
            }
        }
    }

    fn origin(&self, lifetime: Lifetime, tags: Box<[Digest]>) -> Origin {
        let lease = self.keeper.as_ref().map(Keeper::lease);
        Origin {
            lifetime,
            tags,
            began: self.pilot.flight().began,
            built: match lease {
                Some(lease) => Built::leased(self.began, lease.began),
                None => Built::here(self.began),
            },
            build_time: self.began.elapsed(),
        }
    }

    /// Under which key the entry goes, and as which variant; `None` where there are too many.
    fn file(&self, judged: &Judged, lifetime: Lifetime) -> Option<(Key, Head)> {
        let (key, variant) = self.filing(&judged.vary)?;
        if let Some(variant) = &variant {
            let fields = Arc::clone(&variant.fields);
            let variants = self.cache.local().varies(&self.resource, fields);
            if !variants.admit(&key, lifetime.usable_until(), self.policy.max_variants) {
                return None;
            }
        }
        let head = judged.head.clone();
        Some((key, Head { variant, ..head }))
    }

    /// Whether an entry that varies so would have a place, as far as is known now.
    pub(super) fn has_place(&self, vary: &Vary) -> bool {
        let Some((key, variant)) = self.filing(vary) else {
            return false;
        };
        let (local, limit) = (self.cache.local(), self.policy.max_variants);
        let has_room = |variant: Variant| local.has_room(&self.resource, (&variant, &key), limit);
        variant.is_none_or(has_room)
    }

    /// The key of an entry that varies so, and the variant that it is.
    fn filing(&self, vary: &Vary) -> Option<(Key, Option<Variant>)> {
        let known = self.cache.local().fields(&self.resource);
        let known = known.map_or(Vary::None, |fields| Vary::Fields(fields.to_vec()));
        let all = match known.union(vary.clone()) {
            Vary::Fields(fields) if fields.len() > MOST_FIELDS => vary.clone(),
            all => all,
        };
        match all {
            Vary::None => Some((self.resource.clone(), None)),
            Vary::Any => None,
            Vary::Fields(fields) => {
                let variant = Variant::of(fields.into(), &self.asked.headers);
                let key = self.resource.variant(&variant.values);
                let fits = key.as_bytes().len() <= self.policy.key.max_length;
                fits.then_some((key, Some(variant)))
            }
        }
    }

    /// Lands the entry, then fills both tiers with it.
    ///
    /// What was purged meanwhile is for those who were already waiting: the shared tier refuses it,
    /// and the local one, where it carries the moment at which it began, never serves it as fresh.
    async fn store(mut self, key: Key, entry: Arc<Entry>) {
        let flight = self.pilot.flight();
        let overtaken = self.cache.purges().since(flight.began, &entry.tags) != Since::Nothing;
        let verdict = if overtaken {
            flight.seal();
            Verdict::Invalidated(Arc::clone(&entry))
        } else {
            Verdict::Stored(Arc::clone(&entry))
        };
        let Some(keeper) = self.keeper.take() else {
            if !overtaken {
                self.keep(&key, entry);
            }
            return self.pilot.flight().tell(News::Landed(verdict));
        };
        let place = Cache::place(&self.resource, &key);
        let asked = self.cache.moment();
        match self.fill_and_tell((keeper, place), &entry, verdict).await {
            Filled::Stored => {
                // Whatever was purged before has fenced the fill, or is purged here once more when
                // the tier has heard of it.
                entry.confirm(asked);
                self.keep(&key, entry);
            }
            Filled::Refused | Filled::Unfit => self.keep(&key, entry),
            Filled::FencedOff => {}
        }
    }

    /// Sends the entry on its way before those who wait here take the processor: others wait for it
    /// elsewhere.
    async fn fill_and_tell(
        &self,
        (keeper, place): (Keeper, Place),
        entry: &Entry,
        verdict: Verdict,
    ) -> Filled {
        let mut filling = pin!(keeper.fill(place, entry));
        let filled = if entry.body.len() <= SMALL {
            build::at_once(filling.as_mut()).await
        } else {
            None
        };
        self.pilot.flight().tell(News::Landed(verdict));
        match filled {
            Some(filled) => filled,
            None => filling.await,
        }
    }

    fn keep(&self, key: &Key, entry: Arc<Entry>) {
        self.cache.keep(key, entry);
        for class in [Class::Get, Class::Renewal, Class::Early] {
            self.cache.memos().clear(&self.key.in_class(class));
        }
    }

    /// Gives the response to those in the flight, and nobody later.
    async fn share(mut self, judged: Judged, body: Bytes, trailers: Option<HeaderMap>) {
        if let Some(head) = self.head_of(&judged) {
            let entry = entry::unstored(head, body, trailers, self.pilot.flight().began);
            self.land_for_those_here(Verdict::Shared(entry));
        }
        self.let_go().await;
    }

    pub(super) async fn fail_with_panic(mut self, payload: Payload) {
        self.deliver(Delivery::Panic(payload));
        let failure = Failure::Status(StatusCode::INTERNAL_SERVER_ERROR);
        self.fail(failure, "panic").await;
    }

    /// Shares a failure with the flight, and remembers it for a moment.
    pub(super) async fn fail(mut self, failure: Failure, detail: &'static str) {
        tracing::debug!(detail, "the build failed");
        let failure = Arc::new(failure);
        let stand_in = self.stand_in().map(Arc::clone);
        let usable_until = stand_in.as_ref().map(|stale| stale.usable_until());
        let stale = stand_in.map(|stale| Arc::new(Failure::Stale(stale, Arc::clone(&failure))));
        // Not sealed: who comes before it is remembered shares it here.
        self.land(Verdict::Failed(
            stale.clone().unwrap_or_else(|| Arc::clone(&failure)),
        ));
        let key = self.asked.key_in_class(&self.key);
        let failures = self.cache.memos().failures(&key).saturating_add(1);
        let memo = self.cache.failure_memo();
        let period = match usable_until {
            // What is remembered is not served for longer than the entry itself.
            Some(end) => {
                back_off(memo, failures).min(end.saturating_duration_since(Instant::now()))
            }
            None => memo,
        };
        let entry = failure.as_entry(self.pilot.flight().began);
        let told = period.max(TOLD);
        let held = self.give_back(Release::Failed(told, &entry)).await;
        // A large stale entry is the local tier's to keep.
        let stale = stale.filter(|stale| stale.weight() <= LARGEST_FAILURE);
        let remembered = match held {
            Held::Ours => Some(stale.unwrap_or(failure)),
            Held::Outdone => stale,
            Held::Lost => None,
        };
        if let Some(failure) = remembered {
            self.remember(Note::Failed(failure, failures), period);
        }
    }

    /// Frees those who wait: the response is for its own request alone, and so will the next ones be.
    pub(super) fn free(&self, verdict: Verdict) {
        if self.keeper.is_some() {
            // Who comes before it is remembered hears it here.
            return self.land(verdict);
        }
        self.remember(Note::HitForMiss, self.cache.hit_for_miss());
        self.land_for_those_here(verdict);
    }

    /// Remembers that nobody need wait for the next response.
    pub(super) async fn set_all_free(mut self) {
        let period = self.cache.hit_for_miss();
        if period.is_zero() {
            return self.let_go().await;
        }
        let leased = self.keeper.is_some();
        if self.give_back(Release::HitForMiss(period)).await == Held::Ours && leased {
            self.remember(Note::HitForMiss, period);
        }
    }

    /// Tells those in the flight, and those who still come.
    pub(super) fn land(&self, verdict: Verdict) {
        self.pilot.flight().tell(News::Landed(verdict));
    }

    /// Tells those in the flight, and lets nobody else in.
    pub(super) fn land_for_those_here(&self, verdict: Verdict) {
        self.pilot.flight().seal();
        self.land(verdict);
    }

    /// That nobody waits for what is for its own request alone outlives a failure.
    fn remember(&self, note: Note, period: Duration) {
        let key = self.asked.key_in_class(&self.key);
        let failed = matches!(note, Note::Failed(..));
        if failed && matches!(self.cache.note(&key, &self.tags), Some(Note::HitForMiss)) {
            return;
        }
        let memo = Memo {
            note,
            until: Instant::now() + period,
            began: self.pilot.flight().began,
        };
        self.cache.memos().set(key, memo);
    }

    /// Gives the lease back with nothing for other processes.
    pub(super) async fn let_go(&mut self) {
        if self.asked.circle == Circle::EarlyRefreshes {
            // Else each hit would try it again.
            self.remember(Note::HitForMiss, self.cache.hit_for_miss());
        }
        self.give_back(Release::Unshared(TOLD)).await;
    }

    /// Gives the lease back, if there is one. What the build has learnt holds for the key unless the
    /// lease was lost.
    pub(super) async fn give_back(&mut self, release: Release<'_>) -> Held {
        match self.keeper.take() {
            Some(keeper) => keeper.release(release).await,
            None => Held::Ours,
        }
    }
}
