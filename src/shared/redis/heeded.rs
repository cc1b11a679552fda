//! Counting the processes that have heeded a purge.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::watch;

use super::events::Answer;
use crate::token::Token;

/// The purges of this process that it waits to be heeded, by name.
#[derive(Debug, Default)]
pub(super) struct Heeded {
    expected: Mutex<HashMap<Token, Expected>>,
}

#[derive(Debug)]
struct Expected {
    count: Weak<watch::Sender<usize>>,
    /// Each process counts once, however often it answers.
    heard: HashSet<Token>,
}

impl Heeded {
    /// Registers a purge: its name, and the count of those who answer. Dropped, the count ends.
    pub(super) fn expect(&self) -> (Token, Arc<watch::Sender<usize>>) {
        let purge = Token::label();
        let count = Arc::new(watch::Sender::new(0));
        let mut all = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, expected| expected.count.strong_count() > 0);
        let expected = Expected {
            count: Arc::downgrade(&count),
            heard: HashSet::new(),
        };
        all.insert(purge.clone(), expected);
        (purge, count)
    }

    /// One more process has heeded a purge.
    pub(super) fn answered(&self, Answer { process, purge }: &Answer) {
        let mut all = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(expected) = all.get_mut(purge) else {
            return;
        };
        let count = expected.count.upgrade();
        if let Some(count) = count.filter(|_| expected.heard.insert(process.clone())) {
            count.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(purge: &Token) -> Answer {
        Answer {
            process: Token::label(),
            purge: purge.clone(),
        }
    }

    #[test]
    fn answers_are_counted_for_their_own_purge_while_somebody_waits() {
        let heeded = Heeded::default();
        let (one, of_one) = heeded.expect();
        let (_other, of_other) = heeded.expect();

        heeded.answered(&answer(&one));
        heeded.answered(&answer(&one));
        heeded.answered(&answer(&Token::label()));

        assert_eq!((*of_one.borrow(), *of_other.borrow()), (2, 0));
        drop((of_one, of_other));
        heeded.answered(&answer(&one));
        let _next = heeded.expect();
        assert_eq!(heeded.expected.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_process_that_answers_twice_counts_once() {
        let heeded = Heeded::default();
        let (purge, count) = heeded.expect();
        let answer = answer(&purge);

        heeded.answered(&answer);
        heeded.answered(&answer);

        assert_eq!(*count.borrow(), 1);
    }
}
