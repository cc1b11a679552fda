//! The shared tier on Redis: one script for each step, each in one round trip.
//!
//! Claims go over one link, fills and large values over another, renewals, releases and purges over
//! a third, and events come in over a fourth, so that nothing small waits behind something large. In a
//! Cluster the first three are one to each node, and [`wakes`] come in over one from each master.

mod claims;
mod doubts;
mod endings;
mod events;
mod follow;
mod heeded;
mod names;
mod purge;
mod record;
mod shards;
mod wakes;

use std::{pin::Pin, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

pub(crate) use self::events::Secret;
use self::{events::Events, follow::Follow, names::Names, shards::Spread};
use super::{
    Answers, Claim, Claimed, Coherence, Effect, Fault, Fill, Filled, Held, Lease, Outage, Release,
    Tier,
    notice::Unusable,
    tier::{Answer, Told},
};
use crate::{
    cache::LinkHealth,
    entry::codec::Compression,
    link::{self, Call, Error, Route, Script, Server},
    purges::Purge,
    task,
};

/// A script with what all of them share before it.
macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("scripts/common.lua"),
            include_str!(concat!("scripts/", $name, ".lua"))
        ))
    };
}

static CLAIM: Script = script!("claim");
static FILL: Script = script!("fill");
static RENEW: Script = script!("renew");
static RELEASE: Script = script!("release");
static PURGE: Script = script!("purge");

/// Larger values do not go through a script: the server would stand still meanwhile.
const LARGEST_INLINE: usize = 64 * 1024;

/// What is off a request's path may take this long.
const FILL_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) lease_ttl: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) compression: Compression,
    pub(crate) event_secret: Option<Secret>,
}

/// A Redis that the workers share.
#[derive(Debug)]
pub(crate) struct RedisTier {
    names: Names,
    events: Arc<Events>,
    claims: Route,
    fills: Route,
    leases: Route,
    follow: Follow,
    unusable: Unusable,
    /// In a Cluster, purges take turns.
    purges: Semaphore,
    lease_ttl: Duration,
    realm: String,
    compression: Compression,
}

impl RedisTier {
    /// Never connects; the first claim does.
    pub(crate) fn new(server: impl Into<Server>, settings: Settings) -> Self {
        let server = server.into();
        let link = |name, command_timeout| {
            let connect_timeout = settings.command_timeout;
            Route::new(
                &server,
                link::Settings {
                    connect_timeout,
                    command_timeout,
                    name,
                },
            )
        };
        let spread = match server.cluster() {
            Some(_) => Spread::Sharded,
            None => Spread::Whole,
        };
        let realm = format!("{} {}", settings.namespace, server.address());
        let secret = settings.event_secret;
        let events = Arc::new(Events::new(settings.namespace.clone(), secret));
        let names = Names::new(settings.namespace, spread);
        let leases = link("leases", FILL_TIMEOUT);
        Self {
            claims: link("claims", settings.command_timeout),
            fills: link("fills", FILL_TIMEOUT),
            follow: Follow::new(
                server.clone(),
                settings.command_timeout,
                (names.clone(), Arc::clone(&events)),
                leases.clone(),
            ),
            events,
            leases,
            names,
            unusable: Unusable::default(),
            lease_ttl: settings.lease_ttl,
            realm,
            purges: Semaphore::new(purge::AT_ONCE),
            compression: settings.compression,
        }
    }
}

impl Tier for RedisTier {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Claimed> {
        Box::pin(async move { Ok(self.claim_once(claim).await?) })
    }

    fn fill<'a>(&'a self, fill: Fill<'a>) -> Answer<'a, Filled> {
        Box::pin(async move { Ok(self.fill_once(fill).await?) })
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Held> {
        let call = Call::new()
            .key(self.names.lease(&lease.place, lease.slot))
            .arg(lease.token.as_str())
            .arg(millis(lease.ttl));
        Box::pin(async move { Ok(held(self.leases.invoke(&RENEW, call).await?)) })
    }

    fn release<'a>(&'a self, lease: &'a Lease, release: Release<'a>) -> Answer<'a, Held> {
        Box::pin(async move { Ok(self.release_once(lease, &release).await?) })
    }

    fn purge(&self, purge: Purge, answers: Answers) -> Answer<'_, Told> {
        Box::pin(async move { Ok(self.purge_once(purge, answers).await?) })
    }

    fn prepare(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        for (link, script) in [(&self.fills, &FILL), (&self.leases, &RENEW)] {
            let link = link.clone();
            drop(task::spawn(async move { link.prepare(script).await }));
        }
        Box::pin(self.claims.prepare(&CLAIM))
    }

    fn follow(&self, coherence: &Arc<Coherence>) {
        self.follow.start(coherence);
    }

    fn health(&self) -> Vec<LinkHealth> {
        let links = [&self.claims, &self.fills, &self.leases];
        let events = self.follow.health();
        links
            .into_iter()
            .flat_map(Route::health)
            .chain([events])
            .map(LinkHealth::from)
            .collect()
    }

    fn unusable(&self) -> u64 {
        self.unusable.count()
    }

    fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    fn realm(&self) -> String {
        self.realm.clone()
    }
}

impl From<Error> for Outage {
    fn from(error: Error) -> Self {
        let effect = if error.outcome_unknown() {
            Effect::Unknown
        } else {
            Effect::None
        };
        let fault = match error.kind() {
            link::Kind::Garbled => Fault::Garbled,
            link::Kind::TimedOut => Fault::TimedOut,
            link::Kind::Lost => Fault::Lost,
            link::Kind::Refused if error.code() == Some("OOM") => Fault::OutOfMemory,
            link::Kind::Unavailable if error.is_partial() => Fault::Partial,
            link::Kind::Refused if error.code() == Some("TRYAGAIN") => Fault::Partial,
            link::Kind::Refused if !is_out_of_service(error.code()) => Fault::Refused,
            link::Kind::Unavailable if error.is_overload() => Fault::Overloaded,
            link::Kind::Refused | link::Kind::Unavailable => Fault::Unreachable,
        };
        Self {
            effect,
            fault,
            source: error.into(),
        }
    }
}

/// Whether a server that refuses a command with `code` refuses all of them for a while.
fn is_out_of_service(code: Option<&str>) -> bool {
    const CODES: [&str; 6] = [
        "LOADING",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "READONLY",
        "NOAUTH",
        "BUSY",
    ];
    code.is_some_and(|code| CODES.contains(&code))
}

fn held(reply: i64) -> Held {
    match reply {
        1 => Held::Ours,
        2 => Held::Outdone,
        _ => Held::Lost,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn positive(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests;
