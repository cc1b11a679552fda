//! The values of records: an entry with the generations it carries, and notes beside it.
//!
//! ```text
//! entry  | magic | number of generations | generations: all, then each tag's | value, as the codec has it |
//! note   | magic | build's number | number of marks | marks and generations | response, or nothing |
//! ```
//!
//! What makes no sense is nothing, and never an error.

use bytes::{BufMut as _, Bytes};

use super::generations::{Generation, Mark};
use crate::{entry::codec::Label, key::Digest};

const ENTRY: &[u8] = b"TSP1";
const NOTE: &[u8] = b"TSN1";

/// A stored value, and what it carries.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) label: Label,
    pub(super) carried: Box<[(Mark, Generation)]>,
    /// As the codec has it.
    pub(super) value: Bytes,
}

pub(super) fn encode(generations: &[Generation], value: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(ENTRY.len() + 2 + 16 * generations.len() + value.len());
    out.extend_from_slice(ENTRY);
    out.put_u16(u16::try_from(generations.len()).unwrap_or(u16::MAX));
    for generation in generations {
        put(*generation, &mut out);
    }
    out.extend_from_slice(value);
    out.into()
}

pub(super) fn decode(record: &Bytes) -> Option<Stored> {
    let (count, mut rest) = number(record.strip_prefix(ENTRY)?)?;
    let mut generations = Vec::with_capacity(usize::from(count).min(256));
    for _ in 0..count {
        let (generation, after) = take(rest)?;
        generations.push(generation);
        rest = after;
    }
    let value = record.slice_ref(rest);
    let (label, tags, _end) = Label::read(&value)?;
    let marks: Vec<_> = super::generations::marks(&tags).collect();
    (marks.len() == generations.len()).then(|| Stored {
        label,
        carried: marks.into_iter().zip(generations).collect(),
        value,
    })
}

/// What is told beside an entry, to those who have waited for a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// The build's number.
    pub(super) number: u64,
    /// A purge forgets the note.
    pub(super) carried: Vec<(Mark, Generation)>,
    /// The failure to share, if there is one.
    pub(super) response: Bytes,
}

impl Note {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(64 + 32 * self.carried.len() + self.response.len());
        out.extend_from_slice(NOTE);
        out.put_u64(self.number);
        // A build's own tags are not as many.
        out.put_u16(u16::try_from(self.carried.len()).unwrap_or(u16::MAX));
        for (mark, generation) in &self.carried {
            match mark {
                Mark::Any => out.put_u8(b'?'),
                Mark::All => out.put_u8(b'!'),
                Mark::Tag(tag) => {
                    out.put_u8(b'#');
                    out.extend_from_slice(tag.to_string().as_bytes());
                }
            }
            put(*generation, &mut out);
        }
        out.extend_from_slice(&self.response);
        out.into()
    }

    pub(super) fn decode(record: &Bytes) -> Option<Self> {
        let (build, rest) = record.strip_prefix(NOTE)?.split_first_chunk()?;
        let (count, mut rest) = number(rest)?;
        let mut carried = Vec::with_capacity(usize::from(count).min(256));
        for _ in 0..count {
            let (mark, after) = mark(rest)?;
            let (generation, after) = take(after)?;
            carried.push((mark, generation));
            rest = after;
        }
        Some(Self {
            number: u64::from_be_bytes(*build),
            carried,
            response: record.slice_ref(rest),
        })
    }
}

fn put(generation: Generation, out: &mut Vec<u8>) {
    out.put_u64(generation.hard);
    out.put_u64(generation.soft);
}

fn take(bytes: &[u8]) -> Option<(Generation, &[u8])> {
    let (hard, rest) = bytes.split_first_chunk()?;
    let (soft, rest) = rest.split_first_chunk()?;
    let generation = Generation {
        hard: u64::from_be_bytes(*hard),
        soft: u64::from_be_bytes(*soft),
    };
    Some((generation, rest))
}

fn mark(bytes: &[u8]) -> Option<(Mark, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    match kind {
        b'?' => Some((Mark::Any, rest)),
        b'!' => Some((Mark::All, rest)),
        b'#' => {
            let (tag, rest) = rest.split_at_checked(32)?;
            Some((Mark::Tag(Digest::parse(tag)?), rest))
        }
        _ => None,
    }
}

fn number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        entry::codec::{Kind, encode_variants},
        token::Token,
    };

    fn stored(tags: usize) -> (Bytes, Vec<Generation>) {
        let tags: Vec<_> = (0..tags)
            .map(|tag| Digest::of(tag.to_string().as_bytes()))
            .collect();
        let label = Label {
            kind: Kind::Variants,
            token: Token::random().unwrap(),
            began: 7,
            life: Duration::from_secs(60),
            window: Duration::ZERO,
            proof: [9; 32],
        };
        let fields = [http::header::ACCEPT].into();
        let generations: Vec<_> = (0..=tags.len()).map(|_| Generation::random()).collect();
        let value = encode_variants(&fields, &tags, &label);
        (encode(&generations, &value), generations)
    }

    #[test]
    fn an_entry_reads_as_it_was_written() {
        for tags in [0, 1, 128] {
            let (record, generations) = stored(tags);

            let read = decode(&record).unwrap();

            let carried: Vec<_> = read.carried.iter().map(|(_, carried)| *carried).collect();
            assert_eq!(carried, generations);
            assert_eq!(read.carried[0].0, Mark::All);
            assert_eq!(read.label.began, 7);
        }
    }

    #[test]
    fn an_entry_that_carries_too_few_or_too_many_generations_is_none() {
        let (record, mut generations) = stored(3);
        let value = decode(&record).unwrap().value;

        generations.push(Generation::random());
        assert!(decode(&encode(&generations, &value)).is_none());
        generations.truncate(2);
        assert!(decode(&encode(&generations, &value)).is_none());
        for end in 0..record.len().min(200) {
            let cut = record.slice(..end);
            assert!(decode(&cut).is_none_or(|read| read.value.len() < value.len()));
        }
    }

    #[test]
    fn a_note_reads_as_it_was_written() {
        let tag = Mark::Tag(Digest::of(b"tag"));
        for response in ["", "the failure"] {
            let note = Note {
                number: 1 << 50,
                carried: vec![
                    (Mark::All, Generation::random()),
                    (tag, Generation::random()),
                ],
                response: response.into(),
            };

            assert_eq!(Note::decode(&note.encode()), Some(note));
        }
    }

    proptest! {
        #[test]
        fn whatever_lies_there_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            for magic in [ENTRY, NOTE, b""] {
                let record = Bytes::from([magic, &bytes].concat());
                drop(decode(&record));
                drop(Note::decode(&record));
            }
        }
    }
}
