//! The way of a miss, as the flight's task walks it: look again and claim ([`seek`](super::seek)),
//! build, then judge, land and fill ([`landing`](super::landing)).
//!
//! The task belongs to no request. It tells the flight what it finds as soon as that is certain, so
//! that nobody waits for what the cache still has to do afterwards.

use std::sync::Arc;

use http::{Request, Response};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};
use tower_service::Service;

use super::{
    Intent,
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
    entry::Entry,
    flight::{News, Pilot, Verdict},
    http::revalidate::Validation,
    key::{Digest, Key},
    policy::{OnDisconnect, Policy},
    shared::{Lease, Slot},
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
    pub(super) tags: Arc<[Digest]>,
    pub(super) asked: Asked,
    pub(super) parcel: Parcel<ReqBody>,
    pub(super) stale: Option<Arc<Entry>>,
    pub(super) ownership: Ownership,
    pub(super) intent: Intent,
    pub(super) slot: Slot,
    pub(super) delivery: Option<oneshot::Sender<Delivery<ResBody, E>>>,
    /// The right to refresh, while this process is the one that does.
    pub(super) permit: Option<OwnedSemaphorePermit>,
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
        self.pilot.flight().runs_in(&span);
        // Without a runtime the flight ends here, and its starter goes its own way.
        let closed = self.cache.closed();
        let flight = async move {
            tokio::select! {
                () = self.fly() => {}
                // What it holds is given back, and those in it are told.
                () = closed => {}
            }
        };
        drop(task::spawn_in(span, flight));
    }

    async fn fly(mut self) {
        let seek = Seek {
            cache: &self.cache,
            policy: &self.policy,
            key: &self.key,
            resource: &self.resource,
            tags: &self.tags,
            asked: &self.asked,
            stale: self.stale.as_ref(),
            ownership: self.ownership,
            intent: self.intent,
            slot: self.slot,
            flight: self.pilot.flight(),
        };
        match seek.run(&mut self.permit).await {
            Sought::Found(news) => self.pilot.flight().tell(news),
            Sought::Nobody => {}
            Sought::Build { .. } if self.asked.errand == Errand::Look => {
                // There is nothing: each goes its own way.
                self.pilot.flight().tell(News::Landed(Verdict::Uncacheable));
            }
            Sought::Build { lease, stale } => self.build(lease, stale).await,
            Sought::Refresh { lease, stale } => {
                self.ownership = Ownership::Nobody;
                self.delivery = None;
                self.build(Some(lease), Some(stale)).await;
            }
        }
    }

    async fn build(mut self, lease: Option<Lease>, stale: Option<Arc<Entry>>) {
        let permit = self.permit.take();
        let Some(request) = self.parcel.take() else {
            // The starter went its own way; whoever is left starts over.
            if let Some(lease) = lease {
                self.cache.give_back(lease);
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
        drop(permit);
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
            delivery: self.delivery,
            validation: Validation::Unconditional,
            carried: Ok(Box::default()),
            cache: self.cache,
            policy: self.policy,
            key: self.key,
            resource: self.resource,
            tags: self.tags,
            asked: self.asked,
            stale,
            pilot: self.pilot,
            keeper,
            presence: None,
        };
        (self.inner, landing)
    }
}
