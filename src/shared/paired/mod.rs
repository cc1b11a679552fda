//! The shared tier made of a store and of locks, whichever they are.
//!
//! ```text
//! claim    get ─► fresh: that is all        otherwise: lock ─► get again ─► build
//! renew    extend the lock  and  get: has anything been purged?
//! fill     put, if what was seen is still there ─► get: has anything been purged?  ─► unlock
//! release  put a note beside the entry ─► unlock
//! purge    put another generation
//! ```
//!
//! There are no scripts, and so no step is all or nothing: what a purge reaches is decided by whoever reads
//! ([`generations`]), what is newer by the numbers of the builds, and of two writes one by the store's own
//! condition. There are no events either: a local entry is served only once the store has confirmed it.

mod claims;
mod endings;
mod fill;
mod gauge;
mod generations;
mod locks;
mod look;
mod names;
mod purging;
mod records;
mod stock;
mod wakes;

use std::{
    pin::Pin,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

pub(crate) use self::{locks::Hold, look::Kept};
use self::{locks::Locks, names::Names, stock::Stock, wakes::Wakes};
use super::{
    Answers, Claim, Claimed, Coherence, Fill, Filled, Held, Lease, Release, Tier,
    tier::{Answer, Told},
};
use crate::{
    cache::LinkHealth, entry::codec::Compression, lock::LockManager, purges::Purge, store::Store,
};

/// What is off a request's path may take this long, each time that something is asked.
const OFF_PATH: Duration = Duration::from_secs(1);

/// A store that the workers share, and the locks by which one of them builds.
#[derive(Debug)]
pub(crate) struct PairedTier {
    names: Names,
    stock: Stock,
    locks: Locks,
    wakes: Wakes,
    lease_ttl: Duration,
    compression: Compression,
    told_too_large: AtomicBool,
}

impl PairedTier {
    /// Connects to nothing; the first claim does.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        locks: LockManager,
        namespace: String,
        (lease_ttl, compression): (Duration, Compression),
    ) -> Self {
        let names = Names::new(namespace);
        Self {
            stock: Stock::new(store, names.clone()),
            names,
            locks: Locks::new(locks),
            wakes: Wakes::default(),
            lease_ttl,
            compression,
            told_too_large: AtomicBool::new(false),
        }
    }
}

impl Tier for PairedTier {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Claimed> {
        Box::pin(self.claim_once(claim))
    }

    fn fill<'a>(&'a self, fill: Fill<'a>) -> Answer<'a, Filled> {
        Box::pin(self.fill_once(fill))
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Held> {
        Box::pin(self.renew_once(lease))
    }

    fn release<'a>(&'a self, lease: &'a Lease, release: Release<'a>) -> Answer<'a, Held> {
        Box::pin(async move { self.release_once(lease, &release).await })
    }

    fn purge(&self, purge: Purge, _nobody_answers: Answers) -> Answer<'_, Told> {
        Box::pin(self.purge_once(purge))
    }

    fn prepare(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async { true })
    }

    /// There are no events to wait for, and local entries are never proven.
    fn follow(&self, coherence: &Arc<Coherence>) {
        coherence.expect_nothing();
        self.wakes.follow(coherence);
    }

    fn health(&self) -> Vec<LinkHealth> {
        vec![self.stock.health(), self.locks.health()]
    }

    fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    /// They are locks, which may be had while the store is gone.
    fn has_leases(&self) -> bool {
        false
    }

    fn realm(&self) -> String {
        self.names.namespace().to_owned()
    }
}
