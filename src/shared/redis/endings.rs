//! How a lease ends: with an entry, or given back without one.

use std::time::Duration;

use tokio::time::Instant;

use super::{FILL, LARGEST_INLINE, RELEASE, RedisTier, held, millis};
use crate::{
    entry::{
        Entry,
        codec::{self, Kind, Label},
    },
    link::{Call, Error},
    shared::{Fill, Filled, Held, Lease, Release, Slot},
    time::TierTime,
    token::Token,
};

/// No entry is kept longer.
const LONGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// For how long a claim that was given up may still arrive at the server.
const TOMBSTONE: Duration = Duration::from_secs(60);

impl RedisTier {
    pub(super) async fn fill_once(&self, fill: Fill<'_>) -> Result<Filled, Error> {
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
            self.release_once(lease, &Release::Nothing).await?;
            return Ok(Filled::FencedOff);
        }
        entry.set_token(lease.token.clone());
        let label = Label {
            kind: Kind::Entry,
            token: lease.token.clone(),
            began: lease.began.0,
            life,
            window: window.min(life),
            proof: place.proof,
        };
        let value = codec::encode(entry, &label);
        let value = self.compression.pack(entry, value).await;
        let record = variants_record(&fill, label);
        let mut call = Call::new()
            .key(self.names.entry(&place))
            .key(self.names.lease(&lease.place, lease.slot))
            .key(self.names.tags(&place))
            .key(self.names.resource(&place))
            .key(self.names.marker(&lease.place))
            .key(self.names.failure(&lease.place, Slot::Build))
            .key(self.names.failure(&lease.place, Slot::Extra(1)))
            .key(self.names.failure(&lease.place, lease.slot))
            .arg(lease.token.as_str())
            .arg(lease.began.0)
            .arg(&*value)
            .arg(millis(life))
            .arg(record)
            .arg(self.names.channel())
            .arg(self.events.woken(place.resource))
            .arg(self.names.wakes(&place.resource));
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

    pub(super) async fn release_once(
        &self,
        lease: &Lease,
        release: &Release<'_>,
    ) -> Result<Held, Error> {
        let hit_for_miss = self.names.marker(&lease.place);
        let failure = self.names.failure(&lease.place, lease.slot);
        let none = Duration::ZERO;
        let (marker, value, period, tombstone) = match *release {
            Release::Nothing => (hit_for_miss, Vec::new(), none, none),
            Release::Undo => (hit_for_miss, Vec::new(), none, TOMBSTONE),
            Release::Unshared(period) => (failure, date(lease.began), period, none),
            Release::HitForMiss(period) => (hit_for_miss, b"h".to_vec(), period, none),
            Release::Failed(period, entry) => {
                (failure, failure_marker(lease.began, entry), period, none)
            }
        };
        let call = Call::new()
            .key(self.names.lease(&lease.place, lease.slot))
            .key(marker)
            .key(self.names.tombstone(&lease.place, &lease.token))
            .key(self.names.entry(&lease.place))
            .key(self.names.tags(&lease.place))
            .arg(lease.token.as_str())
            .arg(value)
            .arg(millis(period))
            .arg(millis(tombstone))
            .arg(self.names.channel())
            .arg(self.events.woken(lease.place.resource))
            .arg(self.names.wakes(&lease.place.resource))
            .arg(lease.renews.as_ref().map_or("", Token::as_str));
        Ok(held(self.leases.invoke(&RELEASE, call).await?))
    }
}

/// What the resource varies by, where the fill is for one of its variants; else nothing.
fn variants_record(fill: &Fill<'_>, label: Label) -> Vec<u8> {
    let Fill { place, entry, .. } = fill;
    match &entry.head.variant {
        Some(variant) if place.variant.is_some() => {
            let label = Label {
                kind: Kind::Variants,
                window: Duration::ZERO,
                proof: place.resource_proof,
                ..label
            };
            codec::encode_variants(&variant.fields, &entry.tags, &label)
        }
        _ => Vec::new(),
    }
}

/// When a build began, as its marker has it; with nothing behind it, nothing came of it for others.
fn date(began: TierTime) -> Vec<u8> {
    format!("{:016}", began.0).into_bytes()
}

/// What waiters elsewhere are told of a failure: the response, or only its status if it is large.
fn failure_marker(began: TierTime, entry: &Entry) -> Vec<u8> {
    let mut marker = date(began);
    let response = codec::encode_response(entry);
    if response.len() <= LARGEST_INLINE {
        marker.extend(response);
    } else {
        marker.extend(codec::encode_response(&entry.bare()));
    }
    marker
}
