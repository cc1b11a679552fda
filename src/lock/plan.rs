//! A request whose arguments have been checked: what is asked for, and for how long.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    acquire::{Acquire, Preference},
    backend::{Claim, Key, Mode, Queueing, Terms, Ttl},
    error::Error,
    guard::OnDrop,
    limits::{self, Fault},
    manager::Shared,
    retry::Retry,
    token::Token,
};

/// For so long after its latest attempt a preferred writer holds back new readers: longer than the
/// longest pause between two attempts.
const HOLD_BACK: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) shared: Arc<Shared>,
    pub(super) keys: Arc<[Key]>,
    pub(super) mode: Mode,
    pub(super) token: Option<Token>,
    pub(super) terms: Terms,
    pub(super) patience: Patience,
    /// When waiting ends.
    pub(super) deadline: Option<Instant>,
    pub(super) renewal: Renewal,
    pub(super) on_drop: OnDrop,
    metadata: Bytes,
    /// When the lock shall end at the latest.
    end: Option<Instant>,
}

/// How to go on after a refusal.
#[derive(Clone, Debug)]
pub(super) enum Patience {
    Once,
    Listen,
    Poll(Retry),
}

/// Whether a lock is extended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    Off,
    AtAThird,
}

impl Plan {
    pub(super) fn new(request: &Acquire) -> Result<Self, Error> {
        let keys = request.keys.clone()?;
        let ttl = request.ttl?;
        let wait = request.wait.map(limits::wait).transpose()?;
        if let Some(token) = &request.token {
            token.check()?;
        }
        if request.metadata.len() > limits::MAX_METADATA {
            return Err(Fault::MetadataTooLong.into());
        }
        if request.renewal == Renewal::AtAThird {
            limits::renewal(ttl.duration().ok_or(Fault::PersistentRenewal)?)?;
        }
        let wait = wait.filter(|wait| !wait.is_zero());
        let patience = patience(request);
        Ok(Self {
            shared: Arc::clone(&request.shared),
            keys,
            mode: request.mode,
            token: request.token.clone(),
            metadata: request.metadata.clone(),
            terms: Terms {
                ttl,
                reentry: request.reentry,
                fencing: request.fencing,
                queue: queueing(request, &patience),
            },
            deadline: deadline(request.deadline, wait, &patience, ttl),
            patience,
            end: request.deadline,
            renewal: request.renewal,
            on_drop: request.on_drop,
        })
    }

    /// A fresh attempt.
    pub(super) fn claim(&self) -> Result<Claim, Error> {
        Claim::new(
            Arc::clone(&self.keys),
            self.mode,
            self.token.clone(),
            self.metadata.clone(),
        )
    }

    /// The terms for an attempt that is made now: the lock ends before the deadline.
    pub(super) fn terms_now(&self) -> Terms {
        let mut terms = self.terms.clone();
        if let Some(end) = self.end {
            terms.ttl = terms
                .ttl
                .shortened(end.saturating_duration_since(Instant::now()));
        }
        terms
    }

    pub(super) fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }
}

fn queueing(request: &Acquire, patience: &Patience) -> Queueing {
    match (request.preference, request.mode, patience) {
        (Preference::Writer, Mode::Write, Patience::Listen | Patience::Poll(_)) => {
            Queueing::HoldBack(HOLD_BACK)
        }
        _ => Queueing::Silent,
    }
}

fn patience(request: &Acquire) -> Patience {
    match (&request.retry, request.wait, request.deadline) {
        (_, Some(Duration::ZERO), _) | (None, None, None) => Patience::Once,
        (Some(retry), _, _) => Patience::Poll(retry.clone()),
        (None, _, _) => Patience::Listen,
    }
}

/// The sooner of both ends; a strategy that has none waits no longer than the lock would live.
fn deadline(
    at: Option<Instant>,
    wait: Option<Duration>,
    patience: &Patience,
    ttl: Ttl,
) -> Option<Instant> {
    let cap = match (patience, wait, at) {
        (Patience::Poll(_), None, None) => ttl.duration(),
        _ => wait,
    };
    let waited = cap.and_then(|wait| Instant::now().checked_add(wait));
    match (at, waited) {
        (Some(at), Some(waited)) => Some(at.min(waited)),
        (at, waited) => at.or(waited),
    }
}
