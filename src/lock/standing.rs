//! How a guard stands: until when its holder may trust it, and whether it was lost.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{backend::Ttl, limits};

/// What a guard knows about its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Valid until then, counted from the moment of asking.
    Until(Instant),
    /// Valid until it is released.
    Forever,
    /// Someone else said that it is over: for good.
    Lost,
    /// The guard is gone.
    Ended,
}

impl Standing {
    /// The standing of a lock of `ttl` that was asked for at `sent`.
    pub(super) fn from(ttl: Ttl, sent: Instant) -> Self {
        ttl.duration()
            .and_then(|ttl| sent.checked_add(limits::validity(ttl)))
            .map_or(Self::Forever, Self::Until)
    }

    pub(super) fn is_valid(self) -> bool {
        self.left() != Some(Duration::ZERO)
    }

    /// `None`: without end.
    pub(super) fn left(self) -> Option<Duration> {
        match self {
            Self::Until(end) => Some(end.saturating_duration_since(Instant::now())),
            Self::Forever => None,
            Self::Lost | Self::Ended => Some(Duration::ZERO),
        }
    }
}

/// Completes when the lock is not valid any more, or when its guard is gone.
pub(super) async fn over(mut standing: watch::Receiver<Standing>) {
    loop {
        let now = *standing.borrow_and_update();
        let end = match now {
            Standing::Lost | Standing::Ended => return,
            Standing::Until(end) => Some(end),
            Standing::Forever => None,
        };
        tokio::select! {
            changed = standing.changed() => if changed.is_err() { return },
            () = elapsed(end) => return,
        }
    }
}

async fn elapsed(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}
