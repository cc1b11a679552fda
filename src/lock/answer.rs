//! What a backend answers.

use std::{fmt, time::Duration};

/// The answer to an attempt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Grant {
    /// The claim holds the lock.
    Granted {
        /// The fencing number, if one was asked for.
        fence: Option<u64>,
    },
    /// The token holds it already, and so much longer: an exclusive claim with
    /// [`Reentry::Report`](super::backend::Reentry::Report), or a second read by one token.
    AlreadyHeld(Remaining),
    /// Someone else is in the way.
    Busy(Busy),
    /// This attempt was withdrawn.
    Withdrawn,
}

/// What is known about whoever is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    remaining: Option<Remaining>,
    obstacle: Obstacle,
    end: End,
}

/// What is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Obstacle {
    /// Another holder.
    Holder,
    /// Other readers, and the claim's own token reads too: it becomes the writer when they leave.
    OtherReaders,
    /// A writer that waits and is preferred.
    WaitingWriter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Refused,
    Deadline,
}

impl Busy {
    /// `obstacle` is in the way, for `remaining` if that is known.
    pub fn new(obstacle: Obstacle, remaining: Option<Remaining>) -> Self {
        Self {
            remaining,
            obstacle,
            end: End::Refused,
        }
    }

    /// How long the holder keeps the lock, if it neither releases nor extends it.
    pub fn remaining(&self) -> Option<Remaining> {
        self.remaining
    }

    /// What is in the way.
    pub fn obstacle(&self) -> Obstacle {
        self.obstacle
    }

    /// Whether a wait ended because its deadline passed, not because its retry strategy gave up
    /// or because there was no wait.
    pub fn deadline_passed(&self) -> bool {
        self.end == End::Deadline
    }

    pub(super) fn at_deadline(mut self) -> Self {
        self.end = End::Deadline;
        self
    }

    /// In how long the lock is free at the latest, if nobody extends it.
    pub(super) fn free_in(&self) -> Option<Duration> {
        match self.remaining? {
            Remaining::Millis(millis) => Some(Duration::from_millis(millis)),
            Remaining::Persistent => None,
        }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.obstacle {
            Obstacle::Holder => "someone else holds it",
            Obstacle::OtherReaders => "others read beside this token",
            Obstacle::WaitingWriter => "a writer is waiting for it",
        })?;
        if let Some(Remaining::Millis(millis)) = self.remaining {
            write!(f, " for another {millis} ms")?;
        }
        match self.end {
            End::Refused => Ok(()),
            End::Deadline => f.write_str(", and the deadline passed"),
        }
    }
}

/// How long a lock will still be held without being extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// So many milliseconds.
    Millis(u64),
    /// Until it is released.
    Persistent,
}

impl Remaining {
    /// As a duration; `None` if persistent.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::Millis(millis) => Some(Duration::from_millis(millis)),
            Self::Persistent => None,
        }
    }
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a lock that was not released was lost before"]
pub enum Released {
    /// The lock was held and is free now.
    Released,
    /// Nobody held it any more: it had expired or had been removed.
    Expired,
    /// Someone else holds it now; nothing was changed.
    HeldByAnother,
}

impl Released {
    /// Whether the lock was still held.
    pub fn was_held(self) -> bool {
        self == Self::Released
    }
}

/// Whether something was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removed {
    /// At least one holder was.
    Some,
    /// There was none.
    Nothing,
}
