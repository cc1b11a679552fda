//! The shared tier: what the workers of a fleet have in common.
//!
//! A [`Tier`] elects who builds (a lease per key), keeps entries, and tells every process what
//! happened. The rest of the crate asks it through [`Shared`], which bounds the time that a request
//! spends on it and goes on without it when it fails.

mod coherence;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

pub(crate) use self::coherence::{Coherence, Watch};
use crate::{
    body::BoxError,
    cache::LinkHealth,
    entry::{Entry, Fields},
    key::Digest,
    purges::Moment,
    task,
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
    pub(crate) began: Moment,
    /// The time the tier has for its answer.
    pub(crate) deadline: Instant,
}

/// What a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Answer a request, or build.
    Serve,
    /// The same, after having waited for another process's build: its failure counts.
    ServeAfterWait,
    /// Only look.
    Look,
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
    /// Another process builds; its lease lasts this much longer unless it is renewed.
    Busy {
        left: Duration,
        stale: Option<Arc<Entry>>,
        marker: Marker,
    },
    /// The build that was waited for failed.
    Failed(Arc<Entry>),
    /// There is nothing, and a look was all that was asked for.
    Absent,
}

/// Whether the last response was for its own request alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    None,
    HitForMiss,
}

/// The right to build, for as long as it is renewed.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) place: Place,
    pub(crate) slot: Slot,
    pub(crate) token: Token,
    /// When it was granted, by the tier's own clock: what was purged later fences the fill.
    pub(crate) began: u64,
    /// Until when it is ours for sure, counted from the moment of asking.
    pub(crate) valid_until: Instant,
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
    /// Nobody need wait for the next one.
    HitForMiss(Duration),
    /// Those who wait elsewhere share the failure.
    Failed(Duration, &'a Entry),
    /// A claim whose answer never came: it may still run, and must not take effect then.
    Undo,
}

/// What is certain of a time to live, whatever the two clocks' drift.
pub(crate) fn safely(ttl: Duration) -> Duration {
    let drift = ttl / 100 + Duration::from_millis(2);
    ttl.saturating_sub(drift)
}

/// Whether a lease was still ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Ours,
    Lost,
}

/// A failure of the tier. `Display` never shows a key or a value.
#[derive(Debug)]
pub(crate) struct Outage {
    /// Whether what was asked may have taken effect, or may do so later.
    pub(crate) effect: Effect,
    pub(crate) source: BoxError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    Unknown,
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the shared tier failed")
    }
}

impl std::error::Error for Outage {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Outage>> + Send + 'a>>;

/// What a shared tier does. Everything is idempotent for its token.
pub(crate) trait Tier: fmt::Debug + Send + Sync {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Claimed>;
    fn fill<'a>(&'a self, fill: Fill<'a>) -> Answer<'a, Filled>;
    fn renew<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Held>;
    fn release<'a>(&'a self, lease: &'a Lease, release: Release<'a>) -> Answer<'a, Held>;
    /// Purges all that carries `tag`.
    fn purge(&self, tag: Digest) -> Answer<'_, ()>;
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
    failing: AtomicBool,
    failures: AtomicU64,
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
            failing: AtomicBool::new(false),
            failures: AtomicU64::new(0),
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
        let sent = Instant::now();
        claim.deadline = sent + budget.0;
        let undo = Undo::of(self, &claim);
        let answer = match tokio::time::timeout(budget.0, self.tier.claim(&claim)).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(Outage {
                effect: Effect::Unknown,
                source: elapsed.into(),
            }),
        };
        budget.0 = budget.0.saturating_sub(sent.elapsed());
        match answer {
            Ok(claimed) => {
                undo.disarm();
                self.works();
                Some(claimed)
            }
            Err(outage) => {
                if outage.effect == Effect::None {
                    undo.disarm();
                }
                budget.0 = Duration::ZERO;
                self.failed("claim", &outage);
                None
            }
        }
    }

    pub(crate) async fn fill(&self, fill: Fill<'_>) -> Filled {
        match self.tier.fill(fill).await {
            Ok(filled) => {
                self.works();
                if filled == Filled::Refused {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                }
                filled
            }
            Err(outage) => {
                self.failed("fill", &outage);
                Filled::Refused
            }
        }
    }

    pub(crate) async fn renew(&self, lease: &Lease) -> Result<Held, Outage> {
        let renewed = self.tier.renew(lease).await;
        match &renewed {
            Ok(_) => self.works(),
            Err(outage) => self.failed("renew", outage),
        }
        renewed
    }

    pub(crate) async fn release(&self, lease: &Lease, release: Release<'_>) {
        match self.tier.release(lease, release).await {
            Ok(Held::Ours) => self.works(),
            Ok(Held::Lost) => {
                tracing::debug!(key = %lease.place.resource, "the lease was lost before its release");
            }
            Err(outage) => self.failed("release", &outage),
        }
    }

    /// Purges `tag` in the whole fleet.
    pub(crate) async fn purge(&self, tag: Digest) -> Result<(), Outage> {
        let purged = self.tier.purge(tag).await;
        match &purged {
            Ok(()) => self.works(),
            Err(outage) => self.failed("purge", outage),
        }
        purged
    }

    /// Whether local entries may be served: other processes' purges reach us, or nobody is there
    /// to ask.
    pub(crate) fn trusts_local(&self) -> bool {
        self.coherence.is_proven() || self.failing.load(Ordering::Relaxed)
    }

    fn works(&self) {
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the shared tier works again");
        }
    }

    fn failed(&self, operation: &'static str, outage: &Outage) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let cause = &*outage.source;
        if self.failing.swap(true, Ordering::Relaxed) {
            tracing::debug!(operation, error = cause, "the shared tier failed again");
        } else {
            tracing::warn!(
                operation,
                error = cause,
                "the shared tier failed: going on without it"
            );
        }
    }
}

/// Undoes a claim of unknown outcome: it may have taken effect, or may do so later.
#[derive(Debug)]
struct Undo(Option<(Arc<Shared>, Lease)>);

impl Undo {
    fn of(shared: &Arc<Shared>, claim: &Claim) -> Self {
        if claim.purpose == Purpose::Look {
            return Self(None);
        }
        let lease = Lease {
            place: claim.place,
            slot: claim.slot,
            token: claim.token.clone(),
            began: 0,
            valid_until: Instant::now(),
        };
        Self(Some((Arc::clone(shared), lease)))
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some((shared, lease)) = self.0.take() {
            // Without a runtime the lease's TTL does it.
            drop(task::spawn(async move {
                shared.release(&lease, Release::Undo).await;
            }));
        }
    }
}
