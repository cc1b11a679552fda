//! Which of two entries is the later build's.

use tokio::time::Instant;

use crate::time::TierTime;

/// When an entry's build began: of two for one key the later one is the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Built {
    at: Instant,
    in_tier: Option<TierTime>,
}

impl Built {
    /// Without the shared tier.
    pub(crate) fn here(at: Instant) -> Self {
        Self { at, in_tier: None }
    }

    /// Under a lease; `at` is the time here when it had begun at the latest.
    pub(crate) fn leased(at: Instant, began: TierTime) -> Self {
        Self {
            at,
            in_tier: Some(began),
        }
    }

    /// The tier's clock decides where it can: an entry of another process has no time here.
    pub(crate) fn is_after(&self, other: &Self) -> bool {
        match (self.in_tier, other.in_tier) {
            (Some(own), Some(other)) => own > other,
            _ => self.at > other.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn two_leases_are_compared_by_the_tier_s_clock_and_all_else_by_ours() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let leased = |at, began| Built::leased(at, TierTime(began));

        assert!(leased(now, 2).is_after(&leased(later, 1)));
        assert!(!leased(later, 1).is_after(&leased(now, 2)));
        assert!(!leased(later, 1).is_after(&leased(now, 1)));
        assert!(leased(later, 1).is_after(&Built::here(now)));
        assert!(Built::here(later).is_after(&leased(now, 9)));
    }
}
