//! Claims: what the script answers, and the value that comes with it.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{CLAIM, LARGEST_INLINE, RedisTier, millis, positive};
use crate::{
    entry::{
        Entry, Fields,
        codec::{self, Asked, Decoded, Kind, Label},
    },
    link::{Call, Error},
    shared::{Claim, Claimed, Lease, Marker, Purpose},
    time::TierTime,
    token::Token,
};

/// Where a value has the token of the lease it was built under.
const TOKEN: Range<usize> = 5..37;

/// A claim's reply, taken apart.
struct Reply {
    state: String,
    sent: Instant,
    since: TierTime,
    left: Duration,
    cut: Duration,
    value: Bytes,
    lease_left: Duration,
    marker: Marker,
    failure: Bytes,
}

enum Value {
    None,
    Entry(Arc<Entry>),
    Variants(Fields),
    /// Not what this version writes: reject it, and ask again.
    Unusable,
}

impl RedisTier {
    async fn ask(
        &self,
        claim: &Claim,
        awaited: Option<TierTime>,
        reject: &[u8],
    ) -> Result<Reply, Error> {
        let purpose = match claim.purpose {
            Purpose::Serve => "serve",
            Purpose::Look => "look",
            Purpose::Refresh => "refresh",
        };
        let have = claim.have.as_ref().and_then(|entry| entry.token.get());
        let mut call = Call::new()
            .key(self.names.entry(&claim.place))
            .key(self.names.lease(&claim.place, claim.slot))
            .key(self.names.marker(&claim.place))
            .key(self.names.tags(&claim.place))
            .key(self.names.tombstone(&claim.place, &claim.token))
            .key(self.names.failure(&claim.place, claim.slot))
            .arg(claim.token.as_str())
            .arg(millis(claim.lease_ttl))
            .arg(claim.place.proof.as_slice())
            .arg(have.map_or("", Token::as_str))
            .arg(reject)
            .arg(purpose)
            .arg(LARGEST_INLINE)
            .arg(awaited.unwrap_or_default().0);
        for tag in claim.tags.iter() {
            call = call.arg(tag.to_string());
        }

        let sent = Instant::now();
        let (state, since, left, value, lease_left, marker_left, failure, cut) =
            self.claims.invoke_by(&CLAIM, call, claim.deadline).await?;
        let (state, since): (String, String) = (state, since);
        let (value, failure): (Vec<u8>, Vec<u8>) = (value, failure);
        let marker_left = positive(marker_left);
        Ok(Reply {
            state,
            sent,
            since: TierTime(since.parse().unwrap_or(0)),
            left: positive(left),
            cut: positive(cut),
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
            cut: reply.cut,
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
            let name = self.names.entry(&claim.place);
            let value = self.fills.read_by(&name, claim.deadline).await?;
            match Label::read(&value) {
                Some((read, ..)) if read.token == label.token => value.into(),
                // It was replaced between the two reads: as if it had never been there.
                _ => return Ok(Value::Unusable),
            }
        };
        let Some(whole) = self.compression.unpack(whole).await else {
            return Ok(Value::Unusable);
        };
        Ok(match codec::decode(&whole, asked) {
            Some(Decoded::Entry(entry)) => Value::Entry(entry),
            Some(Decoded::Variants(fields)) => Value::Variants(fields),
            None => Value::Unusable,
        })
    }

    pub(super) async fn claim_once(&self, claim: &Claim) -> Result<Claimed, Error> {
        let mut reply = self.ask(claim, claim.awaited, &[]).await?;
        let mut failure = codec::decode_response(&reply.failure, claim.began);
        if reply.state == "failed" && !reply.failure.is_empty() && failure.is_none() {
            reply = self.ask(claim, None, &[]).await?;
        }
        let mut value = self.value_or_lease(claim, &reply).await?;
        if matches!(value, Value::Unusable) {
            self.unusable.found(claim.place.resource);
            let reject = reply.value.get(TOKEN).unwrap_or_default().to_vec();
            reply = self.ask(claim, claim.awaited, &reject).await?;
            failure = codec::decode_response(&reply.failure, claim.began);
            value = self.value_or_lease(claim, &reply).await?;
        }
        Ok(Self::conclude(claim, &reply, value, failure))
    }

    /// The value of a reply. What it says is worth more than the stale entry that comes with it.
    async fn value_or_lease(&self, claim: &Claim, reply: &Reply) -> Result<Value, Error> {
        match self.value(claim, reply).await {
            Err(_) if reply.state != "fresh" => Ok(Value::None),
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
                    renews: Label::read(&reply.value).map(|(label, ..)| label.token),
                    began: reply.since,
                    ttl: claim.lease_ttl,
                    hold: None,
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
}
