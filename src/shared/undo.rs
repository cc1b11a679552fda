//! Undoing a claim of unknown outcome: it may have taken effect, or may do so later.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{Claim, Lease, Purpose, Release, Shared};
use crate::{task, time::TierTime};

/// A claim that no answer has come to in so long is not on its way any more.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(500);

/// Dropped armed, it undoes the claim in the background.
#[derive(Debug)]
pub(super) struct Undo(Option<(Arc<Shared>, Lease)>);

impl Undo {
    pub(super) fn of(shared: &Arc<Shared>, claim: &Claim) -> Self {
        if claim.purpose == Purpose::Look {
            return Self(None);
        }
        let lease = Lease {
            place: claim.place,
            slot: claim.slot,
            token: claim.token.clone(),
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
            // Without a runtime the lease's TTL does it.
            drop(task::spawn(undo(shared, lease)));
        }
    }
}

/// Tries until the tier has answered. The breaker bounds how many of these there are.
async fn undo(shared: Arc<Shared>, lease: Lease) {
    for _ in 0..ATTEMPTS {
        if shared.release(&lease, Release::Undo).await.is_ok() {
            return;
        }
        sleep(PAUSE.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
    }
}
