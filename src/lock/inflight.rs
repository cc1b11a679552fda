//! An attempt whose answer is not there yet: if it never comes, the attempt is taken back.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    backend::{Claim, Lock},
    manager::first,
    retry::backoff,
};
use crate::task;

/// For so long an attempt of unknown outcome is tried to be taken back; a late one may still run
/// as long as its socket lives.
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Takes its attempt back when dropped, unless it was [settled](Self::settle).
#[derive(Debug)]
pub(super) struct InFlight {
    owed: Option<(Arc<dyn Lock>, Claim)>,
}

impl InFlight {
    pub(super) fn new(backend: &Arc<dyn Lock>, claim: &Claim) -> Self {
        Self {
            owed: Some((Arc::clone(backend), claim.clone())),
        }
    }

    /// The outcome is known: nothing needs to be taken back.
    pub(super) fn settle(mut self) {
        self.owed = None;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some((backend, claim)) = self.owed.take() else {
            return;
        };
        if task::spawn(withdraw(backend, claim)).is_none() {
            tracing::debug!(
                "no runtime is left to take back an attempt to lock; its time to live ends it"
            );
        }
    }
}

async fn withdraw(backend: Arc<dyn Lock>, claim: Claim) {
    let end = Instant::now() + PATIENCE;
    let mut failed = 0;
    while let Err(error) = backend.withdraw(&claim).await {
        failed += 1;
        if !error.is_transient() && !error.outcome_unknown() || Instant::now() >= end {
            tracing::warn!(
                key = %first(&claim),
                holder = claim.token().fingerprint(),
                %error,
                "an attempt of unknown outcome could not be taken back; its time to live ends it"
            );
            return;
        }
        sleep(backoff(failed, PAUSE.0, PAUSE.1)).await;
    }
}
