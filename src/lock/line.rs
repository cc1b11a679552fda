//! The waiting lines of one process: for each lock one waiter tries, the others stand behind it.
//!
//! The head of a line holds the baton: what is heard about the lock, and when to try next. It
//! hands the baton on when it leaves, be it with the lock, at its deadline or dropped. So one
//! release costs one attempt, however many wait, and all waits of a process need one subscription
//! for each key. Those behind try now and then all the same, ever more rarely the farther back they
//! stand, in case that the head is a future that nobody polls.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use super::{
    backend::{Change, Key, Mode, Watch},
    error::Error,
    retry::{backoff, jittered},
    token::Token,
};

const POLL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// A lock that ends is tried for a moment later: its time is counted in whole milliseconds.
const AFTER_END: Duration = Duration::from_millis(1);

/// Who waits for the same: the same keys in the same mode. A reader that wants to become the
/// writer waits alone, since those in line can only go on when it has gone.
pub(super) type LineKey = (Arc<[Key]>, Mode, Option<Token>);

type Table = Mutex<HashMap<LineKey, Line>>;

/// All lines of a manager.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    table: Arc<Table>,
}

/// Those behind the head.
#[derive(Debug, Default)]
struct Line {
    behind: VecDeque<(u64, oneshot::Sender<Baton>)>,
    joined: u64,
}

/// What the head has and hands on.
#[derive(Debug)]
struct Baton {
    /// One for each key, from the first attempt on that failed.
    watches: Vec<Box<dyn Watch>>,
    due: Due,
    /// When the lock ends if nobody extends it.
    free_at: Option<Instant>,
    refusal: Option<Error>,
}

/// Whether there is a reason to try that nobody has followed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    Later,
}

/// A place in a line, given up when dropped.
#[derive(Debug)]
pub(super) struct Place {
    table: Arc<Table>,
    key: LineKey,
    id: u64,
    ahead: u32,
    tried: u32,
    post: Post,
}

#[derive(Debug)]
enum Post {
    Head(Baton),
    Behind(oneshot::Receiver<Baton>),
    Left,
}

impl Lines {
    /// Joins the line; if nobody waits, as its head, whose first attempt is due then.
    pub(super) fn join(&self, key: LineKey, due: Due) -> Place {
        let (id, ahead, behind) = with(&self.table, |table| match table.entry(key.clone()) {
            hash_map::Entry::Vacant(line) => {
                line.insert(Line::default());
                (0, 0, None)
            }
            hash_map::Entry::Occupied(mut line) => {
                let line = line.get_mut();
                let (sender, receiver) = oneshot::channel();
                line.joined += 1;
                line.behind.push_back((line.joined, sender));
                let ahead = u32::try_from(line.behind.len()).unwrap_or(u32::MAX);
                (line.joined, ahead, Some(receiver))
            }
        });
        let post = match behind {
            Some(receiver) => Post::Behind(receiver),
            None => Post::Head(Baton {
                watches: Vec::new(),
                due,
                free_at: None,
                refusal: None,
            }),
        };
        Place {
            table: Arc::clone(&self.table),
            key,
            id,
            ahead,
            tried: 0,
            post,
        }
    }
}

impl Place {
    /// Returns when it is time for an attempt, or with the reason why this lock cannot be watched.
    /// The first head that has to listen calls `watch` for each key.
    ///
    /// # Cancel safety
    ///
    /// Nothing that was heard is lost.
    pub(super) async fn turn(
        &mut self,
        watch: impl Fn(&Key) -> Box<dyn Watch>,
    ) -> Result<(), Error> {
        let pause = backoff(self.tried.saturating_add(1), POLL.0, POLL.1);
        let poll_at = Instant::now() + jittered(pause);
        loop {
            match &mut self.post {
                Post::Left => return Ok(()),
                Post::Behind(receiver) => {
                    let baton = tokio::select! {
                        baton = receiver => baton,
                        () = sleep_until(Instant::now() + self.ahead * jittered(POLL.1)) => return Ok(()),
                    };
                    match baton {
                        Ok(baton) => self.post = Post::Head(baton),
                        Err(_) => return Ok(()),
                    }
                }
                Post::Head(baton) => {
                    if let Some(refusal) = &baton.refusal {
                        return Err(refusal.clone());
                    }
                    if baton.due == Due::Now {
                        return Ok(());
                    }
                    if baton.watches.is_empty() {
                        baton.watches = self.key.0.iter().map(&watch).collect();
                    }
                    baton.listen(poll_at).await;
                }
            }
        }
    }

    /// The attempt found the lock taken, for so long.
    pub(super) fn missed(&mut self, free_in: Option<Duration>) {
        self.note(Due::Later, free_in);
    }

    /// The attempt succeeded: the next in line has a reason to try, or waits until the lock ends.
    pub(super) fn served(mut self, next: Due, free_in: Option<Duration>) {
        self.note(next, free_in);
    }

    fn note(&mut self, due: Due, free_in: Option<Duration>) {
        self.tried = self.tried.saturating_add(1);
        if let Post::Head(baton) = &mut self.post {
            baton.due = due;
            baton.free_at = free_in.and_then(|left| Instant::now().checked_add(left + AFTER_END));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.post, Post::Left) {
            Post::Left => {}
            Post::Head(baton) => hand_on(&self.table, &self.key, baton),
            Post::Behind(mut receiver) => {
                with(&self.table, |table| {
                    if let Some(line) = table.get_mut(&self.key) {
                        line.behind.retain(|(id, _)| *id != self.id);
                    }
                });
                // It may have been handed over a moment ago.
                if let Ok(baton) = receiver.try_recv() {
                    hand_on(&self.table, &self.key, baton);
                }
            }
        }
    }
}

impl Baton {
    /// Returns when something was heard, the lock ended, or `poll_at` has come.
    async fn listen(&mut self, poll_at: Instant) {
        let at = self.free_at.map_or(poll_at, |free_at| free_at.min(poll_at));
        tokio::select! {
            change = changed(&mut self.watches) => match change {
                Change::Listening | Change::Released => self.due = Due::Now,
                Change::Refused(error) => self.refusal = Some(error),
            },
            () = sleep_until(at) => self.due = Due::Now,
        }
    }
}

fn hand_on(table: &Table, key: &LineKey, baton: Baton) {
    // What is left of the baton is dropped outside the lock: watches unregister themselves.
    let left = with(table, |table| {
        let mut baton = baton;
        let line = table.get_mut(key)?;
        while let Some((_, next)) = line.behind.pop_front() {
            match next.send(baton) {
                Ok(()) => return None,
                Err(returned) => baton = returned,
            }
        }
        table.remove(key);
        Some(baton)
    });
    drop(left);
}

/// The next change of any of `watches`.
async fn changed(watches: &mut [Box<dyn Watch>]) -> Change {
    let mut changes: Vec<_> = watches.iter_mut().map(|watch| watch.changed()).collect();
    poll_fn(|context| {
        let ready = changes
            .iter_mut()
            .find_map(|change| match Pin::as_mut(change).poll(context) {
                Poll::Ready(change) => Some(change),
                Poll::Pending => None,
            });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

fn with<T>(table: &Table, work: impl FnOnce(&mut HashMap<LineKey, Line>) -> T) -> T {
    work(&mut table.lock().unwrap_or_else(PoisonError::into_inner))
}
