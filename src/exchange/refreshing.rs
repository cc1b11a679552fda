//! Refreshes in the background: flights that no request waits for.

use std::sync::Arc;

use http::{Method, Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use super::{Exchange, Intent, leading::Ownership};
use crate::{
    body::BoxError,
    entry::{Entry, Worth},
    flight::Joined,
    key::{Class, Key},
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
    /// Refreshes an entry that has already answered this request: nobody waits, and whoever misses it
    /// meanwhile joins.
    pub(crate) fn refresh(self) {
        let key = self.asked.key_in_class(&self.key);
        self.refresh_as(&key);
    }

    /// Refreshes what the shared tier has found for this request if it is time for that. Who asks
    /// meanwhile has it found again, and is not to join.
    pub(super) fn refresh_early(mut self, entry: Arc<Entry>) {
        let now = Instant::now();
        if entry.worth(now) == Worth::Fresh && self.policy.is_early(&entry, now) {
            self.intent = Intent::Renew;
            self.stale = Some(entry);
            let key = self.key.in_class(Class::Early);
            self.refresh_as(&key);
        }
    }

    fn refresh_as(self, key: &Key) {
        // What a HEAD would build is no entry.
        if self.asked.method == Method::HEAD || self.note().is_some() || self.cache.is_closed() {
            return;
        }
        let Some(permit) = self.cache.refresh_permit() else {
            return;
        };
        if let Joined::Starter(seat, pilot) = self.board(key) {
            let (leading, delivery) = self.lead(pilot, Ownership::Nobody, Slot::Build);
            leading.take_off(Some(permit));
            drop((seat, delivery));
        }
    }
}
