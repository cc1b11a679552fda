//! Fills: what a build has made is written over what it saw before it began, and over nothing newer.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    OFF_PATH, PairedTier,
    generations::{Generation, Ledger, Mark, marks},
    locks::Hold,
    look::Kept,
    records,
};
use crate::{
    entry::codec::{self, Kind, Label},
    shared::{Fill, Filled, Marker, Outage, Place, Release, TOLD},
    store::{Condition, Found, Read, Version, Write, Written},
};

/// So often an entry is tried to be written where something else was written meanwhile.
const ATTEMPTS: usize = 3;

/// The longest that an entry is kept.
const LONGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// What an entry carries.
type Carried = Box<[(Mark, Generation)]>;

/// How far a fill has come.
enum Step {
    /// The entry is there.
    Written(Carried),
    Ended(Filled),
}

impl PairedTier {
    pub(super) async fn fill_once(&self, fill: Fill<'_>) -> Result<Filled, Outage> {
        let Some(hold) = fill.lease.hold.as_deref() else {
            return Ok(Filled::Refused);
        };
        if !hold.is_valid().await {
            return Ok(Filled::FencedOff);
        }
        let filling = Filling {
            tier: self,
            fill: &fill,
            hold,
            deadline: Instant::now() + OFF_PATH,
        };
        let step = filling.run().await;
        if let Ok(Step::Ended(Filled::Unfit)) = step {
            self.tell(fill.lease, &Release::Unshared(TOLD)).await;
        }
        let deadline = Instant::now() + OFF_PATH;
        let confirmed = async {
            match step? {
                Step::Written(carried) => self.confirm(&carried, deadline).await,
                Step::Ended(filled) => Ok(filled),
            }
        };
        let (released, filled) = tokio::join!(hold.release(deadline), confirmed);
        if let Err(outage) = released {
            let error = &*outage.source;
            tracing::debug!(error, "a lock was not given back: its time to live does it");
        }
        filled
    }

    /// Whether no purge has come between the build's beginning and the entry being there for all to see: from
    /// then on whoever reads it finds out.
    async fn confirm(
        &self,
        carried: &[(Mark, Generation)],
        deadline: Instant,
    ) -> Result<Filled, Outage> {
        let marks: Vec<_> = carried.iter().map(|(mark, _)| *mark).collect();
        let mut ledger = Ledger::default();
        self.stock.read(&marks, &mut ledger, deadline).await?;
        Ok(if ledger.contradicts(carried) {
            Filled::FencedOff
        } else {
            Filled::Stored
        })
    }

    fn too_large(&self, place: &Place) {
        if !self.told_too_large.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                key = %place.resource,
                "an entry is larger than the store takes, and is kept in this process alone; \
                 others like it are not told of"
            );
        }
    }
}

/// One fill under way.
struct Filling<'a> {
    tier: &'a PairedTier,
    fill: &'a Fill<'a>,
    hold: &'a Hold,
    deadline: Instant,
}

impl Filling<'_> {
    async fn run(&self) -> Result<Step, Outage> {
        let Fill { lease, entry, .. } = self.fill;
        let lifetime = &entry.lifetime;
        let life = left(lifetime.end()).min(LONGEST_LIFE);
        if self.is_brief(life) {
            return Ok(Step::Ended(Filled::Unfit));
        }
        let carried = match self.carried().await? {
            Ok(carried) => carried,
            Err(filled) => return Ok(Step::Ended(filled)),
        };
        let label = self.label(life);
        let value = codec::encode(entry, &label);
        let value = self.tier.compression.pack(entry, value).await;
        let record = record(&carried, &value);
        let version = match self.write(&label, &record).await? {
            Ok(version) => version,
            Err(filled) => return Ok(Step::Ended(filled)),
        };
        entry.set_token(lease.token.clone());
        let kept = Kept::new(version, label.clone(), carried.clone());
        // It is written once.
        drop(entry.kept.set(Box::new(kept)));
        self.note_variants(&label, &carried).await?;
        self.clear_marker().await;
        if self.is_brief(left(lifetime.fresh_until)) {
            // It does not look fresh to those who wait elsewhere: let them not build in turn.
            self.tier.tell(lease, &Release::Unshared(TOLD)).await;
        }
        Ok(Step::Written(carried))
    }

    /// Whether a life may come out as none.
    fn is_brief(&self, life: Duration) -> bool {
        life < 2 * self.tier.stock.resolution()
    }

    fn label(&self, life: Duration) -> Label {
        let Fill {
            lease,
            place,
            entry,
        } = self.fill;
        Label {
            kind: Kind::Entry,
            token: lease.token.clone(),
            began: lease.began.0,
            life,
            window: entry.lifetime.stale_window().min(life),
            proof: place.proof,
        }
    }

    /// What the entry carries: what was so before the build began. A tag that only the response has named
    /// was not looked at then; it is as it was if nothing at all has been purged since.
    async fn carried(&self) -> Result<Result<Carried, Filled>, Outage> {
        let (stock, deadline) = (&self.tier.stock, self.deadline);
        let before = &self.hold.ground.ledger;
        let all: Vec<_> = marks(&self.fill.entry.tags).collect();
        let is_late = |mark: &Mark| !before.has(*mark);
        let late: Vec<_> = all.iter().copied().filter(is_late).collect();
        let mut ledger = before.clone();
        if !late.is_empty() {
            stock.read(&late, &mut ledger, deadline).await?;
            stock.complete(&mut ledger, deadline).await?;
            // After them: a purge writes the mark of any first, and its own then.
            let mut now = Ledger::default();
            stock.read(&[Mark::Any], &mut now, deadline).await?;
            let then = before.generation(Mark::Any);
            if then.is_none() || now.generation(Mark::Any) != then {
                return Ok(Err(Filled::FencedOff));
            }
        }
        let carried = all
            .into_iter()
            .map(|mark| Some((mark, ledger.generation(mark)?)));
        // A record that was lost: nobody knows whether a purge has come.
        Ok(carried.collect::<Option<_>>().ok_or(Filled::Refused))
    }

    async fn write(
        &self,
        label: &Label,
        record: &Bytes,
    ) -> Result<Result<Version, Filled>, Outage> {
        let Fill { lease, place, .. } = self.fill;
        let mut condition = if *place == lease.place {
            self.hold.ground.condition
        } else {
            // Where only the response has led, nobody has looked.
            Condition::Absent
        };
        for _ in 0..ATTEMPTS {
            let write = Write::new(self.tier.names.entry(place), record.clone(), label.life);
            let write = write.only_if(condition);
            match self.tier.stock.put(&write, self.deadline).await? {
                Written::Stored(version) => return Ok(Ok(version)),
                Written::Refused => {}
                Written::TooLarge => {
                    self.tier.too_large(place);
                    return Ok(Err(Filled::Unfit));
                }
            }
            condition = match self.rival().await? {
                None => Condition::Absent,
                Some((_, Some(rival))) if rival.token == label.token => {
                    return Ok(Err(Filled::Stored));
                }
                Some((_, Some(rival)))
                    if rival.proof == label.proof && rival.began > label.began =>
                {
                    return Ok(Err(Filled::FencedOff));
                }
                Some((version, _)) => Condition::Unchanged(version),
            };
        }
        Ok(Err(Filled::Refused))
    }

    /// What is there in the entry's place, and which build it is from, if it makes sense.
    async fn rival(&self) -> Result<Option<(Version, Option<Label>)>, Outage> {
        let read = Read::new(self.tier.names.entry(&self.fill.place));
        let found = self.tier.stock.get(&[read], self.deadline).await?;
        Ok(found.into_iter().flatten().next().map(|found| {
            let stored = found.value().and_then(records::decode);
            (found.version(), stored.map(|stored| stored.label))
        }))
    }

    /// What the resource varies by, where the entry is one of its variants.
    async fn note_variants(&self, label: &Label, carried: &Carried) -> Result<(), Outage> {
        let Fill { place, entry, .. } = self.fill;
        let variant = entry.head.variant.as_ref();
        let Some(variant) = variant.filter(|_| place.variant.is_some()) else {
            return Ok(());
        };
        let stock = &self.tier.stock;
        let key = self.tier.names.resource(place);
        let found = stock.get(&[Read::new(key.as_str())], self.deadline).await?;
        let known = found.iter().flatten().map(Found::left).max();
        let label = Label {
            kind: Kind::Variants,
            window: Duration::ZERO,
            proof: place.resource_proof,
            life: label.life.max(known.unwrap_or_default()).min(LONGEST_LIFE),
            ..label.clone()
        };
        let value = codec::encode_variants(&variant.fields, &entry.tags, &label);
        let write = Write::new(key, record(carried, &value), label.life);
        // Whoever is the last one: all of them know what it varies by.
        stock.put(&write, self.deadline).await.map(drop)
    }

    /// What is stored clears what is marked beside it.
    async fn clear_marker(&self) {
        if self.hold.ground.marker != Marker::None {
            let marker = self.tier.names.marker(&self.fill.lease.place);
            // It has a time to live of its own.
            drop(self.tier.stock.remove(&marker, self.deadline).await);
        }
    }
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

fn record(carried: &Carried, value: &[u8]) -> Bytes {
    let generations: Vec<_> = carried.iter().map(|(_, carried)| *carried).collect();
    records::encode(&generations, value)
}
