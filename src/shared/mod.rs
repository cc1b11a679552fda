//! The shared tier: what the workers of a fleet have in common.
//!
//! A [`Tier`] elects who builds (a lease per key), keeps entries, and tells every process what
//! happened. The rest of the crate asks it through [`Shared`], which bounds the time that a request
//! spends on it and goes on without it when it fails.

mod breaker;
mod coherence;
mod counts;
mod notice;
mod outage;
pub(crate) mod paired;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(test)]
mod tests;
mod tier;
mod undo;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use self::{
    breaker::{Breaker, Permit, Standing},
    counts::Counts,
    notice::Notice,
    outage::Sign,
    undo::{Ending, Undo},
};
pub(crate) use self::{
    coherence::{Coherence, Watch},
    outage::{Effect, Fault, Outage},
    tier::{
        Answers, Claim, Claimed, Fill, Filled, Held, Lease, Marker, Place, Purpose, Release, Slot,
        TOLD, Tier,
    },
};
use crate::{
    cache::{LinkHealth, Stats},
    key::Digest,
    purges::Purge,
};

/// The shared tier as the rest of the crate sees it.
#[derive(Debug)]
pub(crate) struct Shared {
    tier: Arc<dyn Tier>,
    pub(crate) coherence: Arc<Coherence>,
    breaker: Breaker,
    counts: Counts,
    leases: Notice,
    entries: Notice,
    releases: Notice,
    budget: Duration,
    trust: Duration,
    giving_back: Arc<watch::Sender<usize>>,
    /// Whether somebody has begun to connect.
    opened: AtomicBool,
}

/// A lease is being given back; dropped, it is no more.
#[derive(Debug)]
pub(crate) struct GivingBack(Arc<watch::Sender<usize>>);

impl Drop for GivingBack {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
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
            counts: Counts::default(),
            leases: Notice::new("leases"),
            entries: Notice::new("entries"),
            releases: Notice::new("releases"),
            budget,
            trust: Duration::ZERO,
            giving_back: Arc::new(watch::Sender::new(0)),
            opened: AtomicBool::new(false),
        }
    }

    /// Gives `lease` back in the background.
    pub(crate) fn give_back(self: &Arc<Self>, lease: Arc<Lease>) {
        undo::in_background(Arc::clone(self), lease, Ending::Released);
    }

    /// Lets local entries be served for `period` after the tier has confirmed them.
    pub(crate) fn trusting(mut self, period: Duration) -> Self {
        self.trust = period;
        self
    }

    /// Notes that a lease is being given back in the background.
    fn giving_back(&self) -> GivingBack {
        self.giving_back.send_modify(|count| *count += 1);
        GivingBack(Arc::clone(&self.giving_back))
    }

    /// Waits until no lease is being given back in the background.
    pub(crate) async fn gave_all_back(&self) {
        let mut counts = self.giving_back.subscribe();
        // The sender lives as long as this does.
        drop(counts.wait_for(|count| *count == 0).await);
    }

    /// What one request may spend on it at most.
    pub(crate) fn longest(&self) -> Duration {
        self.budget
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget(self.budget)
    }

    /// `stats` with what has become of what the tier was asked.
    pub(crate) fn stats(&self, stats: Stats) -> Stats {
        self.counts.read(self.tier.unusable(), stats)
    }

    /// Notes that a lease was lost while its build was running.
    pub(crate) fn lost_lease(&self) {
        self.counts.lost_lease();
    }

    pub(crate) fn health(&self) -> Vec<LinkHealth> {
        self.tier.health()
    }

    pub(crate) fn lease_ttl(&self) -> Duration {
        self.tier.lease_ttl()
    }

    /// Whether both have the same leases.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.tier.realm() == other.tier.realm()
    }

    /// Registers for what happens to a resource, before it is claimed.
    pub(crate) fn watch(&self, resource: Digest) -> Watch {
        self.tier.follow(&self.coherence);
        self.coherence.watch(resource)
    }

    /// Does at once what the first claim would do and wait for.
    pub(crate) async fn connect(&self) {
        self.tier.follow(&self.coherence);
        self.open(self.budget).await;
    }

    /// Before a process asks for the first time: connects, and lets the events begin, both at once.
    /// One of those who ask connects; all wait for what comes of it.
    async fn open(&self, limit: Duration) {
        if self.coherence.has_heard() {
            return;
        }
        let connecting = async {
            let first = !self.opened.swap(true, Ordering::Relaxed);
            if first && !matches!(timeout(limit, self.tier.prepare()).await, Ok(true)) {
                self.coherence.expect_nothing();
            }
        };
        tokio::join!(self.coherence.first_heard(limit), connecting);
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
        let permit = self.admit()?;
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
        let answer = self.settle("claim", &self.leases, Some(permit), answer);
        match &answer {
            Err(outage) if outage.effect == Effect::Unknown => budget.0 = Duration::ZERO,
            Err(_) | Ok(_) => undo.disarm(),
        }
        match &answer {
            Ok(Claimed::Unwritable { .. }) => self.no_room(&self.leases),
            Ok(Claimed::Leased { .. }) => self.leases.works(),
            Ok(_) | Err(_) => {}
        }
        answer.ok()
    }

    pub(crate) async fn fill(&self, fill: Fill<'_>) -> Filled {
        let Some(permit) = self.admit() else {
            return Filled::Refused;
        };
        let filled = self.tier.fill(fill).await;
        let says_nothing = matches!(filled, Ok(filled) if filled != Filled::Stored);
        let permit = Some(permit).filter(|_| self.tier.has_leases() || !says_nothing);
        let filled = self.settle("fill", &self.entries, permit, filled);
        match filled {
            Ok(Filled::Refused) => self.no_room(&self.entries),
            Ok(Filled::Stored) => self.entries.works(),
            Ok(Filled::FencedOff) => self.counts.fenced(),
            Ok(Filled::Unfit) | Err(_) => {}
        }
        filled.unwrap_or(Filled::Refused)
    }

    /// # Errors
    ///
    /// Nobody knows whether the lease is still ours; its next fill will.
    pub(crate) async fn renew(&self, lease: &Lease) -> Result<Held, Outage> {
        let permit = self.breaker.admit().map_err(|_refused| Outage::broken())?;
        let held = self.tier.renew(lease).await;
        self.settle_held("renew", permit, held)
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
        let held = self.tier.release(lease, release).await;
        self.settle_held("release", permit, held)
    }

    fn settle_held(
        &self,
        operation: &'static str,
        permit: Permit,
        held: Result<Held, Outage>,
    ) -> Result<Held, Outage> {
        let held = self.settle(operation, &self.releases, self.of_lease(permit), held);
        if held.is_ok() {
            self.releases.works();
        }
        held
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
            self.connect().await;
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

    /// Whether leases are to be had, as far as is known.
    pub(crate) fn elects(&self) -> bool {
        self.breaker.standing() == Standing::Closed
    }

    /// The right to ask, unless the tier has failed too often just before.
    fn admit(&self) -> Option<Permit> {
        let admitted = self.breaker.admit().ok();
        if admitted.is_none() {
            self.counts.skipped();
        }
        admitted
    }

    /// Whether a local entry may be served that the tier has confirmed, or was told, at `confirmed`.
    pub(crate) fn trusts(&self, confirmed: Instant, now: Instant) -> bool {
        self.trusts_local() || now.saturating_duration_since(confirmed) < self.trust
    }

    /// What becomes of a lease says nothing of a tier that has none.
    fn of_lease(&self, permit: Permit) -> Option<Permit> {
        Some(permit).filter(|_| self.tier.has_leases())
    }

    /// Tells the breaker how an operation ended: a tier that refuses one is there all the same. Without a permit
    /// it is not told.
    fn settle<T>(
        &self,
        operation: &'static str,
        notice: &Notice,
        permit: Option<Permit>,
        outcome: Result<T, Outage>,
    ) -> Result<T, Outage> {
        if let Err(outage) = &outcome {
            self.failed(operation, outage);
            if outage.fault.sign() == Sign::There {
                notice.refused(outage.reason());
            }
        }
        if let Some(permit) = permit {
            match &outcome {
                Ok(_) => permit.succeeded(),
                Err(outage) => outage.tell(permit),
            }
        }
        outcome
    }

    fn failed(&self, operation: &'static str, outage: &Outage) {
        self.counts.failed(outage.fault);
        let cause = &*outage.source;
        tracing::debug!(operation, error = cause, "the shared tier failed");
    }

    /// The tier is there, and could not write what it was to.
    fn no_room(&self, notice: &Notice) {
        self.counts.failed(Fault::OutOfMemory);
        notice.refused("it has no room");
    }
}
