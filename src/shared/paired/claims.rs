//! Claims: look, take the lock, and look again.

use std::{sync::Arc, time::Duration};

use super::{
    PairedTier,
    generations::Ledger,
    locks::{Grip, Hold, Taken},
    look::{Look, Seen, Sight, Value},
};
use crate::{
    entry::{Entry, codec},
    shared::{Claim, Claimed, Lease, Marker, Outage, Purpose},
    store::Condition,
    time::TierTime,
};

/// What a build has seen before it began.
#[derive(Debug)]
pub(super) struct Ground {
    /// On this condition its entry is written.
    pub(super) condition: Condition,
    pub(super) ledger: Ledger,
    /// What is marked beside the key, and cleared by what is stored.
    pub(super) marker: Marker,
}

impl PairedTier {
    pub(super) async fn claim_once(&self, claim: &Claim) -> Result<Claimed, Outage> {
        let sight = self.look(&Look::of(claim)).await?;
        if let Some(settled) = sight.settles(claim) {
            return Ok(settled);
        }
        let name = self.names.lock(&claim.place, claim.slot);
        match self
            .locks
            .take(&name, claim.lease_ttl, claim.deadline)
            .await
        {
            Taken::Held(grip) => self.look_again(claim, grip).await,
            Taken::Busy(left) => {
                self.wakes
                    .listen(claim.place.resource, self.locks.named(&name));
                Ok(sight.busy(left))
            }
            // Every process builds once, then, and what it builds is stored all the same.
            Taken::None => self.lease(claim, sight, None).await,
        }
    }

    /// What was stored or told between the look and the lock is found now. (Dropped, the lock is given back.)
    async fn look_again(&self, claim: &Claim, grip: Grip) -> Result<Claimed, Outage> {
        let sight = self.look(&Look::of(claim)).await?;
        match sight.found(claim).or_else(|| sight.failed(claim)) {
            Some(found) => Ok(found),
            None => self.lease(claim, sight, Some(grip)).await,
        }
    }

    async fn lease(
        &self,
        claim: &Claim,
        mut sight: Sight,
        grip: Option<Grip>,
    ) -> Result<Claimed, Outage> {
        self.stock
            .complete(&mut sight.ledger, claim.deadline)
            .await?;
        let failed = sight.failure.as_ref().map_or(0, |note| note.number);
        let number = self
            .locks
            .number(grip.as_ref(), sight.entry.number.max(failed));
        let marker = sight.marker;
        let hold = Hold {
            grip,
            ground: Ground {
                condition: sight.entry.condition,
                ledger: sight.ledger,
                marker,
            },
        };
        let lease = Lease {
            place: claim.place,
            slot: claim.slot,
            token: claim.token.clone(),
            renews: sight.entry.token.clone(),
            began: TierTime(number),
            ttl: claim.lease_ttl,
            hold: Some(Arc::new(hold)),
        };
        Ok(Claimed::Leased {
            lease,
            stale: sight.entry.into_entry(),
            marker,
        })
    }
}

impl Sight {
    /// The answer that needs no lock, if there is one.
    fn settles(&self, claim: &Claim) -> Option<Claimed> {
        self.found(claim)
            .or_else(|| self.failed(claim))
            .or_else(|| {
                (claim.purpose == Purpose::Look).then(|| Claimed::Absent {
                    stale: self.entry.stale(),
                })
            })
    }

    /// What is fresh, and not what the caller wants to have renewed.
    fn found(&self, claim: &Claim) -> Option<Claimed> {
        let renews = claim.purpose == Purpose::Refresh
            && claim.have.as_ref().is_some_and(|have| {
                let token = have.token.get();
                token.is_some() && token == self.entry.token.as_ref()
            });
        if !self.entry.is_fresh || renews {
            return None;
        }
        match &self.entry.value {
            Value::Entry(entry) => Some(Claimed::Fresh(Arc::clone(entry))),
            Value::Variants(fields) => Some(Claimed::Varies(Arc::clone(fields))),
            Value::None => None,
        }
    }

    /// How the build ended that the caller has waited for, or a later one.
    fn failed(&self, claim: &Claim) -> Option<Claimed> {
        let TierTime(awaited) = claim.awaited?;
        let note = self.failure.as_ref()?;
        if note.number < awaited {
            return None;
        }
        let stale = self.entry.stale();
        if note.response.is_empty() {
            return Some(Claimed::Absent { stale });
        }
        let failure = codec::decode_response(&note.response, claim.began)?;
        Some(Claimed::Failed {
            failure: Arc::new(failure),
            stale,
        })
    }

    /// Of the builds that are numbered from here on, the caller waits for the first that ends.
    fn busy(self, left: Duration) -> Claimed {
        let known = self.failure.as_ref().map_or(0, |note| note.number);
        Claimed::Busy {
            since: TierTime(known + 1),
            left,
            marker: self.marker,
            stale: self.entry.into_entry(),
        }
    }
}

impl Seen {
    fn stale(&self) -> Option<Arc<Entry>> {
        match &self.value {
            Value::Entry(entry) => Some(Arc::clone(entry)),
            Value::None | Value::Variants(_) => None,
        }
    }
}
