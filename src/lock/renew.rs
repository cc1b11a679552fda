//! The task that extends a lock at a third of its time to live.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    backend::{Extension, Key, Ttl},
    guard::Held,
    limits,
    retry::backoff,
    standing::Standing,
};

/// Extends until the lock is lost. Its guard aborts it.
pub(super) async fn keep_alive(held: Arc<Held>, millis: u64, asked: Instant) {
    let ttl = Duration::from_millis(millis);
    let every = ttl / 3;
    let first = held.standing.borrow().left();
    let mut next = asked + first.map_or(every, |left| every.min(left / 3));
    let mut failed = 0;
    let mut standing_now = held.standing.subscribe();
    loop {
        due(next, &mut standing_now).await;
        let _turn = held.turn.lock().await;
        let sent = Instant::now();
        let standing = *held.standing.borrow();
        let end = match standing {
            Standing::Until(end) if end <= sent + limits::validity(ttl) => end,
            Standing::Lost | Standing::Ended => return,
            // Somebody gave it more time than a renewal would.
            Standing::Until(_) | Standing::Forever => {
                next = sent + every;
                continue;
            }
        };
        let change = Extension::Replace(Ttl::Millis(millis));
        let answer = held.shared.backend.extend(&held.holding, &change);
        // Whatever does not answer must not keep the loss from being seen.
        match timeout_at(end, answer).await {
            Ok(Ok(Some(_))) => {
                failed = 0;
                held.stand(Standing::from(Ttl::Millis(millis), sent));
                next = sent + every;
            }
            Ok(Ok(None)) => return lose(&held, "it had ended or is someone else's"),
            Ok(Err(error)) if Instant::now() < end => {
                failed += 1;
                tracing::debug!(%error, failed, "a lock could not be extended");
                next = end.min(Instant::now() + backoff(failed, every / 8, every));
            }
            Ok(Err(_)) | Err(_) => return lose(&held, "it could not be extended in time"),
        }
    }
}

/// Returns at `next`, or sooner if somebody lets the lock end sooner.
async fn due(mut next: Instant, standing: &mut watch::Receiver<Standing>) {
    loop {
        tokio::select! {
            () = sleep_until(next) => return,
            changed = standing.changed() => if changed.is_err() { return },
        }
        if let Some(left) = standing.borrow_and_update().left() {
            next = next.min(Instant::now() + left / 3);
        }
    }
}

fn lose(held: &Held, reason: &'static str) {
    held.stand(Standing::Lost);
    let key = held.holding.keys().first().map(Key::as_str);
    tracing::warn!(key, reason, "a lock was lost while it was in use");
}
