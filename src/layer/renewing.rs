//! When a layer's entries are renewed, and who waits for that.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use http::request;

use super::BufferLayer;
use crate::{early::Early, pace::Pace, time::LONGEST};

/// # Renewing entries
impl BufferLayer {
    /// Lets hits refresh an entry before its end, in the background: each with a probability that
    /// grows towards the end, and faster the longer its build took (`XFetch`). `beta` is how eager: 1 is
    /// the optimum of the literature, 0 never. Of all workers at most one refreshes, while the shared
    /// tier answers. Default: off.
    ///
    /// An entry that is asked for often is never missing, and its refresh costs one build.
    pub fn early_refresh(self, beta: f64) -> Self {
        let beta = if beta.is_finite() { beta.max(0.0) } else { 0.0 };
        self.with(|policy| policy.early = Some(Early::Probably { beta }))
    }

    /// Lets the first hit after this part of an entry's life refresh it in the background, in place of
    /// [`early_refresh`](Self::early_refresh): 0.8 of a minute is 48 seconds. Default: off.
    pub fn refresh_after(self, part: f64) -> Self {
        let part = if part.is_finite() {
            part.clamp(0.0, 1.0)
        } else {
            1.0
        };
        self.with(|policy| policy.early = Some(Early::After { part }))
    }

    /// How long a request waits for a build where a stale entry may stand in for it (within
    /// [`stale_if_error`](Self::stale_if_error) or
    /// [`stale_while_revalidate`](Self::stale_while_revalidate)): then it gets the stale one, and the
    /// build goes on for those who come later. Default: as long as `wait_timeout`.
    pub fn stale_after(self, limit: Duration) -> Self {
        self.with(|policy| policy.stale_after = Some(limit.min(LONGEST)))
    }

    /// Derives the wait timeout from how long builds take: three times what 95 of a hundred of the last
    /// 64 took, within `limits`, in place of [`wait_timeout`](Self::wait_timeout) once there have been
    /// eight. Leases are as long, though at least 100 ms and never longer than
    /// [`lease_ttl`](crate::CacheBuilder::lease_ttl), so that another worker takes over sooner from one
    /// that died. Default: off.
    ///
    /// Who waits for another worker's build also waits for Redis: a lower limit of a few of its round
    /// trips, 50 ms say, keeps fast builds from being done twice.
    pub fn adaptive_timeouts(self, limits: RangeInclusive<Duration>) -> Self {
        self.with(|policy| policy.pace = Pace::within(limits))
    }

    /// Stores a response once its resource has been asked for this many times in this process, so
    /// that what is asked for once takes no room. Until then responses are shared with those who wait.
    /// Default: 1.
    pub fn min_uses(self, uses: u32) -> Self {
        self.with(|policy| policy.min_uses = uses.max(1))
    }

    /// Has requests that `renews` says yes to build anew, even where there is a fresh entry; those
    /// that come at the same time share that build, in all workers. What was there before them answers
    /// them only if that build fails, or as a [`fallback`](Self::fallback). Default: none.
    ///
    /// Whoever can send such a request can keep the handler busy: look at who asks.
    ///
    /// ```
    /// use tower_stampede::{BufferLayer, Cache};
    ///
    /// #[derive(Clone)]
    /// struct Admin;
    ///
    /// // Set by an authentication layer outside this one.
    /// let layer = BufferLayer::new(Cache::in_memory())
    ///     .refresh_if(|request| request.extensions.get::<Admin>().is_some());
    /// ```
    pub fn refresh_if(
        self,
        renews: impl Fn(&request::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|policy| policy.refresh_if = Some(Arc::new(renews)))
    }
}
