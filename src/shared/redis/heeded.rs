//! Counting the processes that have heeded a purge.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::watch;

use super::events::Caller;
use crate::token::Token;

/// The purges of this process that it waits to be heeded.
#[derive(Debug)]
pub(super) struct Heeded {
    process: Token,
    counts: Mutex<HashMap<String, Weak<watch::Sender<usize>>>>,
}

impl Default for Heeded {
    fn default() -> Self {
        Self {
            process: Token::label(),
            counts: Mutex::default(),
        }
    }
}

impl Heeded {
    pub(super) fn process(&self) -> &Token {
        &self.process
    }

    /// Registers a purge: what its event says of the caller, and the count of those who answer.
    /// Dropped, the count ends.
    pub(super) fn expect(&self) -> (Caller, Arc<watch::Sender<usize>>) {
        let purge = Token::label();
        let count = Arc::new(watch::Sender::new(0));
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|_, count| count.strong_count() > 0);
        counts.insert(purge.as_str().to_owned(), Arc::downgrade(&count));
        let process = self.process.clone();
        (Caller { process, purge }, count)
    }

    /// One more process has heeded the purge of this name.
    pub(super) fn answered(&self, purge: &[u8]) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = std::str::from_utf8(purge)
            .ok()
            .and_then(|purge| counts.get(purge)?.upgrade());
        if let Some(count) = count {
            count.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_for_their_own_purge_while_somebody_waits() {
        let heeded = Heeded::default();
        let (one, of_one) = heeded.expect();
        let (_other, of_other) = heeded.expect();
        let one = one.purge.as_str().as_bytes();

        heeded.answered(one);
        heeded.answered(one);
        heeded.answered(Token::label().as_str().as_bytes());
        heeded.answered(b"\xff garbage");

        assert_eq!((*of_one.borrow(), *of_other.borrow()), (2, 0));
        drop((of_one, of_other));
        heeded.answered(one);
        let _next = heeded.expect();
        assert_eq!(heeded.counts.lock().unwrap().len(), 1);
    }
}
