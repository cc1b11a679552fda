//! The line of those who wait for a flight's first news: they are woken in the order in which they came,
//! a few at a time.
//!
//! Woken all at once, a large herd overflows the queues of its runtime (256 tasks for each thread of
//! tokio's), which then run it in any order, the first ones to come among the last, and before whatever
//! else becomes ready meanwhile.

use std::sync::Arc;

use tokio::{
    sync::{Notify, futures::Notified},
    task::yield_now,
};

use crate::task;

/// So many are woken before the runtime has its turn.
const GROUP: usize = 32;

/// Those who wait. It starts again at its end for whoever asks once more.
#[derive(Debug, Default)]
pub(super) struct Line(Arc<Notify>);

impl Line {
    /// A place at the line's end, once it is enabled or polled.
    pub(super) fn place(&self) -> Notified<'_> {
        self.0.notified()
    }

    /// Wakes everybody: the first ones now, the others as the runtime gets to them. There are about
    /// `waiting` of them; whoever is beyond comes last.
    pub(super) fn release(&self, waiting: usize) {
        let mut release = Release {
            line: Arc::clone(&self.0),
            waiting,
        };
        release.wake_group();
        if release.waiting > 0 {
            task::spawn(release.run());
        }
    }
}

/// Dropped early, with its runtime or for want of one, it wakes the rest at once.
struct Release {
    line: Arc<Notify>,
    waiting: usize,
}

impl Release {
    async fn run(mut self) {
        while self.waiting > 0 {
            yield_now().await;
            self.wake_group();
        }
    }

    fn wake_group(&mut self) {
        let group = self.waiting.min(GROUP);
        self.waiting -= group;
        for _ in 0..group {
            self.line.notify_one();
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.line.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::{runtime, task::JoinSet};
    use tokio_test::{assert_pending, task as polled};

    use super::*;

    /// More than three groups, the last one not whole.
    const MANY: usize = 3 * GROUP + 5;

    /// So many who wait in a runtime, and note their number when they are woken.
    async fn standing(line: &Arc<Line>, woken: &Arc<Mutex<Vec<usize>>>) -> JoinSet<()> {
        let mut waiting = JoinSet::new();
        for number in 0..MANY {
            let (line, woken) = (Arc::clone(line), Arc::clone(woken));
            waiting.spawn(async move {
                line.place().await;
                woken.lock().unwrap().push(number);
            });
        }
        // On one thread, all of them have had their turn then.
        yield_now().await;
        waiting
    }

    type Place<'a> = polled::Spawn<Notified<'a>>;

    /// So many who wait outside of any runtime.
    fn places(line: &Line) -> Vec<Place<'_>> {
        let mut places: Vec<_> = (0..MANY).map(|_| polled::spawn(line.place())).collect();
        for place in &mut places {
            assert_pending!(place.poll());
        }
        places
    }

    #[tokio::test]
    async fn those_who_came_first_are_woken_first() {
        let (line, woken) = (Arc::default(), Arc::default());
        let waiting = standing(&line, &woken).await;

        line.release(MANY);

        waiting.join_all().await;
        assert_eq!(*woken.lock().unwrap(), (0..MANY).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn others_have_their_turn_while_many_are_woken() {
        let (line, woken) = (Arc::default(), Arc::<Mutex<Vec<usize>>>::default());
        let waiting = standing(&line, &woken).await;

        line.release(MANY);

        let seen = Arc::clone(&woken);
        let other = task::spawn(async move { seen.lock().unwrap().len() });
        assert_eq!(other.unwrap().await.unwrap(), GROUP);
        waiting.join_all().await;
    }

    #[tokio::test]
    async fn who_leaves_when_woken_leaves_nobody_behind() {
        let line = Line::default();
        let mut waiting = places(&line);

        line.release(MANY);
        waiting.drain(..GROUP);
        for _ in 0..MANY {
            yield_now().await;
        }

        assert!(waiting.iter().all(polled::Spawn::is_woken));
    }

    #[tokio::test]
    async fn more_than_were_counted_are_woken_all_the_same() {
        let (line, woken) = (Arc::default(), Arc::default());
        let waiting = standing(&line, &woken).await;

        line.release(GROUP + 1);

        waiting.join_all().await;
        assert_eq!(woken.lock().unwrap().len(), MANY);
    }

    #[test]
    fn without_a_runtime_everybody_is_woken_at_once() {
        let line = Line::default();
        let waiting = places(&line);

        line.release(MANY);

        assert!(waiting.iter().all(polled::Spawn::is_woken));
    }

    #[test]
    fn a_runtime_that_ends_meanwhile_leaves_nobody_of_another_one_behind() {
        let line = Line::default();
        let waiting = places(&line);

        let ending = runtime::Builder::new_current_thread().build().unwrap();
        ending.block_on(async { line.release(MANY) });
        assert_eq!(
            waiting.iter().filter(|place| place.is_woken()).count(),
            GROUP
        );
        drop(ending);

        assert!(waiting.iter().all(polled::Spawn::is_woken));
    }
}
