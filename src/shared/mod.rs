//! The shared tier: what the workers of a fleet have in common.
//!
//! A [`Tier`] elects who builds (a lease per key), keeps entries, and tells every process what
//! happened. The rest of the crate asks it through [`Shared`], which bounds the time that a request
//! spends on it and goes on without it when it fails.

mod breaker;
mod coherence;
mod notice;
mod outage;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod undo;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use self::{
    breaker::{Breaker, Permit, Standing},
    notice::Notice,
    undo::Undo,
};
pub(crate) use self::{
    coherence::{Coherence, Watch},
    outage::{Effect, Fault, Outage},
};
use crate::{
    cache::LinkHealth,
    entry::{Entry, Fields},
    key::Digest,
    purges::{Moment, Purge},
    time::TierTime,
    token::Token,
};

/// Where a response lives in the shared tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The digest of the resource's key: all its variants are told of together.
    pub(crate) resource: Digest,
    pub(crate) resource_proof: [u8; 32],
    pub(crate) variant: Option<Digest>,
    /// What shows that an entry belongs to this very key.
    pub(crate) proof: [u8; 32],
}

/// Which of a key's leases is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The one for the build.
    Build,
    /// The one for the extra build of those whose wait timed out.
    Extra,
}

/// A claim: what is there, and may I build it?
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) place: Place,
    pub(crate) slot: Slot,
    /// A fresh one for each claim.
    pub(crate) token: Token,
    /// The entry that the caller already holds: its body need not be sent.
    pub(crate) have: Option<Arc<Entry>>,
    pub(crate) purpose: Purpose,
    /// Since when the lease was held that the caller has waited for: that build's failure counts.
    pub(crate) awaited: Option<TierTime>,
    /// For how long the lease is asked for; it is renewed while it is needed.
    pub(crate) lease_ttl: Duration,
    pub(crate) began: Moment,
    /// What an entry for it can be purged by, as far as that is known: what such a purge has
    /// overtaken holds no more.
    pub(crate) tags: Arc<[Digest]>,
    /// The time the tier has for its answer.
    pub(crate) deadline: Instant,
}

/// What a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Answer a request, or build.
    Serve,
    /// Only look.
    Look,
    /// Build, though the entry may be fresh that the caller has.
    Refresh,
}

/// The answer to a claim.
#[derive(Debug)]
pub(crate) enum Claimed {
    Fresh(Arc<Entry>),
    /// The resource has variants: claim the one that the request asks for.
    Varies(Fields),
    /// Build: the lease is ours.
    Leased {
        lease: Lease,
        stale: Option<Arc<Entry>>,
        marker: Marker,
    },
    /// Another process builds, since then; its lease lasts this much longer unless it is renewed.
    Busy {
        since: TierTime,
        left: Duration,
        stale: Option<Arc<Entry>>,
        marker: Marker,
    },
    /// The build that was waited for failed.
    Failed {
        failure: Arc<Entry>,
        stale: Option<Arc<Entry>>,
    },
    /// There is nothing fresh, and a look was all that was asked for, or the build that was waited for
    /// was for its own process.
    Absent {
        stale: Option<Arc<Entry>>,
    },
    /// The tier takes no leases (it is full, say): build without one.
    Unwritable {
        stale: Option<Arc<Entry>>,
    },
}

/// Whether the last response was for its own request alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    None,
    /// And for how long nobody need wait for the next one.
    HitForMiss(Duration),
}

/// The right to build, for as long as it is renewed.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) place: Place,
    pub(crate) slot: Slot,
    pub(crate) token: Token,
    /// When it was granted: what was purged later fences the fill.
    pub(crate) began: TierTime,
    /// How long it lasts without renewal.
    pub(crate) ttl: Duration,
}

/// What a build leaves in the tier.
#[derive(Debug)]
pub(crate) struct Fill<'a> {
    pub(crate) lease: &'a Lease,
    /// Where the entry goes: a variant of the leased place, if the response varies.
    pub(crate) place: Place,
    pub(crate) entry: &'a Entry,
}

/// What became of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    Stored,
    /// The lease is not ours any more, or what was built has been purged meanwhile.
    FencedOff,
    /// The lease is released and the entry could not be written.
    Refused,
}

/// How a lease is given back without an entry.
#[derive(Debug)]
pub(crate) enum Release<'a> {
    Nothing,
    /// The response was for those of this process: those who wait elsewhere build, each for itself.
    Unshared(Duration),
    /// Nobody need wait for the next one.
    HitForMiss(Duration),
    /// Those who wait elsewhere share the failure.
    Failed(Duration, &'a Entry),
    /// A claim whose answer never came: it may still run, and must not take effect then.
    Undo,
}

/// For so long at least, those who waited for a build find out how it ended: a poll takes no longer.
pub(crate) const TOLD: Duration = Duration::from_secs(1);

/// Whether a lease was still ours, and what its holder says of the key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Ours,
    /// It was ours, and there is a fresh entry all the same.
    Outdone,
    Lost,
}

/// Whether whoever purges wants to know which processes have heeded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Wanted,
    Unwanted,
}

/// What the tier knows of a purge.
#[derive(Debug)]
pub(crate) struct Told {
    /// How many processes it has told, if it can count them.
    pub(crate) processes: Option<usize>,
    /// How many have answered so far that they have heeded it.
    pub(crate) heeded: Option<Arc<watch::Sender<usize>>>,
}

impl Told {
    /// How many have answered once all have, or after `limit`.
    async fn answered(&self, limit: Duration) -> usize {
        let Some(heeded) = &self.heeded else {
            return 0;
        };
        let all = self.processes.unwrap_or(usize::MAX);
        let mut counts = heeded.subscribe();
        // What has come in until then counts.
        drop(timeout(limit, counts.wait_for(|count| *count >= all)).await);
        *heeded.borrow()
    }
}

pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Outage>> + Send + 'a>>;

/// What a shared tier does. Everything is idempotent for its token.
pub(crate) trait Tier: fmt::Debug + Send + Sync {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Claimed>;
    fn fill<'a>(&'a self, fill: Fill<'a>) -> Answer<'a, Filled>;
    fn renew<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Held>;
    fn release<'a>(&'a self, lease: &'a Lease, release: Release<'a>) -> Answer<'a, Held>;
    /// Purges, and tells every process.
    fn purge(&self, purge: Purge, answers: Answers) -> Answer<'_, Told>;
    /// Connects for the claims to come, and in the background for what follows them.
    fn prepare(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Starts telling `coherence` what other processes do, once.
    fn follow(&self, coherence: &Arc<Coherence>);
    /// How its connections are.
    fn health(&self) -> Vec<LinkHealth>;
    /// How long a lease lasts without renewal.
    fn lease_ttl(&self) -> Duration;
}

/// The shared tier as the rest of the crate sees it.
#[derive(Debug)]
pub(crate) struct Shared {
    tier: Arc<dyn Tier>,
    pub(crate) coherence: Arc<Coherence>,
    breaker: Breaker,
    failures: AtomicU64,
    leases: Notice,
    entries: Notice,
    budget: Duration,
}

/// The time that one request's flight may still spend on the shared tier.
#[derive(Debug)]
pub(crate) struct Budget(Duration);

impl Shared {
    pub(crate) fn new(tier: Arc<dyn Tier>, coherence: Arc<Coherence>, budget: Duration) -> Self {
        Self {
            tier,
            coherence,
            breaker: Breaker::new("shared tier"),
            failures: AtomicU64::new(0),
            leases: Notice::new("leases"),
            entries: Notice::new("entries"),
            budget,
        }
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget(self.budget)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn health(&self) -> Vec<LinkHealth> {
        self.tier.health()
    }

    pub(crate) fn lease_ttl(&self) -> Duration {
        self.tier.lease_ttl()
    }

    /// Registers for what happens to a resource, before it is claimed.
    pub(crate) fn watch(&self, resource: Digest) -> Watch {
        self.tier.follow(&self.coherence);
        self.coherence.watch(resource)
    }

    /// Before a process asks for the first time: connects, and lets the events begin, both at once.
    async fn open(&self, limit: Duration) {
        if !self.coherence.has_heard() {
            let connecting = timeout(limit, self.tier.prepare());
            let (_heard, _connected) = tokio::join!(self.coherence.first_heard(limit), connecting);
        }
    }

    /// Claims within what is left of `budget`. `None`: go on without the shared tier.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, or without an answer in time, the claim is undone in the background.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        mut claim: Claim,
        budget: &mut Budget,
    ) -> Option<Claimed> {
        let permit = self.breaker.admit().ok()?;
        let asked = Instant::now();
        self.open(budget.0 / 2).await;
        budget.0 = budget.0.saturating_sub(asked.elapsed());
        let sent = Instant::now();
        claim.deadline = sent + budget.0;
        let undo = Undo::of(self, &claim);
        let answer = match timeout(budget.0, self.tier.claim(&claim)).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(Outage::timed_out(elapsed)),
        };
        budget.0 = budget.0.saturating_sub(sent.elapsed());
        let answer = self.settle("claim", permit, answer);
        match &answer {
            Err(outage) if outage.effect == Effect::Unknown => budget.0 = Duration::ZERO,
            Err(_) | Ok(_) => undo.disarm(),
        }
        match &answer {
            Ok(Claimed::Unwritable { .. }) => self.refused(&self.leases),
            Ok(Claimed::Leased { .. }) => self.leases.works(),
            Ok(_) | Err(_) => {}
        }
        answer.ok()
    }

    pub(crate) async fn fill(&self, fill: Fill<'_>) -> Filled {
        let Ok(permit) = self.breaker.admit() else {
            return Filled::Refused;
        };
        let filled = self.settle("fill", permit, self.tier.fill(fill).await);
        match filled {
            Ok(Filled::Refused) => self.refused(&self.entries),
            Ok(Filled::Stored) => self.entries.works(),
            Ok(Filled::FencedOff) | Err(_) => {}
        }
        filled.unwrap_or(Filled::Refused)
    }

    /// # Errors
    ///
    /// Nobody knows whether the lease is still ours; its next fill will.
    pub(crate) async fn renew(&self, lease: &Lease) -> Result<Held, Outage> {
        let permit = self.breaker.admit().map_err(|_refused| Outage::broken())?;
        self.settle("renew", permit, self.tier.renew(lease).await)
    }

    /// # Errors
    ///
    /// The lease may still be there, until its time to live is over.
    pub(crate) async fn release(
        &self,
        lease: &Lease,
        release: Release<'_>,
    ) -> Result<Held, Outage> {
        let permit = self.breaker.admit().map_err(|_refused| Outage::broken())?;
        self.settle("release", permit, self.tier.release(lease, release).await)
    }

    /// Purges in the whole fleet. It is always tried: whoever asks wants to know. What comes back is
    /// how many processes have heeded it within `limit`, and how many there are.
    pub(crate) async fn purge(
        &self,
        purge: Purge,
        limit: Option<Duration>,
    ) -> Result<(usize, Option<usize>), Outage> {
        let answers = if limit.is_some() {
            // Heard by this process too, and so are the answers.
            self.tier.follow(&self.coherence);
            self.open(self.budget).await;
            Answers::Wanted
        } else {
            Answers::Unwanted
        };
        let told = self.tier.purge(purge, answers).await;
        // What this process has read since it was told, the tier may have answered before the purge.
        self.coherence.purged(purge);
        match told {
            Ok(told) => {
                let answered = told.answered(limit.unwrap_or_default()).await;
                Ok((answered, told.processes))
            }
            Err(outage) => {
                self.failed("purge", &outage);
                Err(outage)
            }
        }
    }

    /// Whether local entries may be served: other processes' purges reach us, or nobody is there
    /// to ask.
    pub(crate) fn trusts_local(&self) -> bool {
        self.coherence.is_proven() || self.breaker.standing() != Standing::Closed
    }

    /// Tells the breaker how an operation ended: a tier that refuses one is there all the same.
    fn settle<T>(
        &self,
        operation: &'static str,
        permit: Permit,
        outcome: Result<T, Outage>,
    ) -> Result<T, Outage> {
        match &outcome {
            Ok(_) => permit.succeeded(),
            Err(outage) => {
                self.failed(operation, outage);
                match outage.fault {
                    Fault::Unreachable => permit.failed(),
                    Fault::Refused => permit.succeeded(),
                }
            }
        }
        outcome
    }

    fn failed(&self, operation: &'static str, outage: &Outage) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let cause = &*outage.source;
        tracing::debug!(operation, error = cause, "the shared tier failed");
    }

    fn refused(&self, notice: &Notice) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        notice.refused();
    }
}
