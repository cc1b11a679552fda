//! The shared tier on Redis: one script for each step, each in one round trip.
//!
//! Claims go over one link, fills and large values over another, renewals, releases and purges over
//! a third, and events come in over a fourth, so that nothing small waits behind something large.

mod follow;
mod names;

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use redis::Client;
use tokio::time::Instant;

use self::{follow::Follow, names::Names};
use super::{
    Answer, Claim, Claimed, Coherence, Effect, Fault, Fill, Filled, Held, Lease, Marker, Outage,
    Purpose, Release, Slot, Tier, TierTime,
};
use crate::{
    cache::LinkHealth,
    entry::{
        Entry, Fields,
        codec::{self, Asked, Decoded, Kind, Label},
    },
    key::Digest,
    link::{self, Call, Error, Link, Script},
    token::Token,
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

/// Where a value has the token of the lease it was built under.
const TOKEN: Range<usize> = 5..37;

/// No entry is kept longer.
const LONGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// So many purged tags are remembered.
const REMEMBERED_TAGS: usize = 100_000;

/// For how long a claim that was given up may still arrive at the server.
const TOMBSTONE: Duration = Duration::from_secs(60);

/// What is off a request's path may take this long.
const FILL_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) lease_ttl: Duration,
    pub(crate) command_timeout: Duration,
}

/// A Redis that the workers share.
#[derive(Debug)]
pub(crate) struct RedisTier {
    names: Names,
    claims: Link,
    fills: Link,
    leases: Link,
    follow: Follow,
    lease_ttl: Duration,
}

impl RedisTier {
    /// Never connects; the first claim does.
    pub(crate) fn new(client: &Client, settings: Settings) -> Self {
        let link = |name, command_timeout| {
            let connect_timeout = settings.command_timeout;
            Link::new(
                client,
                link::Settings {
                    connect_timeout,
                    command_timeout,
                    name,
                },
            )
        };
        let names = Names::new(settings.namespace);
        Self {
            claims: link("claims", settings.command_timeout),
            fills: link("fills", FILL_TIMEOUT),
            leases: link("leases", FILL_TIMEOUT),
            follow: Follow::new(client, settings.command_timeout, names.channel()),
            names,
            lease_ttl: settings.lease_ttl,
        }
    }

    async fn ask(
        &self,
        claim: &Claim,
        awaited: Option<TierTime>,
        reject: &[u8],
    ) -> Result<Reply, Error> {
        let purpose = match claim.purpose {
            Purpose::Serve => "serve",
            Purpose::Look => "look",
        };
        let have = claim.have.as_ref().and_then(|entry| entry.token.get());
        let call = Call::new()
            .key(self.names.entry(&claim.place))
            .key(self.names.lease(&claim.place, claim.slot))
            .key(self.names.marker(&claim.place))
            .key(self.names.tags())
            .key(self.names.tombstone(&claim.place, &claim.token))
            .key(self.names.failure(&claim.place, claim.slot))
            .arg(claim.token.as_str())
            .arg(millis(self.lease_ttl))
            .arg(claim.place.proof.as_slice())
            .arg(have.map_or("", Token::as_str))
            .arg(reject)
            .arg(purpose)
            .arg(LARGEST_INLINE)
            .arg(awaited.unwrap_or_default().0)
            .arg(claim.place.tag.to_string());
        let sent = Instant::now();
        let (state, since, left, value, lease_left, marker_left, failure) =
            self.claims.invoke_by(&CLAIM, call, claim.deadline).await?;
        let (state, since): (String, String) = (state, since);
        let (value, failure): (Vec<u8>, Vec<u8>) = (value, failure);
        let marker_left = positive(marker_left);
        Ok(Reply {
            state,
            sent,
            since: TierTime(since.parse().unwrap_or(0)),
            left: positive(left),
            value: value.into(),
            lease_left: positive(lease_left),
            marker: if marker_left.is_zero() {
                Marker::None
            } else {
                Marker::HitForMiss(marker_left)
            },
            failure: failure.into(),
        })
    }

    /// The value of a reply: as it came, the one the caller has, or a large one, read now.
    async fn value(&self, claim: &Claim, reply: &Reply) -> Result<Value, Error> {
        if reply.value.is_empty() {
            return Ok(Value::None);
        }
        let Some((label, _tags, end)) = Label::read(&reply.value) else {
            return Ok(Value::Unusable);
        };
        let asked = Asked {
            sent: reply.sent,
            left: reply.left,
            began: claim.began,
        };
        let held = claim
            .have
            .as_ref()
            .filter(|held| held.token.get() == Some(&label.token));
        let whole = if let Some(held) = held {
            return Ok(Value::Entry(Arc::new(codec::renew(held, &label, asked))));
        } else if reply.value.len() > end || label.kind == Kind::Variants {
            reply.value.clone()
        } else {
            let get = redis::cmd("GET")
                .arg(self.names.entry(&claim.place))
                .clone();
            let value: Vec<u8> = self.fills.query_by(&get, claim.deadline).await?;
            match Label::read(&value) {
                Some((read, ..)) if read.token == label.token => value.into(),
                // It was replaced between the two reads: as if it had never been there.
                _ => return Ok(Value::Unusable),
            }
        };
        Ok(match codec::decode(&whole, asked) {
            Some(Decoded::Entry(entry)) => Value::Entry(entry),
            Some(Decoded::Variants(fields)) => Value::Variants(fields),
            None => Value::Unusable,
        })
    }

    async fn claim_once(&self, claim: &Claim) -> Result<Claimed, Error> {
        let mut reply = self.ask(claim, claim.awaited, &[]).await?;
        let mut failure = codec::decode_response(&reply.failure, claim.began);
        if reply.state == "failed" && failure.is_none() {
            reply = self.ask(claim, None, &[]).await?;
        }
        let mut value = self.value_or_lease(claim, &reply).await?;
        if matches!(value, Value::Unusable) {
            tracing::warn!(key = %claim.place.resource, "an entry of the shared tier is no use: a miss");
            let reject = reply.value.get(TOKEN).unwrap_or_default().to_vec();
            reply = self.ask(claim, claim.awaited, &reject).await?;
            failure = codec::decode_response(&reply.failure, claim.began);
            value = self.value_or_lease(claim, &reply).await?;
        }
        Ok(Self::conclude(claim, &reply, value, failure))
    }

    /// The value of a reply. A lease is worth more than the stale entry that comes with it.
    async fn value_or_lease(&self, claim: &Claim, reply: &Reply) -> Result<Value, Error> {
        match self.value(claim, reply).await {
            Err(_) if reply.state == "leased" => Ok(Value::None),
            value => value,
        }
    }

    fn conclude(claim: &Claim, reply: &Reply, value: Value, failure: Option<Entry>) -> Claimed {
        let marker = reply.marker;
        let (stale, fields) = match value {
            Value::Entry(entry) => (Some(entry), None),
            Value::Variants(fields) => (None, Some(fields)),
            Value::None | Value::Unusable => (None, None),
        };
        match (reply.state.as_str(), stale, fields) {
            ("fresh", Some(entry), _) => Claimed::Fresh(entry),
            ("fresh", _, Some(fields)) => Claimed::Varies(fields),
            ("leased", stale, _) => {
                let lease = Lease {
                    place: claim.place,
                    slot: claim.slot,
                    token: claim.token.clone(),
                    began: reply.since,
                };
                Claimed::Leased {
                    lease,
                    stale,
                    marker,
                }
            }
            ("busy", stale, _) => Claimed::Busy {
                since: reply.since,
                left: reply.lease_left,
                stale,
                marker,
            },
            ("failed", stale, _) => match failure {
                Some(failure) => Claimed::Failed {
                    failure: Arc::new(failure),
                    stale,
                },
                None => Claimed::Absent { stale },
            },
            ("unwritable", stale, _) => Claimed::Unwritable { stale },
            (_, stale, _) => Claimed::Absent { stale },
        }
    }

    async fn fill_once(&self, fill: Fill<'_>) -> Result<Filled, Error> {
        let Fill {
            lease,
            place,
            entry,
        } = fill;
        let window = entry.lifetime.stale_window();
        let life = entry
            .lifetime
            .end()
            .saturating_duration_since(Instant::now());
        let life = life.min(LONGEST_LIFE);
        if life < Duration::from_millis(1) {
            // A script that sets no time to live would delete the key.
            return self
                .give_back(lease, &Mark::NONE, Duration::ZERO)
                .await
                .map(|_| Filled::FencedOff);
        }
        entry.set_token(lease.token.clone());
        let mut label = Label {
            kind: Kind::Entry,
            token: lease.token.clone(),
            began: lease.began.0,
            life,
            window: window.min(life),
            proof: place.proof,
        };
        let value = codec::encode(entry, &label);
        let record = match &entry.head.variant {
            Some(variant) if place.variant.is_some() => {
                label.kind = Kind::Variants;
                label.window = Duration::ZERO;
                label.proof = place.resource_proof;
                codec::encode_variants(&variant.fields, &entry.tags, &label)
            }
            _ => Vec::new(),
        };
        let mut call = Call::new()
            .key(self.names.entry(&place))
            .key(self.names.lease(&lease.place, lease.slot))
            .key(self.names.tags())
            .key(self.names.resource(&place))
            .key(self.names.marker(&lease.place))
            .key(self.names.failure(&lease.place, Slot::Build))
            .key(self.names.failure(&lease.place, Slot::Extra))
            .arg(lease.token.as_str())
            .arg(lease.began.0)
            .arg(value)
            .arg(millis(life))
            .arg(record)
            .arg(self.names.channel())
            .arg(names::woken(place.resource));
        for tag in &entry.tags {
            call = call.arg(tag.to_string());
        }
        let state: String = self.fills.invoke(&FILL, call).await?;
        Ok(match state.as_str() {
            "stored" => Filled::Stored,
            "fenced" => Filled::FencedOff,
            _ => Filled::Refused,
        })
    }

    async fn give_back(
        &self,
        lease: &Lease,
        mark: &Mark,
        tombstone: Duration,
    ) -> Result<Held, Error> {
        let call = Call::new()
            .key(self.names.lease(&lease.place, lease.slot))
            .key(match mark.kind {
                MarkKind::HitForMiss => self.names.marker(&lease.place),
                MarkKind::Failure => self.names.failure(&lease.place, lease.slot),
            })
            .key(self.names.tombstone(&lease.place, &lease.token))
            .key(self.names.entry(&lease.place))
            .key(self.names.tags())
            .arg(lease.token.as_str())
            .arg(mark.value.as_slice())
            .arg(millis(mark.period))
            .arg(millis(tombstone))
            .arg(self.names.channel())
            .arg(names::woken(lease.place.resource));
        Ok(held(self.leases.invoke(&RELEASE, call).await?))
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
            .arg(millis(self.lease_ttl));
        Box::pin(async move { Ok(held(self.leases.invoke(&RENEW, call).await?)) })
    }

    fn release<'a>(&'a self, lease: &'a Lease, release: Release<'a>) -> Answer<'a, Held> {
        Box::pin(async move {
            let tombstone = match release {
                Release::Undo => TOMBSTONE,
                _ => Duration::ZERO,
            };
            let mark = Mark::of(lease, &release);
            Ok(self.give_back(lease, &mark, tombstone).await?)
        })
    }

    fn purge(&self, tag: Digest) -> Answer<'_, ()> {
        let call = Call::new()
            .key(self.names.tags())
            .arg(tag.to_string())
            .arg(REMEMBERED_TAGS)
            .arg(self.names.channel())
            .arg(names::purged(tag));
        Box::pin(async move {
            let _one: i64 = self.leases.invoke(&PURGE, call).await?;
            Ok(())
        })
    }

    fn follow(&self, coherence: &Arc<Coherence>) {
        self.follow.start(coherence);
    }

    fn health(&self) -> Vec<LinkHealth> {
        let links = [&self.claims, &self.fills, &self.leases].map(Link::health);
        let events = self.follow.health();
        links
            .into_iter()
            .chain([events])
            .map(LinkHealth::from)
            .collect()
    }

    fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }
}

/// A claim's reply, taken apart.
struct Reply {
    state: String,
    sent: Instant,
    since: TierTime,
    left: Duration,
    value: Bytes,
    lease_left: Duration,
    marker: Marker,
    failure: Bytes,
}

/// What is left beside a key when its lease is given back.
struct Mark {
    kind: MarkKind,
    value: Vec<u8>,
    period: Duration,
}

enum MarkKind {
    HitForMiss,
    Failure,
}

impl Mark {
    const NONE: Self = Self {
        kind: MarkKind::HitForMiss,
        value: Vec::new(),
        period: Duration::ZERO,
    };

    fn of(lease: &Lease, release: &Release<'_>) -> Self {
        match *release {
            Release::Nothing | Release::Undo => Self::NONE,
            Release::HitForMiss(period) => Self {
                kind: MarkKind::HitForMiss,
                value: b"h".to_vec(),
                period,
            },
            Release::Failed(period, entry) => Self {
                kind: MarkKind::Failure,
                value: failure_marker(lease.began, entry),
                period,
            },
        }
    }
}

enum Value {
    None,
    Entry(Arc<Entry>),
    Variants(Fields),
    /// Not what this version writes: reject it, and ask again.
    Unusable,
}

impl From<Error> for Outage {
    fn from(error: Error) -> Self {
        let effect = if error.outcome_unknown() {
            Effect::Unknown
        } else {
            Effect::None
        };
        let fault = match error.kind() {
            link::Kind::Garbled => Fault::Refused,
            link::Kind::Refused if !is_out_of_service(error.code()) => Fault::Refused,
            _ => Fault::Unreachable,
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
    const CODES: [&str; 7] = [
        "LOADING",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "READONLY",
        "NOAUTH",
        "BUSY",
        "TRYAGAIN",
    ];
    code.is_some_and(|code| CODES.contains(&code))
}

/// What waiters elsewhere are told of a failure: the response, or only its status if it is large.
fn failure_marker(began: TierTime, entry: &Entry) -> Vec<u8> {
    let mut marker = format!("{:016}", began.0).into_bytes();
    let response = codec::encode_response(entry);
    if response.len() <= LARGEST_INLINE {
        marker.extend(response);
    } else {
        marker.extend(codec::encode_response(&entry.bare()));
    }
    marker
}

fn held(reply: i64) -> Held {
    if reply == 1 { Held::Ours } else { Held::Lost }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn positive(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests;
