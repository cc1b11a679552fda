//! Messages that are not believed: they are counted and told of, and the server is asked what is true.
//!
//! One question answers all doubts that came before it, and the next one waits a little: a flood of
//! forged messages costs a process a few small commands each second, and its local entries nothing.

use std::{
    future::{Future, pending},
    mem,
    pin::Pin,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    events::{Caller, Flaw},
    record::{News, Record},
};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(50);

/// So many are answered, of those who have purged and were not believed at first.
const MOST_CALLERS: usize = 64;

/// For so long there is no doubtful message before people are told that there are no more.
const CALM: Duration = Duration::from_secs(60);

type Question = Pin<Box<dyn Future<Output = (Record, News)> + Send>>;

/// The doubts of one process.
pub(super) struct Doubts {
    /// With the question, while one is under way.
    record: Option<Record>,
    /// And who is to be told when its answer has been heeded.
    question: Option<(Question, Vec<Caller>)>,
    /// There are doubts that are to be asked about: who is to be told, of those who say that they have
    /// purged.
    waiting: Option<Vec<Caller>>,
    told: Told,
}

impl Doubts {
    pub(super) fn new(record: Record) -> Self {
        Self {
            record: Some(record),
            question: None,
            waiting: None,
            told: Told::default(),
        }
    }

    /// Begins anew, where nothing is left of what was known before.
    pub(super) fn renew(&mut self, record: Record) {
        self.record = Some(record);
        self.question = None;
        self.waiting = None;
    }

    /// Anything may have been purged, by `caller` say.
    pub(super) fn doubt(&mut self, caller: Option<Caller>) {
        let waiting = self.waiting.get_or_insert_default();
        if waiting.len() < MOST_CALLERS {
            waiting.extend(caller);
        }
        self.ask(Duration::ZERO);
    }

    fn ask(&mut self, pause: Duration) {
        let Some(callers) = self.waiting.take() else {
            return;
        };
        let Some(mut record) = self.record.take() else {
            self.waiting = Some(callers);
            return;
        };
        let question = async move {
            sleep(pause).await;
            let news = record.read().await;
            (record, news)
        };
        self.question = Some((Box::pin(question), callers));
    }

    /// What the server has answered, and who is to be told when that has been heeded; never, unless
    /// it is asked.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, no answer is lost.
    pub(super) async fn answered(&mut self) -> (News, Vec<Caller>) {
        let Some((question, callers)) = &mut self.question else {
            return pending().await;
        };
        let (record, news) = question.await;
        let callers = mem::take(callers);
        self.question = None;
        self.record = Some(record);
        self.ask(PAUSE);
        (news, callers)
    }

    /// Tells people of a doubtful message, if none came for a while.
    pub(super) fn tell(&mut self, flaw: Flaw) {
        if self.told.doubtful(Instant::now()) {
            tracing::warn!(
                ?flaw,
                "messages of the fleet are not as they should be: Redis is asked what has been purged"
            );
        }
    }

    /// Tells people that all is well again, if it has been for a while.
    pub(super) fn tell_of_calm(&mut self) {
        if self.told.as_it_should_be(Instant::now()) {
            tracing::info!("messages of the fleet are as they should be again");
        }
    }
}

/// What people have been told.
#[derive(Debug, Default)]
struct Told {
    /// The last doubtful message, until people have been told that there are no more.
    last: Option<Instant>,
}

impl Told {
    /// Whether that is news.
    fn doubtful(&mut self, now: Instant) -> bool {
        self.last.replace(now).is_none()
    }

    /// Whether that is news.
    fn as_it_should_be(&mut self, now: Instant) -> bool {
        let calm = self.last.is_some_and(|last| now - last >= CALM);
        if calm {
            self.last = None;
        }
        calm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_once_that_messages_are_doubtful_and_once_that_no_more_have_come() {
        let mut told = Told::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);

        assert!(!told.as_it_should_be(start), "nothing was wrong");
        assert!(told.doubtful(start));
        assert!(!told.doubtful(after(1)));
        assert!(!told.as_it_should_be(after(2)), "too soon");
        assert!(!told.doubtful(after(59)));
        assert!(!told.as_it_should_be(after(100)), "too soon after the last");
        assert!(told.as_it_should_be(after(119)));
        assert!(!told.as_it_should_be(after(120)));
        assert!(told.doubtful(after(121)));
    }
}
