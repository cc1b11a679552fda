//! What a build gives to the request that started it, for itself alone.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, response::Parts};
use http_body::SizeHint;
use tokio::{sync::oneshot, time::Instant};

use super::{
    build::{Delivery, Drained},
    keeper::Keeper,
    landing::Landing,
};
use crate::{
    answer,
    body::{Body, BoxError, Growing, Rest},
    entry::Entry,
    judge::{Fate, Judged},
    purges::Since,
    status::{End, Outcome},
};

impl<B, E> Landing<B, E>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    pub(super) fn deliver(&mut self, delivery: Delivery<B, E>) {
        if let Some(channel) = self.delivery.take() {
            // A starter that has gone away gets nothing.
            drop(channel.send(delivery));
        }
    }

    /// A stale entry stands in for an error (RFC 5861 section 4).
    pub(super) fn deliver_stale_or(
        &mut self,
        delivery: Delivery<B, E>,
        answered: Option<StatusCode>,
    ) {
        let outcome = |ttl| {
            Outcome::forward(self.reason(), End::StoodIn { ttl })
                .answered(answered.map(|status| status.as_u16()))
                .because("stale-if-error")
        };
        let delivery = self.stand_in().map_or(delivery, |stale| {
            Delivery::Response(answer::stood_in(stale, self.asked.wanted(), outcome))
        });
        self.deliver(delivery);
    }

    pub(super) fn stand_in(&self) -> Option<&Arc<Entry>> {
        let usable = |stale: &&Arc<Entry>| {
            stale.may_stand_in(Instant::now(), self.cache.purges())
                && self
                    .policy
                    .opens(&stale.head.headers, self.asked.authorization)
        };
        self.stale.as_ref().filter(usable)
    }

    pub(super) fn deliver_whole(
        &mut self,
        parts: Parts,
        whole: (Bytes, Option<HeaderMap>),
        outcome: Outcome,
    ) {
        let parts = with_outcome(parts, outcome);
        let response = answer::complete(parts, whole, self.asked.wanted());
        self.deliver(Delivery::Response(response));
    }

    pub(super) fn deliver_passed(&mut self, parts: Parts, body: B, detail: &'static str) {
        let outcome = Outcome::forward(self.reason(), End::Unstored).because(detail);
        let parts = with_outcome(parts, outcome);
        let hint = body.size_hint();
        let body = (Body::passed(body), &hint);
        let response = answer::opening(parts, body, self.asked.wanted());
        self.deliver(Delivery::Response(response));
    }

    pub(super) fn outcome(&self, judged: &Judged) -> Outcome {
        let forward = |end| Outcome::forward(self.reason(), end);
        match judged.fate {
            Fate::Stored(lifetime) => {
                if let Some(reason) = self.forfeited() {
                    return forward(End::Unstored).because(reason);
                }
                let ttl = i64::try_from(lifetime.fresh_for().as_secs()).unwrap_or(i64::MAX);
                forward(End::Stored { ttl })
            }
            Fate::Shared(detail) => forward(End::Unstored).because(detail),
            Fate::Failed(_) => forward(End::Unstored).because("failed"),
        }
    }

    /// Why neither tier will take what is built, as far as that is known already.
    fn forfeited(&self) -> Option<&'static str> {
        if self.keeper.as_ref().is_some_and(Keeper::is_lost) {
            return Some("lease-lost");
        }
        let began = self.pilot.flight().began;
        let tags = self.carried.as_deref().unwrap_or_default();
        let since = self.cache.purges().since(began, tags);
        (since != Since::Nothing).then_some("overtaken")
    }

    pub(super) fn deliver_response(&mut self, response: Response<Body<B>>, judged: &Judged) {
        let response = Delivery::Response(response);
        match judged.fate {
            Fate::Failed(_) => self.deliver_stale_or(response, Some(judged.head.status)),
            Fate::Stored(_) | Fate::Shared(_) => self.deliver(response),
        }
    }

    /// The response whose body is still growing; what comes back takes the part nobody shares.
    pub(super) fn deliver_leading(
        &mut self,
        unsent: Unsent,
        judged: &Judged,
    ) -> oneshot::Sender<Rest<B>> {
        let (rest, following) = oneshot::channel();
        let presence = self.pilot.flight().presence();
        let body = Body::leading(unsent.growing.reader(), unsent.hint, following, presence);
        let parts = with_outcome(unsent.parts, self.outcome(judged));
        let response = answer::opening(parts, (body, &unsent.hint), self.asked.wanted());
        self.deliver_response(response, judged);
        rest
    }

    /// What nobody shares goes to the starter, behind what it shared.
    pub(super) fn hand_over(&mut self, judged: &Judged, drained: Drained<B>, starter: Starter<B>) {
        let rest = match starter {
            Starter::Reads(rest) => rest,
            Starter::Waits(unsent) => self.deliver_leading(unsent, judged),
        };
        if let Some(drained) = drained.into_rest() {
            // A starter that has gone away does not want it.
            drop(rest.send(drained));
        }
    }
}

/// A response that its starter has not got yet.
pub(super) struct Unsent {
    pub(super) parts: Parts,
    pub(super) growing: Growing,
    pub(super) hint: SizeHint,
}

/// Where the request that started the build is.
pub(super) enum Starter<B> {
    Waits(Unsent),
    Reads(oneshot::Sender<Rest<B>>),
}

pub(super) fn with_outcome(mut parts: Parts, outcome: Outcome) -> Parts {
    outcome.write(&mut parts.headers);
    parts
}
