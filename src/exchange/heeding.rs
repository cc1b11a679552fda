//! What a flight's news are to one of the requests in it.

use std::sync::Arc;

use http::{HeaderMap, Response};
use tokio::time::Instant;

use super::{Exchange, Intent, Waited};
use crate::{
    answer,
    body::Body,
    entry::{self, Entry, Fields},
    flight::{Failure, News, Seat, Verdict},
    status::{End, Forward, Outcome},
};

impl<S, ReqBody> Exchange<S, ReqBody> {
    /// Acts on the flight's news as one of its waiters.
    pub(super) fn heed<B, E>(&mut self, news: News, seat: &Seat) -> Waited<B, E> {
        match news {
            News::Streaming(stream) if !stream.may_answer(seat.joined, self.cache.purges()) => {
                // It goes on for those who were here before a purge.
                seat.close();
                Waited::Again
            }
            News::Streaming(stream) if !self.opens(&stream.head.headers) => {
                Waited::Free(Forward::Request, "authorization")
            }
            News::Streaming(stream) if stream.head.fits(&self.asked.headers) => {
                let outcome = Outcome::forward(self.reason(), End::Collapsed);
                self.cache.count().collapsed();
                Waited::Answered(answer::from_stream(
                    (&stream, seat.presence()),
                    self.asked.wanted(),
                    outcome,
                ))
            }
            News::Streaming(stream) => self.elsewhere(stream.head.fields()),
            News::Elsewhere(fields) => self.elsewhere(Some(fields)),
            News::Found(_) if self.intent == Intent::Renew => {
                // It is for those who take what there is.
                seat.close();
                Waited::Again
            }
            News::Found(entry) => match self.use_found(&entry, seat) {
                Waited::Answered(response) => Waited::Found(response, entry),
                waited => waited,
            },
            News::Awaited(entry) => self.use_found(&entry, seat),
            News::Landed(verdict) => self.accept(verdict, seat),
        }
    }

    /// What an entry of the shared tier is to this request.
    fn use_found<B, E>(&mut self, entry: &Entry, seat: &Seat) -> Waited<B, E> {
        match self.use_of(entry, seat) {
            Use::Answer if !self.asked.takes(entry, Instant::now()) => {
                seat.close();
                Waited::Again
            }
            Use::Answer => Waited::Answered(self.hit(entry)),
            Use::Elsewhere => self.elsewhere(entry.head.fields()),
            Use::Closed => Waited::Free(Forward::Request, "authorization"),
            Use::None => Waited::Again,
        }
    }

    fn accept<B, E>(&mut self, verdict: Verdict, seat: &Seat) -> Waited<B, E> {
        match verdict {
            Verdict::Stored(entry) if !self.is_new_enough(&entry) => {
                // It had landed before: the flight has found it in the local tier.
                seat.close();
                Waited::Again
            }
            Verdict::Stored(entry) | Verdict::Shared(entry) | Verdict::Invalidated(entry) => {
                match self.use_of(&entry, seat) {
                    Use::Answer => Waited::Answered(self.collapsed(&entry)),
                    Use::Elsewhere => self.elsewhere(entry.head.fields()),
                    Use::Closed => Waited::Free(Forward::Request, "authorization"),
                    Use::None => Waited::Again,
                }
            }
            Verdict::Uncacheable => Waited::Free(self.reason(), "uncacheable"),
            Verdict::TooLarge => Waited::Free(self.reason(), "too-large"),
            Verdict::Failed(failure) => {
                let outcome = |ttl| {
                    Outcome::forward(self.reason(), End::CollapsedStoodIn { ttl })
                        .because("stale-if-error")
                };
                Waited::Answered(self.failed(&failure, outcome))
            }
            Verdict::Abandoned => Waited::Again,
        }
    }

    /// Who renews an entry wants another one.
    fn is_new_enough(&self, entry: &Arc<Entry>) -> bool {
        let is_another = |known: &Arc<Entry>| !Arc::ptr_eq(known, entry);
        self.intent == Intent::Answer || self.stale.as_ref().is_none_or(is_another)
    }

    /// What an entry that the flight has come to is to this request.
    fn use_of(&self, entry: &Entry, seat: &Seat) -> Use {
        let came_late = self.asked.arrived > entry.lifetime.received;
        if !entry.head.fits(&self.asked.headers) {
            Use::Elsewhere
        } else if !self.opens(&entry.head.headers) {
            Use::Closed
        } else if !entry.may_answer(seat.joined, self.cache.purges())
            || came_late && !entry.worth(Instant::now()).answers()
        {
            // The flight is still there, but not for those who come now.
            seat.close();
            Use::None
        } else {
            Use::Answer
        }
    }

    pub(super) fn opens(&self, headers: &HeaderMap) -> bool {
        self.policy.opens(headers, self.asked.authorization)
    }

    /// Looks again under the variant that this request asks for.
    fn elsewhere<B, E>(&mut self, fields: Option<Fields>) -> Waited<B, E> {
        if let Some(fields) = fields {
            self.key = self
                .resource
                .variant(&entry::values(&fields, &self.asked.headers));
            let known = self.cache.local().entry(&self.key, self.cache.purges());
            self.stale = known.filter(|known| self.opens(&known.head.headers));
        }
        Waited::Again
    }

    fn hit<B>(&self, entry: &Entry) -> Response<Body<B>> {
        self.cache.count().shared_hit();
        let now = Instant::now();
        let outcome = Outcome::hit(entry.ttl(now));
        answer::from_entry(entry, self.asked.wanted(), now, outcome)
    }

    fn collapsed<B>(&self, entry: &Entry) -> Response<Body<B>> {
        let now = Instant::now();
        self.cache.count().collapsed();
        let outcome = Outcome::forward(self.reason(), End::Collapsed);
        answer::from_entry(entry, self.asked.wanted(), now, outcome)
    }

    /// A failure that others share: a stale entry if it may stand in, else the failure itself.
    pub(super) fn failed<B>(
        &self,
        failure: &Failure,
        outcome: impl FnOnce(i64) -> Outcome,
    ) -> Response<Body<B>> {
        self.stale_fallback(outcome).unwrap_or_else(|| {
            self.cache.count().failed();
            let usable = failure.usable(|entry| {
                entry.head.fits(&self.asked.headers)
                    && self.opens(&entry.head.headers)
                    && entry.is_valid(self.cache.purges())
            });
            let (wanted, reason) = (self.asked.wanted(), self.reason());
            match usable {
                Ok(failure) => answer::failed(failure, wanted, reason),
                Err(status) => answer::failed(&Failure::Status(status), wanted, reason),
            }
        })
    }
}

/// Whether an entry answers a request.
enum Use {
    Answer,
    /// Another variant does.
    Elsewhere,
    /// It is not meant for requests with credentials.
    Closed,
    None,
}
