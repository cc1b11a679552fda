//! The head of a value, which the scripts read without decoding anything.

use std::time::Duration;

use super::pieces::Reader;
use crate::{key::Digest, token::Token};

const MAGIC: &[u8] = b"TSE1";
/// Magic, kind, token, began, life, window, proof, number of tags.
pub(super) const HEAD: usize = 4 + 1 + 32 + 16 + 13 + 13 + 32 + 3;
pub(super) const TAG: usize = 32;

/// What the scripts know of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) kind: Kind,
    pub(crate) token: Token,
    /// The tier's time when the build's lease was granted, in microseconds.
    pub(crate) began: u64,
    /// How long the value is kept, from the fill on.
    pub(crate) life: Duration,
    /// How much of that it is stale.
    pub(crate) window: Duration,
    pub(crate) proof: [u8; 32],
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Entry,
    /// An entry whose body is compressed.
    Compressed,
    /// Only what the resource varies by.
    Variants,
}

impl Kind {
    /// Where a value says its kind.
    pub(super) const AT: usize = MAGIC.len();

    const ALL: [Self; 3] = [Self::Entry, Self::Compressed, Self::Variants];

    pub(super) fn letter(self) -> u8 {
        match self {
            Self::Entry => b'E',
            Self::Compressed => b'Z',
            Self::Variants => b'V',
        }
    }
}

impl Label {
    pub(super) fn write(&self, tags: &[Digest], out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.push(self.kind.letter());
        out.extend_from_slice(self.token.as_str().as_bytes());
        let numbers = format!(
            "{:016}{:013}{:013}",
            self.began,
            self.life.as_millis(),
            self.window.as_millis()
        );
        out.extend_from_slice(numbers.as_bytes());
        out.extend_from_slice(&self.proof);
        out.extend_from_slice(format!("{:03}", tags.len()).as_bytes());
        for tag in tags {
            out.extend_from_slice(tag.to_string().as_bytes());
        }
    }

    /// Reads a value's label, and where its tags end.
    pub(crate) fn read(value: &[u8]) -> Option<(Self, Vec<Digest>, usize)> {
        let mut reader = Reader(value);
        (reader.take(MAGIC.len())? == MAGIC).then_some(())?;
        let letter = reader.u8()?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.letter() == letter)?;
        let token = Token::parse(reader.text(32)?)?;
        let began = reader.number(16)?;
        let life = Duration::from_millis(reader.number(13)?);
        let window = Duration::from_millis(reader.number(13)?);
        let proof = reader.take(32)?.try_into().ok()?;
        let count = usize::try_from(reader.number(3)?).ok()?;
        // A head alone, without its tags, is what the scripts send of a value that the caller has.
        let sent = if value.len() == HEAD { 0 } else { count };
        let tags = (0..sent)
            .map(|_| Digest::parse(reader.take(TAG)?))
            .collect::<Option<_>>()?;
        let label = Self {
            kind,
            token,
            began,
            life,
            window,
            proof,
        };
        Some((label, tags, HEAD + count * TAG))
    }
}
