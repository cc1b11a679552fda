//! One look into the store: the entry, what is noted beside it, and whether any of it has been purged.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    PairedTier,
    generations::{Generation, Ledger, Mark, judge, marks},
    records::{self, Note, Stored},
    stock,
};
use crate::{
    entry::{
        Entry, Fields,
        codec::{self, Asked, Decoded, Label},
    },
    key::Digest,
    purges::Moment,
    shared::{Claim, Lease, Marker, Outage, Place, Slot},
    store::{Condition, Found, Read, Version},
    time::LONGEST,
    token::Token,
};

/// What is looked for, and by whom.
pub(super) struct Look<'a> {
    pub(super) place: &'a Place,
    pub(super) slot: Slot,
    /// What an entry can be purged by, as far as that is known.
    pub(super) tags: &'a [Digest],
    pub(super) have: Option<&'a Arc<Entry>>,
    pub(super) began: Moment,
    pub(super) deadline: Instant,
}

/// How a store keeps an entry that is here too: by this it is confirmed without being sent again.
#[derive(Debug)]
pub(crate) struct Kept {
    version: Version,
    label: Label,
    carried: Box<[(Mark, Generation)]>,
}

/// What was seen.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) entry: Seen,
    pub(super) marker: Marker,
    pub(super) failure: Option<Note>,
    pub(super) ledger: Ledger,
}

/// What is there for a key.
#[derive(Debug)]
pub(super) struct Seen {
    /// On this condition a later build's entry takes its place.
    pub(super) condition: Condition,
    /// Of the build that it is from; 0: there is nothing, or nothing that makes sense.
    pub(super) number: u64,
    pub(super) token: Option<Token>,
    pub(super) value: Value,
    pub(super) is_fresh: bool,
}

#[derive(Debug)]
pub(super) enum Value {
    None,
    Entry(Arc<Entry>),
    Variants(Fields),
}

impl<'a> Look<'a> {
    pub(super) fn of(claim: &'a Claim) -> Self {
        Self {
            place: &claim.place,
            slot: claim.slot,
            tags: &claim.tags,
            have: claim.have.as_ref(),
            began: claim.began,
            deadline: claim.deadline,
        }
    }

    /// For what has come of the key while it was built.
    pub(super) fn beside(lease: &'a Lease, tags: &'a [Digest], deadline: Instant) -> Self {
        Self {
            place: &lease.place,
            slot: lease.slot,
            tags,
            have: None,
            began: Moment::default(),
            deadline,
        }
    }

    /// Those of the caller's copy too, so that it can be confirmed at once.
    fn marks(&self) -> Vec<Mark> {
        let held = self.have.map_or(&[][..], |held| &held.tags);
        let mut all = vec![Mark::Any];
        for mark in marks(self.tags).chain(marks(held)) {
            if !all.contains(&mark) {
                all.push(mark);
            }
        }
        all
    }

    fn held(&self) -> Option<(&'a Arc<Entry>, &'a Kept)> {
        let held = self.have?;
        Some((held, held.kept.get()?))
    }
}

impl PairedTier {
    pub(super) async fn look(&self, look: &Look<'_>) -> Result<Sight, Outage> {
        let entry = Read::new(self.names.entry(look.place));
        let marks = look.marks();
        let mut reads = vec![
            match look.held() {
                Some((_, kept)) => entry.unless(kept.version),
                None => entry,
            },
            Read::new(self.names.marker(look.place)),
            Read::new(self.names.failure(look.place, look.slot)),
        ];
        reads.extend(self.stock.reads(&marks));
        let sent = Instant::now();
        let mut found = self.stock.get(&reads, look.deadline).await?.into_iter();
        let (entry, marker, failure) = (found.next(), found.next(), found.next());
        let mut ledger = Ledger::default();
        stock::note(&marks, found, &mut ledger);

        let entry = match entry.flatten() {
            None => Seen::nothing(Condition::Absent),
            Some(found) => self.see(look, sent, &found, &mut ledger).await?,
        };
        let marker = marker.flatten().and_then(|found| {
            let note = note(&found)?;
            let left = found.left().min(LONGEST);
            (!ledger.contradicts(&note.carried)).then_some(Marker::HitForMiss(left))
        });
        let failure = failure.flatten().and_then(|found| note(&found));
        Ok(Sight {
            entry,
            marker: marker.unwrap_or(Marker::None),
            failure: failure.filter(|note| !ledger.contradicts(&note.carried)),
            ledger,
        })
    }

    /// Makes sense of a stored entry, and asks for the generations of the tags that it alone names.
    async fn see(
        &self,
        look: &Look<'_>,
        sent: Instant,
        found: &Found,
        ledger: &mut Ledger,
    ) -> Result<Seen, Outage> {
        let condition = Condition::Unchanged(found.version());
        let Some((stored, held)) = stored(look, found) else {
            return Ok(useless(look, condition));
        };
        let nothing = Seen::nothing(condition);
        if stored.label.proof != look.place.proof {
            return Ok(nothing);
        }
        let named = stored.carried.iter().map(|(mark, _)| *mark);
        let named: Vec<_> = named.filter(|mark| !ledger.has(*mark)).collect();
        self.stock.read(&named, ledger, look.deadline).await?;
        let left = found.left().min(stored.label.life);
        let of_build = Seen {
            number: stored.label.began,
            token: Some(stored.label.token.clone()),
            ..nothing
        };
        self.locks.know(of_build.number);
        let Some(cut) = judge(&stored.carried, ledger, left, stored.label.window) else {
            return Ok(of_build);
        };
        let asked = Asked {
            sent,
            left: left.saturating_sub(cut),
            cut,
            began: look.began,
        };
        let is_fresh = asked.left > stored.label.window;
        let Some(value) = self.value(stored, held, asked, found.version()).await else {
            return Ok(useless(look, of_build.condition));
        };
        Ok(Seen {
            value,
            is_fresh,
            ..of_build
        })
    }

    async fn value(
        &self,
        stored: Stored,
        held: Option<&Arc<Entry>>,
        asked: Asked,
        version: Version,
    ) -> Option<Value> {
        let entry = if let Some(held) = held {
            Arc::new(codec::renew(held, &stored.label, asked))
        } else {
            let whole = self.compression.unpack(stored.value).await?;
            match codec::decode(&whole, asked)? {
                Decoded::Entry(entry) => entry,
                Decoded::Variants(fields) => return Some(Value::Variants(fields)),
            }
        };
        // It is a new one, which nobody else has.
        let kept = Kept::new(version, stored.label, stored.carried);
        drop(entry.kept.set(Box::new(kept)));
        Some(Value::Entry(entry))
    }
}

fn useless(look: &Look<'_>, condition: Condition) -> Seen {
    tracing::warn!(key = %look.place.resource, "an entry of the store is no use: a miss");
    Seen::nothing(condition)
}

impl Seen {
    fn nothing(condition: Condition) -> Self {
        Self {
            condition,
            number: 0,
            token: None,
            value: Value::None,
            is_fresh: false,
        }
    }

    pub(super) fn into_entry(self) -> Option<Arc<Entry>> {
        match self.value {
            Value::Entry(entry) => Some(entry),
            Value::None | Value::Variants(_) => None,
        }
    }
}

impl Kept {
    /// The memory it takes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.carried)
    }

    pub(super) fn new(version: Version, label: Label, carried: Box<[(Mark, Generation)]>) -> Self {
        Self {
            version,
            label,
            carried,
        }
    }
}

/// What is stored, and the caller's copy of it if that is the same.
fn stored<'a>(look: &Look<'a>, found: &Found) -> Option<(Stored, Option<&'a Arc<Entry>>)> {
    if let Some(value) = found.value() {
        return Some((records::decode(value)?, None));
    }
    let (held, kept) = look
        .held()
        .filter(|(_, kept)| kept.version == found.version())?;
    let stored = Stored {
        label: kept.label.clone(),
        carried: kept.carried.clone(),
        value: Bytes::new(),
    };
    Some((stored, Some(held)))
}

fn note(found: &Found) -> Option<Note> {
    Note::decode(found.value()?)
}
