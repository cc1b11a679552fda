//! The way of a miss, as the flight's task walks it: look again and claim ([`seek`](super::seek)),
//! build, then judge, land and fill ([`landing`](super::landing)).
//!
//! The task belongs to no request. It tells the flight what it finds as soon as that is certain, so
//! that nobody waits for what the cache still has to do afterwards.

use std::sync::Arc;

use http::{Request, Response};
use tokio::{sync::oneshot, time::Instant};
use tower_service::Service;

use super::{
    build::Delivery,
    keeper::Keeper,
    landing::Landing,
    parcel::Parcel,
    seek::{Seek, Sought},
};
use crate::{
    asked::{Asked, Errand},
    body::BoxError,
    cache::Cache,
    entry::{Entry, Worth},
    flight::{News, Pilot, Verdict},
    http::revalidate::Validation,
    key::{Digest, Key},
    policy::{OnDisconnect, Policy},
    shared::{Lease, Release, Slot},
    task,
};

/// Whether the flight is there for requests, or to refresh an entry that has answered already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    Requests,
    Nobody,
}

/// A flight's task.
pub(super) struct Leading<S, ReqBody, ResBody, E> {
    pub(super) inner: S,
    pub(super) cache: Cache,
    pub(super) policy: Arc<Policy>,
    pub(super) key: Key,
    pub(super) resource: Key,
    pub(super) tag: Digest,
    pub(super) asked: Asked,
    pub(super) parcel: Parcel<ReqBody>,
    pub(super) stale: Option<Arc<Entry>>,
    pub(super) ownership: Ownership,
    pub(super) slot: Slot,
    pub(super) delivery: oneshot::Sender<Delivery<ResBody, E>>,
    pub(super) pilot: Pilot,
}

impl<S, ReqBody, ResBody> Leading<S, ReqBody, ResBody, S::Error>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    ReqBody: Send + 'static,
    ResBody: http_body::Body + Send + 'static,
    ResBody::Data: Send,
    ResBody::Error: Into<BoxError>,
{
    pub(super) fn take_off(self) {
        // A span of its own: the client that started the flight may be gone before it ends.
        let span = tracing::debug_span!(
            parent: None,
            "flight",
            layer = self.policy.name.as_deref(),
            key = %self.resource.digest(),
        );
        span.follows_from(tracing::Span::current());
        // Without a runtime the flight ends here, and its starter goes its own way.
        drop(task::spawn_in(span, self.fly()));
    }

    async fn fly(self) {
        let seek = Seek {
            cache: &self.cache,
            policy: &self.policy,
            key: &self.key,
            resource: &self.resource,
            tag: self.tag,
            asked: &self.asked,
            stale: self.stale.as_ref(),
            ownership: self.ownership,
            slot: self.slot,
            flight: self.pilot.flight(),
        };
        match seek.run().await {
            Sought::Found(news) => self.pilot.flight().tell(news),
            Sought::Nobody => {}
            Sought::Build { .. } if self.asked.errand == Errand::Look => {
                // There is nothing: each goes its own way.
                self.pilot.flight().tell(News::Landed(Verdict::Uncacheable));
            }
            Sought::Build { lease, stale } => {
                let flying = match &stale {
                    Some(stale) if self.answers_now(lease.as_ref(), stale) => {
                        self.refreshing(stale)
                    }
                    _ => self,
                };
                flying.build(lease, stale).await;
            }
        }
    }

    /// Whether the shared tier has just brought what may answer while it is refreshed.
    fn answers_now(&self, lease: Option<&Lease>, stale: &Entry) -> bool {
        let now = Instant::now();
        lease.is_some()
            && self.ownership == Ownership::Requests
            && stale.worth(now) == Worth::StaleWhileRevalidate
            && stale.head.fits(&self.asked.headers)
            && self.asked.takes(stale, now)
    }

    /// Answers those who are here, and those who come, with `stale`; what is built is for later.
    fn refreshing(self, stale: &Arc<Entry>) -> Self {
        let local = self.cache.local();
        local.insert(self.key.clone(), Arc::clone(stale));
        self.pilot.flight().tell(News::Found(Arc::clone(stale)));
        // The starter's own answer is the flight's news: nothing is delivered any more.
        let (delivery, _) = oneshot::channel();
        Self {
            ownership: Ownership::Nobody,
            delivery,
            ..self
        }
    }

    async fn build(self, lease: Option<Lease>, stale: Option<Arc<Entry>>) {
        let Some(request) = self.parcel.take() else {
            // The starter went its own way; whoever is left starts over.
            if let (Some(shared), Some(lease)) = (self.cache.shared(), &lease) {
                // A tier that does not answer has the lease's TTL do it.
                drop(shared.release(lease, Release::Nothing).await);
            }
            return;
        };
        self.cache.count().built();
        let cancels = self.policy.on_disconnect == OnDisconnect::Cancel
            && self.ownership == Ownership::Requests;
        let flight = Arc::clone(self.pilot.flight());
        let (inner, mut landing) = self.into_landing(lease, stale);
        let request = landing.prepare(request);
        tokio::select! {
            biased;
            () = landing.run(inner, request) => {}
            () = flight.sealed_empty(), if cancels => {}
        }
    }

    fn into_landing(
        self,
        lease: Option<Lease>,
        stale: Option<Arc<Entry>>,
    ) -> (S, Landing<ResBody, S::Error>) {
        let keeper = match (self.cache.shared(), lease) {
            (Some(shared), Some(lease)) => {
                let flight = Arc::clone(self.pilot.flight());
                Some(Keeper::new(Arc::clone(shared), lease, flight))
            }
            _ => None,
        };
        let landing = Landing {
            began: Instant::now(),
            delivery: Some(self.delivery),
            validation: Validation::Unconditional,
            cache: self.cache,
            policy: self.policy,
            key: self.key,
            resource: self.resource,
            tag: self.tag,
            asked: self.asked,
            stale,
            pilot: self.pilot,
            keeper,
            presence: None,
        };
        (self.inner, landing)
    }
}
