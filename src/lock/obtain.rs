//! The way of one acquisition: try, stand in line, be woken, try again.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    attempt::Attempt,
    backend::{Busy, Claim, Grant, Key, Mode, Obstacle, Queueing, Terms},
    error::{Error, ErrorKind, Operation},
    guard::Guard,
    inflight::InFlight,
    line::{Due, LineKey},
    manager::{failed, first, too_late},
    plan::{Patience, Plan},
    retry::Retry,
};

/// An attempt that was sent in time may be answered so much later.
const GRACE: std::time::Duration = std::time::Duration::from_millis(10);

/// One attempt, as far as there is time for it.
pub(super) async fn once(plan: &Plan) -> Result<Attempt, Error> {
    plan.shared.check_open()?;
    if plan.is_over() {
        return Ok(Attempt::Busy(too_late()));
    }
    let claim = plan.claim()?;
    let mut terms = plan.terms_now();
    terms.queue = Queueing::Silent;
    let attempt = attempt(plan, &claim, &terms, plan.deadline).await;
    attempt.map_err(|error| refused(&claim, error))
}

/// Attempts until one succeeds or the plan's patience is at its end.
pub(super) async fn obtain(plan: &Plan) -> Result<Attempt, Error> {
    match &plan.patience {
        Patience::Once => once(plan).await,
        Patience::Poll(retry) => poll(plan, retry).await,
        Patience::Listen => listen(plan).await,
    }
}

async fn poll(plan: &Plan, retry: &Retry) -> Result<Attempt, Error> {
    let mut wait = Wait::start(plan)?;
    for pause in retry.pauses() {
        if let Some(done) = wait.attempt().await? {
            return Ok(done);
        }
        let pause_ends = Instant::now().checked_add(pause);
        let over = |deadline| pause_ends.is_none_or(|end| end >= deadline);
        if plan.deadline.is_some_and(over) {
            wait.deadline().await?;
            return wait.given_up(End::Deadline);
        }
        tokio::select! {
            () = plan.shared.closed() => return Err(closed(plan)),
            () = until(pause_ends) => {}
        }
    }
    match wait.attempt().await? {
        Some(done) => Ok(done),
        None => wait.given_up(End::Strategy),
    }
}

async fn listen(plan: &Plan) -> Result<Attempt, Error> {
    let mut wait = Wait::start(plan)?;
    let mut due = Due::Now;
    // A token of one's own may hold the lock already, which only an attempt can tell; everyone else
    // stands behind those who wait.
    if plan.token.is_some() {
        if let Some(done) = wait.attempt().await? {
            return Ok(done);
        }
        due = Due::Later;
    }
    let watch = |key: &Key| plan.shared.backend.watch(key, plan.mode.family());
    let mut place = plan.shared.lines.join(wait.line(), due);
    loop {
        tokio::select! {
            biased;
            () = plan.shared.closed() => return Err(closed(plan)),
            turn = place.turn(watch) => turn.map_err(|error| wait.failed(error.during(Operation::Watch)))?,
            () = until(plan.deadline) => return wait.given_up(End::Deadline),
        }
        match wait.attempt().await? {
            None => place.missed(wait.busy.and_then(|busy| busy.free_in())),
            Some(done) => {
                let next = match plan.mode {
                    // Where one reader came in, the next one can.
                    Mode::Read => Due::Now,
                    Mode::Exclusive | Mode::Write => Due::Later,
                };
                place.served(next, plan.terms.ttl.duration());
                return Ok(done);
            }
        }
    }
}

/// What is kept between the attempts of one wait.
struct Wait<'a> {
    plan: &'a Plan,
    claim: Claim,
    /// A writer that holds back readers must be forgotten when it gives up.
    announced: Option<InFlight>,
    busy: Option<Busy>,
    error: Option<Error>,
}

#[derive(Clone, Copy)]
enum End {
    Deadline,
    Strategy,
}

impl<'a> Wait<'a> {
    fn start(plan: &'a Plan) -> Result<Self, Error> {
        Ok(Self {
            plan,
            claim: plan.claim()?,
            announced: None,
            busy: None,
            error: None,
        })
    }

    /// `None`: not yet. An error: there is no use in waiting.
    async fn attempt(&mut self) -> Result<Option<Attempt>, Error> {
        self.plan.shared.check_open()?;
        if self.plan.is_over() {
            self.busy.get_or_insert_with(too_late);
            return Ok(None);
        }
        let terms = self.plan.terms_now();
        if terms.queue != Queueing::Silent && self.announced.is_none() {
            self.announced = Some(InFlight::new(&self.plan.shared.backend, &self.claim));
        }
        match attempt(self.plan, &self.claim, &terms, self.plan.deadline).await {
            Ok(Attempt::Busy(busy)) => {
                self.busy = Some(busy);
                self.error = None;
                Ok(None)
            }
            Ok(done) => {
                if let Some(announced) = self.announced.take() {
                    announced.settle();
                }
                Ok(Some(done))
            }
            Err(error) if error.is_transient() && self.plan.deadline.is_some() => {
                // What has an unknown outcome is being taken back: the next attempt is another one.
                self.claim = self.plan.claim()?;
                self.announced = None;
                self.busy = None;
                self.error = Some(error);
                Ok(None)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    async fn deadline(&self) -> Result<(), Error> {
        tokio::select! {
            () = self.plan.shared.closed() => Err(closed(self.plan)),
            () = until(self.plan.deadline) => Ok(()),
        }
    }

    fn given_up(mut self, end: End) -> Result<Attempt, Error> {
        match (self.error.take(), end) {
            (Some(error), _) => Err(self.failed(error)),
            (None, End::Deadline) => Ok(Attempt::Busy(
                self.busy.unwrap_or_else(too_late).at_deadline(),
            )),
            (None, End::Strategy) => Ok(Attempt::Busy(self.busy.unwrap_or_else(too_late))),
        }
    }

    fn line(&self) -> LineKey {
        let promotion = self.busy.map(|busy| busy.obstacle()) == Some(Obstacle::OtherReaders);
        let token = promotion.then(|| self.claim.token().clone());
        (Arc::clone(&self.plan.keys), self.plan.mode, token)
    }

    fn failed(&self, error: Error) -> Error {
        refused(&self.claim, error)
    }
}

/// One attempt that leaves nothing behind unless it is granted, whatever happens to it.
async fn attempt(
    plan: &Plan,
    claim: &Claim,
    terms: &Terms,
    deadline: Option<Instant>,
) -> Result<Attempt, Error> {
    let backend = &plan.shared.backend;
    let in_flight = InFlight::new(backend, claim);
    let sent = Instant::now();
    let call = backend.acquire(claim, terms);
    let answer = match deadline.and_then(|deadline| deadline.checked_add(GRACE)) {
        Some(end) => timeout_at(end, call)
            .await
            .unwrap_or_else(|late| Err(Error::unknown(late))),
        None => call.await,
    };
    match answer {
        Ok(Grant::Granted { fence }) => {
            if terms
                .ttl
                .duration()
                .is_some_and(|ttl| sent.elapsed() >= ttl)
            {
                return Err(Error::new(ErrorKind::TooLate));
            }
            let guard = Guard::new(plan, claim, terms.ttl, sent, fence);
            in_flight.settle();
            Ok(Attempt::Acquired(guard))
        }
        Ok(Grant::Withdrawn) => Err(Error::new(ErrorKind::TooLate)),
        Ok(Grant::AlreadyHeld(remaining)) => {
            in_flight.settle();
            Ok(Attempt::AlreadyHeld(remaining))
        }
        Ok(Grant::Busy(busy)) => {
            in_flight.settle();
            Ok(Attempt::Busy(busy))
        }
        Err(error) => {
            if !error.outcome_unknown() {
                in_flight.settle();
            }
            Err(error)
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn closed(plan: &Plan) -> Error {
    let error = Error::new(ErrorKind::Closed).during(Operation::Acquire);
    match plan.keys.first() {
        Some(key) => error.on(key),
        None => error,
    }
}

fn refused(claim: &Claim, error: Error) -> Error {
    let token = Some(claim.token());
    failed(Operation::Acquire, first(claim), token, error)
}
