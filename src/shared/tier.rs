//! What a shared tier does, and the words in which it is asked and answers.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{Coherence, Outage, paired::Hold};
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
    /// One of those, numbered from 1, for the extra builds of those whose wait timed out.
    Extra(u8),
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
    /// The entry that was there when it was granted. A fresh one that is not this is of another build.
    pub(crate) renews: Option<Token>,
    /// When it was granted: what was purged later fences the fill.
    pub(crate) began: TierTime,
    /// How long it lasts without renewal.
    pub(crate) ttl: Duration,
    /// What a tier without scripts holds by it; where the last copy is dropped, it is given back.
    pub(crate) hold: Option<Arc<Hold>>,
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
    /// The lease is released; the tier keeps no entry of this size, or so short a life.
    Unfit,
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
    /// It was ours, and another build has left a fresh entry all the same.
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
    pub(super) async fn answered(&self, limit: Duration) -> usize {
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
    /// Connects for the claims to come, and in the background for what follows them; says whether
    /// anybody is there.
    fn prepare(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
    /// Starts telling `coherence` what other processes do, once.
    fn follow(&self, coherence: &Arc<Coherence>);
    /// How its connections are.
    fn health(&self) -> Vec<LinkHealth>;
    /// How many entries could not be read, or belonged to other keys.
    fn unusable(&self) -> u64 {
        0
    }
    /// How long a lease lasts without renewal.
    fn lease_ttl(&self) -> Duration;
    /// Whether it keeps the leases itself, so that whatever becomes of one says that it is there. Else a lease is
    /// something of its own, and undone by whoever holds it.
    fn has_leases(&self) -> bool {
        true
    }
    /// What tells its leases from those of other tiers, as far as is known without asking.
    fn realm(&self) -> String;
}
