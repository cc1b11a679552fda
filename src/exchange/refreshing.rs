//! Refreshes in the background: flights that no request waits for.

use std::sync::Arc;

use http::{Method, Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use super::{Exchange, Intent, leading::Ownership};
use crate::{
    asked::Circle,
    body::BoxError,
    entry::{Entry, Worth},
    flight::Joined,
    shared::Slot,
};

impl<S, ReqBody, ResBody> Exchange<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    ReqBody: Send + 'static,
    ResBody: http_body::Body + Send + 'static,
    ResBody::Data: Send,
    ResBody::Error: Into<BoxError>,
{
    /// Refreshes the entry that has already answered this request: nobody waits. Who misses a stale one
    /// meanwhile joins.
    pub(crate) fn refresh(mut self) {
        let is_early = |entry: &Arc<Entry>| entry.worth(Instant::now()) == Worth::Fresh;
        let is_shared = self.cache.shared().is_some();
        self.asked.circle = if is_shared && self.stale.as_ref().is_some_and(is_early) {
            Circle::EarlyRefreshes
        } else {
            Circle::Everybody
        };
        self.start_refresh();
    }

    /// Refreshes what the shared tier has found for this request, if it is time for that.
    pub(super) fn refresh_early(mut self, entry: Arc<Entry>) {
        let now = Instant::now();
        if entry.worth(now) == Worth::Fresh && self.policy.is_early(&entry, now) {
            self.intent = Intent::Renew;
            self.asked.circle = Circle::EarlyRefreshes;
            self.stale = Some(entry);
            self.start_refresh();
        }
    }

    fn start_refresh(self) {
        // What a HEAD would build is no entry.
        if self.asked.method == Method::HEAD || self.note().is_some() || self.cache.is_closed() {
            return;
        }
        let Some(permit) = self.cache.refresh_permit() else {
            return;
        };
        if let Joined::Starter(seat, pilot) = self.join(Slot::Build) {
            let (mut leading, delivery) = self.lead(pilot, Ownership::Nobody, Slot::Build);
            leading.permit = Some(permit);
            leading.take_off();
            drop((seat, delivery));
        }
    }
}
