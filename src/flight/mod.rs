//! Single flight within one process: all requests for one key share one build.
//!
//! ```text
//!   join ──► Starter ── spawns the flight's task, which holds the Pilot ─┐
//!        └─► Waiter                                                      │
//!                 every one of them holds a Seat and waits for ◄─ news ──┘
//! ```
//!
//! Nobody in a flight owns it: the task does. A request that goes away drops its [`Seat`]; the
//! flight's task decides what an empty flight means. A flight that no longer takes newcomers is
//! sealed: the next request starts another one under the same key, and the old one, when it ends,
//! removes only itself.
//!
//! The locks are `std`'s, held for a few lines and never across an await.

mod news;
mod state;
mod table;

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::Poll,
};

use tokio::sync::Notify;
use tracing::Span;

use self::state::State;
pub(crate) use self::{
    news::{Failure, LARGEST_FAILURE, News, Stream, Verdict},
    state::{Left, Turned},
    table::{Flights, Joined, Limits},
};
use crate::{key::Key, purges::Moment};

/// All requests of this process that share one build of one key.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) key: Key,
    /// What had been purged when the flight began.
    pub(crate) began: Moment,
    occupancy: Arc<Occupancy>,
    /// What it last told.
    news: Mutex<Option<News>>,
    /// Those who wait for the first of it, in the order in which they came.
    line: Notify,
    span: OnceLock<Span>,
}

/// Who is in a flight, and the moment when nobody is.
#[derive(Debug, Default)]
struct Occupancy {
    state: Mutex<State>,
    emptied: Notify,
}

impl Occupancy {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, left: Left) {
        if left == Left::Last {
            self.emptied.notify_one();
        }
    }
}

impl Flight {
    fn new(key: Key, began: Moment) -> Self {
        Self {
            key,
            began,
            occupancy: Arc::default(),
            news: Mutex::default(),
            line: Notify::new(),
            span: OnceLock::new(),
        }
    }

    /// Notes the span of the flight's task, which is set once.
    pub(crate) fn runs_in(&self, span: &Span) {
        self.span.get_or_init(|| span.clone());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.occupancy.state()
    }

    /// A place for one who reads what the flight produces.
    pub(crate) fn presence(&self) -> Presence {
        self.state().begin_reading();
        Presence(Arc::clone(&self.occupancy))
    }

    /// Takes no newcomers from now on.
    pub(crate) fn seal(&self) {
        self.state().seal();
    }

    /// Tells everybody in the flight, and those who come while it is open.
    pub(crate) fn tell(&self, news: News) {
        let _before = self.news().replace(news);
        // All at once, whatever their runtimes are busy with: none depends on another one's being run.
        self.line.notify_waiters();
    }

    fn news(&self) -> MutexGuard<'_, Option<News>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody is in the flight, and seals it in that moment. Whoever has something left to
    /// do for those who come later keeps a [`Presence`](Self::presence) meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, the flight stays open.
    pub(crate) async fn sealed_empty(&self) {
        while !self.state().seal_if_empty() {
            self.occupancy.emptied.notified().await;
        }
    }
}

/// One request's place in a flight; dropped, the request has left.
#[derive(Debug)]
pub(crate) struct Seat {
    flight: Arc<Flight>,
    /// What had been purged when the request came.
    pub(crate) joined: Moment,
    _place: table::Place,
}

impl Seat {
    /// Lets nobody else into the flight.
    pub(crate) fn close(&self) {
        self.flight.seal();
    }

    /// Has `span` follow from that of the flight.
    pub(crate) fn lead(&self, span: &Span) {
        if let Some(flight) = self.flight.span.get() {
            span.follows_from(flight);
        }
    }

    /// The place that its holder keeps while it reads what the flight produces.
    pub(crate) fn presence(&self) -> Presence {
        self.flight.presence()
    }

    /// The flight's first news, or at once what it last told.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, nothing is missed but the place in the line: news stay.
    pub(crate) async fn news(&self) -> News {
        let mut place = pin!(self.flight.line.notified());
        let news = poll_fn(|context| {
            // In the line before it looks: news between the two wake it. Whatever wakes it, it looks.
            let _its_turn = place.as_mut().poll(context);
            match &*self.flight.news() {
                Some(news) => Poll::Ready(news.clone()),
                None => Poll::Pending,
            }
        });
        news.await
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let left = self.flight.state().leave();
        self.flight.occupancy.note(left);
    }
}

/// The place in a flight of one who reads a body while it grows; dropped, the reader has left.
///
/// It does not keep alive what the flight last told.
#[derive(Debug)]
pub(crate) struct Presence(Arc<Occupancy>);

impl Drop for Presence {
    fn drop(&mut self) {
        let left = self.0.state().stop_reading();
        self.0.note(left);
    }
}

/// The flight's task's own end of it: dropped, the flight leaves the table, and if nothing was told
/// those in it start over, or share the failure of a task that panicked.
#[derive(Debug)]
pub(crate) struct Pilot {
    flight: Arc<Flight>,
    table: Flights,
}

impl Pilot {
    pub(crate) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.flight.seal();
        self.table.remove(&self.flight);
        // Nobody else tells: it is the task's own end.
        let untold = self.flight.news().is_none();
        if untold {
            self.flight.tell(News::Landed(Verdict::untold()));
        }
    }
}

#[cfg(test)]
mod tests;
