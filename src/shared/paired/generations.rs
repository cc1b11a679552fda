//! Generations: what makes a purge reach everything in constant time, without scripts and without a clock
//! that processes share.
//!
//! Each tag, and the namespace as a whole, has a record with two random numbers, its *generation*. A build
//! notes those of everything that it can be purged by before it begins, and its entry carries them; it is
//! valid while they are what the records say. A hard purge writes another generation, a soft one changes
//! half of it. A record that is lost is written anew, with another generation: what carried the old one is a
//! miss then.
//!
//! | record | entries | since when, by the record's time to live |
//! |---|---|---|
//! | as carried | valid | |
//! | other `soft` | stale | when it was written |
//! | other `hard`, or none | gone | |

use std::time::Duration;

use crate::{
    key::Digest,
    purges::{Purge, Reach},
    store::{Condition, Version},
};

/// For how long a record stands without being renewed: twice as long as the longest life of an entry, so
/// that one renewed in the second half of it outlives every entry that carries it.
pub(super) const LIFE: Duration = Duration::from_secs(14 * 24 * 3600);

const MAGIC: &[u8] = b"TSG1";
const LENGTH: usize = 4 + 8 + 8 + 8;

/// What a purge marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Whatever is purged: it tells that nothing was.
    Any,
    All,
    Tag(Digest),
}

impl From<Reach> for Mark {
    fn from(reach: Reach) -> Self {
        match reach {
            Reach::All => Self::All,
            Reach::Tag(tag) => Self::Tag(tag),
        }
    }
}

/// What an entry carries of one mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(super) hard: u64,
    pub(super) soft: u64,
}

impl Generation {
    pub(super) fn random() -> Self {
        Self {
            hard: fastrand::u64(..),
            soft: fastrand::u64(..),
        }
    }

    /// The one after a soft purge of this one.
    fn softened(self) -> Self {
        let soft = fastrand::u64(..);
        Self { soft, ..self }
    }
}

/// A mark's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) generation: Generation,
    /// When it was read, for how long it had had this generation.
    pub(super) age: Duration,
    /// How long it is still there.
    left: Duration,
}

impl Record {
    pub(super) fn new() -> Self {
        Self::of(Generation::random())
    }

    fn of(generation: Generation) -> Self {
        Self {
            generation,
            age: Duration::ZERO,
            left: LIFE,
        }
    }

    /// What is written for `LIFE` of a record that is read now.
    pub(super) fn encode(&self) -> Vec<u8> {
        let age = u64::try_from(self.age.as_millis()).unwrap_or(u64::MAX);
        let mut value = Vec::with_capacity(LENGTH);
        value.extend_from_slice(MAGIC);
        for number in [self.generation.hard, self.generation.soft, age] {
            value.extend_from_slice(&number.to_be_bytes());
        }
        value
    }

    /// Reads a record that is there for another `left`; what makes no sense is none.
    pub(super) fn decode(value: &[u8], left: Duration) -> Option<Self> {
        let numbers = value.strip_prefix(MAGIC)?;
        let (hard, rest) = number(numbers)?;
        let (soft, rest) = number(rest)?;
        let (age, rest) = number(rest)?;
        let left = left.min(LIFE);
        rest.is_empty().then(|| Self {
            generation: Generation { hard, soft },
            age: Duration::from_millis(age).saturating_add(LIFE.saturating_sub(left)),
            left,
        })
    }

    pub(super) fn is_worn(&self) -> bool {
        self.left < LIFE / 2
    }

    pub(super) fn purged(self, purge: Purge) -> Self {
        use crate::purges::Force;

        Self::of(match purge.force {
            Force::Hard => Generation::random(),
            Force::Soft => self.generation.softened(),
        })
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), rest))
}

/// What is known of a mark's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is not there, or makes no sense; on this condition one is written.
    Missing(Condition),
    Known(Record, Version),
}

/// The records as they were read.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(Vec<(Mark, State)>);

impl Ledger {
    /// Notes what a record says; the last word counts.
    pub(super) fn note(&mut self, mark: Mark, state: State) {
        match self.0.iter_mut().find(|(known, _)| *known == mark) {
            Some((_, known)) => *known = state,
            None => self.0.push((mark, state)),
        }
    }

    pub(super) fn has(&self, mark: Mark) -> bool {
        self.0.iter().any(|(known, _)| *known == mark)
    }

    pub(super) fn state(&self, mark: Mark) -> Option<State> {
        let known = self.0.iter().find(|(known, _)| *known == mark);
        known.map(|(_, state)| *state)
    }

    pub(super) fn record(&self, mark: Mark) -> Option<&Record> {
        self.0.iter().find_map(|(known, state)| match state {
            State::Known(record, _) if *known == mark => Some(record),
            _ => None,
        })
    }

    pub(super) fn generation(&self, mark: Mark) -> Option<Generation> {
        self.record(mark).map(|record| record.generation)
    }

    /// What a build that begins now can be purged by, with its generations.
    pub(super) fn carried(&self) -> Vec<(Mark, Generation)> {
        let known = self.0.iter().filter_map(|(mark, state)| match state {
            State::Known(record, _) if *mark != Mark::Any => Some((*mark, record.generation)),
            State::Known(..) | State::Missing(_) => None,
        });
        known.collect()
    }

    /// The records that have to be written before a build can begin, and on which condition.
    pub(super) fn wanting(&self) -> Vec<(Mark, Record, Condition)> {
        let wanting = self.0.iter().filter_map(|(mark, state)| match state {
            State::Missing(condition) => Some((*mark, Record::new(), *condition)),
            State::Known(record, version) if record.is_worn() => {
                Some((*mark, *record, Condition::Unchanged(*version)))
            }
            State::Known(..) => None,
        });
        wanting.collect()
    }

    /// Whether any of `carried` is not what its record says, as far as that is known.
    pub(super) fn contradicts(&self, carried: &[(Mark, Generation)]) -> bool {
        let is_other = |(mark, generation): &(Mark, Generation)| {
            self.has(*mark) && self.generation(*mark) != Some(*generation)
        };
        carried.iter().any(is_other)
    }
}

/// What an entry can be purged by, in the order in which it carries the generations.
pub(super) fn marks(tags: &[Digest]) -> impl Iterator<Item = Mark> + '_ {
    let tags = tags.iter().map(|tag| Mark::Tag(*tag));
    [Mark::All].into_iter().chain(tags)
}

/// What the records say of an entry that is there for another `left`, and the last `window` of its life
/// stale: by how much a soft purge has cut that short, or nothing if the entry is not valid.
pub(super) fn judge(
    carried: &[(Mark, Generation)],
    ledger: &Ledger,
    left: Duration,
    window: Duration,
) -> Option<Duration> {
    let mut softened: Option<Duration> = None;
    for (mark, generation) in carried {
        let record = ledger.record(*mark)?;
        if record.generation.hard != generation.hard {
            return None;
        }
        if record.generation.soft != generation.soft {
            // Of several soft purges the last one counts.
            softened = Some(softened.map_or(record.age, |age| age.min(record.age)));
        }
    }
    // From then on it has its stale window left.
    let cut = softened.map_or(Duration::ZERO, |age| {
        left.saturating_add(age).saturating_sub(window)
    });
    (left > cut).then_some(cut)
}

#[cfg(test)]
mod tests;
