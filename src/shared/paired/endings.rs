//! How a lease goes on or ends without an entry.

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    OFF_PATH, PairedTier,
    generations::{Generation, Ledger, Mark},
    locks::Hold,
    look::Look,
    records::Note,
};
use crate::{
    entry::{Entry, codec},
    key::Digest,
    shared::{Held, Lease, Outage, Release},
    store::Write,
};

/// A failure's body is shared up to this size.
const LARGEST_FAILURE: usize = 64 * 1024;

impl PairedTier {
    /// Prolongs a lease, unless a purge has come since its build began: then it is given up, and whoever
    /// comes now builds anew.
    pub(super) async fn renew_once(&self, lease: &Lease) -> Result<Held, Outage> {
        let Some(hold) = lease.hold.as_deref() else {
            return Ok(Held::Lost);
        };
        let deadline = Instant::now() + OFF_PATH;
        let extend = hold.extend(lease.ttl, deadline);
        let (extended, overtaken) = tokio::join!(extend, self.is_overtaken(hold, deadline));
        if overtaken {
            // Where nobody answers its time to live does it.
            drop(hold.release(deadline).await);
            return Ok(Held::Lost);
        }
        extended
    }

    /// As far as the store says.
    async fn is_overtaken(&self, hold: &Hold, deadline: Instant) -> bool {
        let carried = hold.carried();
        let marks: Vec<_> = carried.iter().map(|(mark, _)| *mark).collect();
        let mut ledger = Ledger::default();
        let read = self.stock.read(&marks, &mut ledger, deadline).await;
        read.is_ok() && ledger.contradicts(&carried)
    }

    pub(super) async fn release_once(
        &self,
        lease: &Lease,
        release: &Release<'_>,
    ) -> Result<Held, Outage> {
        // An attempt of unknown outcome is taken back by whoever made it.
        let Some(hold) = lease.hold.as_deref() else {
            return Ok(Held::Lost);
        };
        let told = if matches!(release, Release::Nothing | Release::Undo) {
            Held::Ours
        } else if hold.is_valid().await {
            self.tell(lease, release).await
        } else {
            Held::Lost
        };
        // After what there is to tell: whoever takes the lock next, or waits for it, finds that.
        match hold.release(Instant::now() + OFF_PATH).await? {
            Held::Ours => Ok(told),
            lost => Ok(lost),
        }
    }

    /// Tells those elsewhere how a build has ended; nothing beside the fresh entry of another one.
    pub(super) async fn tell(&self, lease: &Lease, release: &Release<'_>) -> Held {
        let Some(hold) = lease.hold.as_deref() else {
            return Held::Lost;
        };
        let deadline = Instant::now() + OFF_PATH;
        let is_outdone = async {
            let tags = hold.tags();
            let sight = self.look(&Look::beside(lease, &tags, deadline)).await;
            sight.is_ok_and(|sight| sight.entry.is_fresh && sight.entry.token != lease.renews)
        };
        let (key, response, period) = match *release {
            Release::Nothing | Release::Undo => return Held::Ours,
            Release::HitForMiss(period) => (self.names.marker(&lease.place), Bytes::new(), period),
            Release::Unshared(period) => {
                let key = self.names.failure(&lease.place, lease.slot);
                (key, Bytes::new(), period)
            }
            Release::Failed(period, failure) => {
                let key = self.names.failure(&lease.place, lease.slot);
                (key, told(failure), period)
            }
        };
        let is_unshared = matches!(release, Release::Unshared(_));
        if !is_unshared && is_outdone.await {
            return Held::Outdone;
        }
        let note = Note {
            number: lease.began.0,
            carried: hold.carried(),
            response,
        };
        // It stands for at least that long.
        let life = period + 2 * self.stock.resolution();
        let write = Write::new(key, note.encode(), life);
        if let Err(outage) = self.stock.put(&write, deadline).await {
            let error = &*outage.source;
            tracing::debug!(error, "how a build has ended could not be told");
        }
        Held::Ours
    }
}

impl Hold {
    /// What the build can be purged by, as it was before it began.
    fn carried(&self) -> Vec<(Mark, Generation)> {
        self.ground.ledger.carried()
    }

    fn tags(&self) -> Vec<Digest> {
        let carried = self.carried().into_iter();
        let tags = carried.filter_map(|(mark, _)| match mark {
            Mark::Tag(tag) => Some(tag),
            Mark::Any | Mark::All => None,
        });
        tags.collect()
    }
}

/// The failure's response, or only its status if it is large.
fn told(failure: &Entry) -> Bytes {
    let whole = codec::encode_response(failure);
    if whole.len() <= LARGEST_FAILURE {
        return whole.into();
    }
    codec::encode_response(&failure.bare()).into()
}
