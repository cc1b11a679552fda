//! A circuit breaker: after enough failures nobody tries for a while, and then one does.
//!
//! ```text
//!            5 failures in a row, or half of the last 20
//!   Closed ----------------------------------------------> Open
//!     ^                                                    |  ^
//!     | the probe succeeded          250 to 500 ms passed  v  | it failed
//!     +------------------------------------------------- Probing
//! ```
//!
//! Outcomes of work that was admitted before the last change count for nothing, so that a thousand requests
//! that fail together open it once.

use std::{
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::notice::{Bulletin, Effect};

const FAILURES_IN_A_ROW: u32 = 5;
const WINDOW: u32 = 20;
const FAILURES_IN_WINDOW: u32 = WINDOW / 2;
const COOL_DOWN: Duration = Duration::from_millis(250);

/// Admits work while it is worth trying. Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    name: &'static str,
    circuit: Arc<Mutex<Circuit>>,
}

/// What a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// All.
    Closed,
    /// Nothing, for a while.
    Open,
    /// Nothing but the one probe under way.
    Probing,
}

/// The breaker is open: do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl Breaker {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            circuit: Arc::default(),
        }
    }

    /// Admits one piece of work, whose outcome the permit reports.
    ///
    /// # Errors
    ///
    /// [`Refused`] while the breaker is open or its probe is under way.
    pub(crate) fn admit(&self) -> Result<Permit, Refused> {
        let round = self.with(|circuit| circuit.admit(Instant::now()))?;
        Ok(Permit {
            breaker: self.clone(),
            round: Some(round),
        })
    }

    pub(crate) fn standing(&self) -> Standing {
        self.with(|circuit| circuit.standing())
    }

    fn with<T>(&self, work: impl FnOnce(&mut Circuit) -> T) -> T {
        work(&mut self.circuit.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Work under way. Dropped without an outcome it says nothing, and a probe leaves its place to the next.
#[must_use = "the outcome decides whether others may try"]
#[derive(Debug)]
pub(crate) struct Permit {
    breaker: Breaker,
    /// Taken when the outcome is reported.
    round: Option<Round>,
}

impl Permit {
    pub(crate) fn succeeded(mut self) {
        let Some(round) = self.round.take() else {
            return;
        };
        if self.breaker.with(|circuit| circuit.succeeded(round)) == Effect::News {
            tracing::info!(breaker = self.breaker.name, "closed: all may try again");
        }
    }

    /// What was the matter is told when the breaker opens.
    pub(crate) fn failed(mut self, cause: impl Display) {
        let Some(round) = self.round.take() else {
            return;
        };
        let effect = self
            .breaker
            .with(|circuit| circuit.failed(round, Instant::now(), fastrand::f64()));
        if effect == Effect::News {
            tracing::warn!(
                breaker = self.breaker.name,
                %cause,
                "opened: nobody tries for a while"
            );
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(round) = self.round.take() {
            self.breaker
                .with(|circuit| circuit.given_up(round, Instant::now()));
        }
    }
}

/// The state, without a clock of its own.
#[derive(Debug, Default)]
struct Circuit {
    round: Round,
    state: State,
    bulletin: Bulletin,
}

/// Counts the changes of state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round(u64);

#[derive(Debug)]
enum State {
    Closed(Tally),
    Open { until: Instant },
    Probing,
}

impl Default for State {
    fn default() -> Self {
        Self::Closed(Tally::default())
    }
}

impl Circuit {
    fn admit(&mut self, now: Instant) -> Result<Round, Refused> {
        match self.state {
            State::Closed(_) => Ok(self.round),
            State::Open { until } if until <= now => {
                self.enter(State::Probing);
                Ok(self.round)
            }
            State::Open { .. } | State::Probing => Err(Refused),
        }
    }

    fn succeeded(&mut self, round: Round) -> Effect {
        if round != self.round {
            return Effect::None;
        }
        match &mut self.state {
            State::Closed(tally) => {
                tally.success();
                Effect::None
            }
            State::Probing => {
                self.enter(State::default());
                self.bulletin.works()
            }
            State::Open { .. } => Effect::None,
        }
    }

    /// `unit`: a random number from 0 to 1, so that the workers of a fleet do not probe in step.
    fn failed(&mut self, round: Round, now: Instant, unit: f64) -> Effect {
        if round != self.round {
            return Effect::None;
        }
        if let State::Closed(tally) = &mut self.state {
            tally.failure();
            if !tally.is_bad() {
                return Effect::None;
            }
        }
        let until = now + COOL_DOWN + COOL_DOWN.mul_f64(unit.clamp(0.0, 1.0));
        self.enter(State::Open { until });
        self.bulletin.fails(now)
    }

    fn given_up(&mut self, round: Round, now: Instant) {
        if round == self.round && matches!(self.state, State::Probing) {
            self.enter(State::Open { until: now });
        }
    }

    fn standing(&self) -> Standing {
        match self.state {
            State::Closed(_) => Standing::Closed,
            State::Open { .. } => Standing::Open,
            State::Probing => Standing::Probing,
        }
    }

    fn enter(&mut self, state: State) {
        self.round.0 += 1;
        self.state = state;
    }
}

/// The last outcomes while closed.
#[derive(Debug, Default)]
struct Tally {
    in_a_row: u32,
    seen: u32,
    /// One bit for each of the last outcomes; set: it failed.
    window: u32,
}

impl Tally {
    fn success(&mut self) {
        self.in_a_row = 0;
        self.push(0);
    }

    fn failure(&mut self) {
        self.in_a_row += 1;
        self.push(1);
    }

    fn push(&mut self, bit: u32) {
        self.seen = (self.seen + 1).min(WINDOW);
        self.window = ((self.window << 1) | bit) & ((1 << WINDOW) - 1);
    }

    fn is_bad(&self) -> bool {
        let half = self.seen == WINDOW && self.window.count_ones() >= FAILURES_IN_WINDOW;
        self.in_a_row >= FAILURES_IN_A_ROW || half
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn fail(breaker: &Breaker, times: u32) {
        for _ in 0..times {
            breaker.admit().unwrap().failed("broken");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_open_it() {
        let breaker = Breaker::new("test");

        fail(&breaker, 4);
        assert_eq!(breaker.standing(), Standing::Closed);
        fail(&breaker, 1);

        assert_eq!(breaker.standing(), Standing::Open);
        assert_eq!(breaker.admit().unwrap_err(), Refused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_starts_the_count_anew() {
        let breaker = Breaker::new("test");

        fail(&breaker, 4);
        breaker.admit().unwrap().succeeded();
        fail(&breaker, 4);

        assert_eq!(breaker.standing(), Standing::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_last_twenty_open_it_though_none_follow_each_other() {
        let breaker = Breaker::new("test");

        for _ in 0..9 {
            breaker.admit().unwrap().succeeded();
            breaker.admit().unwrap().failed("broken");
        }
        breaker.admit().unwrap().succeeded();
        assert_eq!(breaker.standing(), Standing::Closed);
        breaker.admit().unwrap().failed("broken");

        assert_eq!(breaker.standing(), Standing::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_goes_through_after_the_cool_down() {
        let breaker = Breaker::new("test");
        fail(&breaker, 5);
        advance(COOL_DOWN / 2).await;
        assert_eq!(breaker.admit().unwrap_err(), Refused);

        advance(2 * COOL_DOWN).await;
        let probe = breaker.admit().unwrap();
        assert_eq!(breaker.admit().unwrap_err(), Refused);
        probe.succeeded();

        assert_eq!(breaker.standing(), Standing::Closed);
        fail(&breaker, 4);
        assert_eq!(breaker.standing(), Standing::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_probe_opens_it_for_another_cool_down() {
        let breaker = Breaker::new("test");
        fail(&breaker, 5);
        advance(2 * COOL_DOWN).await;

        breaker.admit().unwrap().failed("broken");

        assert_eq!(breaker.admit().unwrap_err(), Refused);
        advance(2 * COOL_DOWN).await;
        breaker.admit().unwrap().succeeded();
        assert_eq!(breaker.standing(), Standing::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_probe_leaves_its_place_to_the_next() {
        let breaker = Breaker::new("test");
        fail(&breaker, 5);
        advance(2 * COOL_DOWN).await;

        drop(breaker.admit().unwrap());

        breaker.admit().unwrap().succeeded();
        assert_eq!(breaker.standing(), Standing::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn outcomes_of_an_earlier_round_count_for_nothing() {
        let breaker = Breaker::new("test");
        let (early_success, early_failure) = (breaker.admit().unwrap(), breaker.admit().unwrap());
        fail(&breaker, 5);

        early_success.succeeded();
        assert_eq!(breaker.standing(), Standing::Open);
        advance(2 * COOL_DOWN).await;
        let probe = breaker.admit().unwrap();
        early_failure.failed("broken");

        assert_eq!(breaker.standing(), Standing::Probing);
        probe.succeeded();
        assert_eq!(breaker.standing(), Standing::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_work_says_nothing() {
        let breaker = Breaker::new("test");
        fail(&breaker, 4);

        drop(breaker.admit().unwrap());

        fail(&breaker, 1);
        assert_eq!(breaker.standing(), Standing::Open);
    }
}
