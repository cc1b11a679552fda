//! A listener's queue of signals: bounded, and honest about what it dropped.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

use super::Signal;

/// A listener that falls further behind is told of a gap instead.
const CAPACITY: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    signals: Mutex<VecDeque<Signal>>,
    filled: Notify,
}

impl Mailbox {
    pub(super) fn post(&self, signal: Signal) {
        self.with(|signals| {
            if signals.len() >= CAPACITY {
                signals.clear();
                signals.extend([Signal::Lost, Signal::Subscribed]);
            }
            match (signals.back(), &signal) {
                (Some(Signal::Lost), Signal::Lost)
                | (Some(Signal::Subscribed), Signal::Subscribed) => {}
                _ => signals.push_back(signal),
            }
        });
        self.filled.notify_one();
    }

    pub(super) fn take(&self) -> Option<Signal> {
        self.with(VecDeque::pop_front)
    }

    /// Returns when something may have come in since the last [`take`](Self::take).
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<Signal>) -> T) -> T {
        work(&mut self.signals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn message(number: usize) -> Signal {
        Signal::Message(Bytes::from(number.to_string()))
    }

    fn drain(mailbox: &Mailbox) -> Vec<Signal> {
        std::iter::from_fn(|| mailbox.take()).collect()
    }

    #[test]
    fn signals_come_out_in_order() {
        let mailbox = Mailbox::default();

        mailbox.post(Signal::Subscribed);
        mailbox.post(message(1));
        mailbox.post(Signal::Lost);
        mailbox.post(Signal::Subscribed);

        assert!(matches!(
            drain(&mailbox)[..],
            [
                Signal::Subscribed,
                Signal::Message(_),
                Signal::Lost,
                Signal::Subscribed
            ]
        ));
    }

    #[test]
    fn a_slow_listener_hears_of_a_gap_and_then_the_newest_messages() {
        let mailbox = Mailbox::default();

        for number in 0..=CAPACITY {
            mailbox.post(message(number));
        }

        let signals = drain(&mailbox);
        assert!(matches!(signals[..2], [Signal::Lost, Signal::Subscribed]));
        assert!(matches!(&signals[2..], [Signal::Message(last)] if *last == CAPACITY.to_string()));
    }

    #[test]
    fn a_gap_told_twice_is_one_gap() {
        let mailbox = Mailbox::default();

        mailbox.post(Signal::Lost);
        mailbox.post(Signal::Lost);

        assert!(matches!(drain(&mailbox)[..], [Signal::Lost]));
    }
}
