//! The line of those who wait for a flight's first news: they are woken in the order in which they came,
//! a few at a time.
//!
//! Woken all at once, a large herd overflows the queues of its runtime (256 tasks for each thread of
//! tokio's), which then run it in any order, the first ones to come among the last, and before whatever
//! else becomes ready meanwhile.
//!
//! Whoever is woken wakes the next one, on whatever thread that is. A task of the line's own sees to it
//! that this goes on although those who were woken are not run.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    sync::{Notify, futures::Notified},
    task::yield_now,
};
use tracing::Span;

use crate::task;

/// So many are woken, and have not yet woken the next one, at any time.
const GROUP: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Line(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    places: Notify,
    /// How many are still to be woken.
    left: AtomicUsize,
}

impl Line {
    /// A place at the line's end, once it is polled.
    pub(super) fn place(&self) -> Notified<'_> {
        self.0.places.notified()
    }

    /// Wakes about so many as are `waiting`; whoever is beyond comes last.
    pub(super) fn release(&self, waiting: usize) {
        self.0.left.store(waiting, Ordering::Relaxed);
        let release = Release(Arc::clone(&self.0));
        self.0.wake(GROUP);
        if self.0.left() > 0 {
            // Its end is awaited by nobody: however it comes, all have been woken.
            drop(task::spawn_in(Span::none(), release.run()));
        }
    }

    /// Has one who was woken wake the next one.
    pub(super) fn pass_on(&self) {
        self.0.wake(1);
    }
}

impl Waiting {
    fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    fn wake(&self, count: usize) {
        let one_less = |left: usize| left.checked_sub(1);
        for _ in 0..count {
            let taken = self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
            if taken.is_err() {
                return;
            }
            self.places.notify_one();
        }
    }
}

/// Dropped, by itself, with its runtime or for want of one, it wakes the rest at once.
struct Release(Arc<Waiting>);

impl Release {
    async fn run(self) {
        loop {
            let left = self.0.left();
            if left == 0 {
                return;
            }
            yield_now().await;
            if self.0.left() == left {
                self.0.wake(GROUP);
            }
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.0.left.store(0, Ordering::Relaxed);
        self.0.places.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::{runtime, task::JoinSet};
    use tokio_test::{assert_pending, assert_ready, task as polled};

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
                line.pass_on();
            });
        }
        for _ in 0..MANY {
            yield_now().await;
        }
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
    async fn those_who_are_woken_and_not_run_hold_up_nobody() {
        let line = Line::default();
        let waiting = places(&line);

        line.release(MANY);
        for _ in 0..MANY {
            yield_now().await;
        }

        assert!(waiting.iter().all(polled::Spawn::is_woken));
    }

    #[test]
    fn a_runtime_that_is_not_run_any_more_holds_up_nobody_of_another_one() {
        let line = Line::default();
        let mut waiting = places(&line);

        let idle = runtime::Builder::new_current_thread().build().unwrap();
        idle.block_on(async { line.release(MANY) });

        for place in &mut waiting {
            assert!(place.is_woken());
            assert_ready!(place.poll());
            line.pass_on();
        }
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
