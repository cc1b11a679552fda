//! The words in which a store is asked and answers.

use std::time::Duration;

use bytes::Bytes;

/// Which write a record is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    /// A version by the number that the store has for it.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The store's number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// One record to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    key: String,
    known: Option<Version>,
}

impl Read {
    /// The record under `key`.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            known: None,
        }
    }

    /// The same by one who has the value of this version: it need not be sent again.
    pub fn unless(mut self, known: Version) -> Self {
        self.known = Some(known);
        self
    }

    /// The record's name.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The version whose value may be [left out](Found::unchanged).
    pub fn known(&self) -> Option<Version> {
        self.known
    }
}

/// A record that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    version: Version,
    left: Duration,
    value: Option<Bytes>,
}

impl Found {
    /// A record of this version and value, which is there for `left` at least unless it is evicted: what
    /// is not known exactly is rounded down.
    pub fn new(version: Version, left: Duration, value: impl Into<Bytes>) -> Self {
        Self {
            version,
            left,
            value: Some(value.into()),
        }
    }

    /// The same without the value: the reader has it, since this is the version that it
    /// [knows](Read::known).
    pub fn unchanged(version: Version, left: Duration) -> Self {
        Self {
            version,
            left,
            value: None,
        }
    }

    /// Which write it is from.
    pub fn version(&self) -> Version {
        self.version
    }

    /// How long it is still there.
    pub fn left(&self) -> Duration {
        self.left
    }

    /// The value, unless it was left out.
    pub fn value(&self) -> Option<&Bytes> {
        self.value.as_ref()
    }
}

/// One record to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    key: String,
    value: Bytes,
    life: Duration,
    condition: Condition,
}

impl Write {
    /// `value` under `key`, for `life`, whatever is there.
    pub fn new(key: impl Into<String>, value: impl Into<Bytes>, life: Duration) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
            life,
            condition: Condition::Always,
        }
    }

    /// The same, on a condition.
    pub fn only_if(mut self, condition: Condition) -> Self {
        self.condition = condition;
        self
    }

    /// The record's name.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The record's value.
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    /// After how long it must be gone: longer than the store's
    /// [resolution](super::Store::resolution), and no more than 14 days.
    pub fn life(&self) -> Duration {
        self.life
    }

    /// What must hold for it to be written.
    pub fn condition(&self) -> Condition {
        self.condition
    }
}

/// What must hold for a record to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// There is no record of this name.
    Absent,
    /// The record is there, and of this version still.
    Unchanged(Version),
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The record is written, and this is its version.
    Stored(Version),
    /// The condition does not hold; nothing was written.
    Refused,
    /// The store takes no value of this size.
    TooLarge,
}
