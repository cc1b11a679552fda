//! Shutting down: builds end, and leases are given back.

use std::time::Duration;

use tokio::time::timeout;

use super::Cache;

/// How long abandoned builds may take to let go, and how long giving their leases back.
const GIVING_BACK: Duration = Duration::from_secs(1);

impl Cache {
    /// Lets the builds under way end, so that no other worker has to wait for a lease of this one.
    ///
    /// Call it when the server has stopped to accept requests, and before the process ends. Builds have
    /// the time of [`CacheBuilder::shutdown_grace`](crate::CacheBuilder::shutdown_grace); those that
    /// are not done then are abandoned, their leases are released, and whoever waits for them gets a
    /// stale entry or 503. So does every later request that no local entry answers. What comes back is
    /// how many builds were abandoned. Giving up takes no longer than 2 s more, even where a handler
    /// blocks its thread.
    ///
    /// ```
    /// use axum::Router;
    /// use tower_stampede::Cache;
    ///
    /// # async fn stopped() {}
    /// async fn serve(app: Router, cache: Cache, listener: tokio::net::TcpListener) -> std::io::Result<()> {
    ///     axum::serve(listener, app).with_graceful_shutdown(stopped()).await?;
    ///     cache.shutdown().await;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropped early, builds go on as they would have. Called again, it goes on where it was.
    pub async fn shutdown(&self) -> usize {
        let flights = &self.0.flights;
        let ended = timeout(self.0.shutdown_grace, flights.idle()).await;
        let abandoned = match ended {
            Ok(()) => 0,
            Err(_elapsed) => flights.len(),
        };
        self.0.closed.send_replace(true);
        // A handler that blocks its thread cannot be made to stop.
        drop(timeout(GIVING_BACK, flights.idle()).await);
        if let Some(shared) = &self.0.shared {
            // Where the tier does not answer, the leases' time to live does it.
            drop(timeout(GIVING_BACK, shared.gave_all_back()).await);
        }
        if abandoned > 0 {
            tracing::warn!(
                abandoned,
                "builds were still under way when the cache shut down"
            );
        }
        abandoned
    }

    /// Whether nothing is built any more.
    pub(crate) fn is_closed(&self) -> bool {
        *self.0.closed.borrow()
    }

    /// Waits until nothing is to be built any more.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut closed = self.0.closed.subscribe();
        async move {
            // A cache that is gone has nobody to close it.
            if closed.wait_for(|closed| *closed).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
