//! Giving back what nobody here needs any more, until the tier has heard of it: a lease, or a claim of unknown
//! outcome, which may have taken effect, or may do so later.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{Claim, Lease, Purpose, Release, Shared};
use crate::{task, time::TierTime};

/// A server that stands still does what it was sent before when it goes on, although that connection is
/// closed by then. For so long it is worth being told that nobody wants it any more.
const UNDERWAY: Duration = Duration::from_secs(600);

/// A connection that was cut is there again by then, as a rule.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Dropped armed, it undoes the claim in the background.
#[derive(Debug)]
pub(super) struct Undo(Option<(Arc<Shared>, Lease)>);

impl Undo {
    pub(super) fn of(shared: &Arc<Shared>, claim: &Claim) -> Self {
        if claim.purpose == Purpose::Look || !shared.tier.has_leases() {
            return Self(None);
        }
        let lease = Lease {
            place: claim.place,
            slot: claim.slot,
            token: claim.token.clone(),
            renews: None,
            began: TierTime::default(),
            ttl: claim.lease_ttl,
            hold: None,
        };
        Self(Some((Arc::clone(shared), lease)))
    }

    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some((shared, lease)) = self.0.take() {
            in_background(shared, Arc::new(lease), Ending::Undone);
        }
    }
}

/// How a lease is given back by one who is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Released,
    /// It may not even have been granted yet.
    Undone,
}

impl Ending {
    fn release(self) -> Release<'static> {
        match self {
            Self::Released => Release::Nothing,
            Self::Undone => Release::Undo,
        }
    }

    /// After that it has come to an end by itself.
    fn limit(self, lease: &Lease) -> Duration {
        match self {
            Self::Released => lease.ttl,
            Self::Undone => UNDERWAY,
        }
    }
}

/// Without a runtime the lease's time to live does it.
pub(super) fn in_background(shared: Arc<Shared>, lease: Arc<Lease>, ending: Ending) {
    let giving_back = shared.giving_back();
    drop(task::spawn(async move {
        let _until_then = giving_back;
        give_back(&shared, &lease, ending).await;
    }));
}

/// Tries until the tier has answered. The breaker bounds how many of these there are.
async fn give_back(shared: &Shared, lease: &Lease, ending: Ending) {
    let end = Instant::now() + ending.limit(lease);
    let mut pause = FIRST_PAUSE;
    while let Err(outage) = shared.release(lease, ending.release()).await {
        if outage.fault.is_final() || Instant::now() >= end {
            return;
        }
        sleep(pause.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
