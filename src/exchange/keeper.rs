//! Keeps a lease alive while its build runs, and gives it back in any case.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{task::AbortHandle, time::sleep};

use crate::{
    entry::Entry,
    flight::Flight,
    shared::{Fill, Filled, Held, Lease, Place, Release, Shared},
    task,
};

/// A lease that is renewed until it is settled; dropped unsettled, it is released.
#[derive(Debug)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    lease: Arc<Lease>,
    lost: Arc<AtomicBool>,
    renewal: Option<AbortHandle>,
    duty: Duty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    Release,
    Settled,
}

impl Keeper {
    /// Renews `lease` at a third of its time to live. When it is lost, `flight` takes no newcomers
    /// any more, and nothing will be stored.
    pub(super) fn new(shared: Arc<Shared>, lease: Lease, flight: Arc<Flight>) -> Self {
        let lease = Arc::new(lease);
        let lost = Arc::new(AtomicBool::new(false));
        let renewing = {
            let (shared, lease, lost) =
                (Arc::clone(&shared), Arc::clone(&lease), Arc::clone(&lost));
            async move {
                renew_until_lost(&shared, &lease).await;
                lost.store(true, Ordering::Relaxed);
                shared.lost_lease();
                flight.seal();
                tracing::warn!(key = %lease.place.resource, "a lease was lost while its build was running");
            }
        };
        let renewal = task::spawn(renewing).map(|task| task.abort_handle());
        Self {
            shared,
            lease,
            lost,
            renewal,
            duty: Duty::Release,
        }
    }

    /// Stores the entry, if the lease is still ours.
    pub(super) async fn fill(mut self, place: Place, entry: &Entry) -> Filled {
        self.stop();
        if self.is_lost() {
            self.duty = Duty::Settled;
            return Filled::FencedOff;
        }
        let fill = Fill {
            lease: &self.lease,
            place,
            entry,
        };
        // Boxed: off the requests' path, and every flight's future would be as large.
        let filled = Box::pin(self.shared.fill(fill)).await;
        // A fill of unknown outcome may have left the lease behind: the drop releases it.
        if filled != Filled::Refused {
            self.duty = Duty::Settled;
        }
        filled
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Whether it is known to be lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Gives the lease back. A tier that does not answer has given it to nobody else that we know of.
    pub(super) async fn release(mut self, release: Release<'_>) -> Held {
        self.stop();
        if self.is_lost() {
            self.duty = Duty::Settled;
            return Held::Lost;
        }
        match self.shared.release(&self.lease, release).await {
            Ok(held) => {
                self.duty = Duty::Settled;
                if held == Held::Lost {
                    self.shared.lost_lease();
                }
                held
            }
            Err(_unknown) => Held::Ours,
        }
    }

    fn stop(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
        if self.duty == Duty::Release {
            self.shared.give_back(Arc::clone(&self.lease));
        }
    }
}

/// Comes back when the lease is not ours any more.
///
/// A tier that does not answer has not given it to anybody else that we know of: the fill will tell.
async fn renew_until_lost(tier: &Shared, lease: &Lease) {
    let pause = lease.ttl / 3;
    loop {
        sleep(pause).await;
        if let Ok(Held::Lost) = tier.renew(lease).await {
            return;
        }
    }
}
