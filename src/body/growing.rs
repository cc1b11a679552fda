//! A body that several requests read while it is still being produced.
//!
//! One [`Writer`] appends chunks and says how it ended; any number of [`Reader`]s follow at their
//! own pace. Nothing is lost to a slow reader and nobody waits for one: the chunks stay until the
//! last reader is gone, and they are never more than the writer's limit.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

/// What a chunk takes beside its bytes: many small ones are not for free.
pub(super) const CHUNK: usize = 64;

/// The bytes that all bodies of one cache may hold while they are being built.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    used: Arc<AtomicUsize>,
    limit: usize,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Self {
        let used = Arc::new(AtomicUsize::new(0));
        Self { used, limit }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: usize) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|used| *used <= self.limit)
            })
            .is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// How a growing body ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Complete(Option<HeaderMap>),
    /// It failed, or its writer is gone.
    Cut,
    /// It went over its limit; the rest is for the starter alone.
    Overflow,
}

/// Why a chunk was not appended; it comes back.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The body would pass its own limit.
    TooLarge(Bytes),
    /// All bodies of the cache together would pass theirs.
    NoRoom(Bytes),
}

/// The shared part, from which readers are made.
#[derive(Clone, Debug)]
pub(crate) struct Growing(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    memory: Memory,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<Bytes>,
    length: usize,
    /// What is reserved of the memory that all bodies share.
    reserved: usize,
    end: Option<End>,
    readers: u64,
    asleep: HashMap<u64, Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let reserved = self.lock().reserved;
        self.memory.give_back(reserved);
    }
}

/// The producing side; dropped without an end, the body is cut.
#[derive(Debug)]
pub(crate) struct Writer(Arc<Shared>);

impl Writer {
    /// A body of at most `limit` bytes, which count against `memory` until it is complete, or the last
    /// reader is gone.
    pub(crate) fn new(limit: usize, memory: Memory) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            memory,
            limit,
        }))
    }

    pub(crate) fn growing(&self) -> Growing {
        Growing(Arc::clone(&self.0))
    }

    pub(crate) fn length(&self) -> usize {
        self.0.lock().length
    }

    /// Appends `chunk` and wakes the readers.
    ///
    /// # Errors
    ///
    /// The body would pass its limit, or all bodies together the cache's: the chunk comes back.
    pub(crate) fn push(&self, chunk: Bytes) -> Result<(), Refused> {
        let mut state = self.0.lock();
        let length = state.length.saturating_add(chunk.len());
        if length > self.0.limit {
            return Err(Refused::TooLarge(chunk));
        }
        let cost = chunk.len() + CHUNK;
        if !self.0.memory.reserve(cost) {
            return Err(Refused::NoRoom(chunk));
        }
        state.reserved += cost;
        state.length = length;
        state.chunks.push(chunk);
        wake(state);
        Ok(())
    }

    /// Hands `chunk` to the readers though it is over the limit: the last one before the rest.
    pub(crate) fn overflow(self, chunk: Bytes) {
        let mut state = self.0.lock();
        state.chunks.push(chunk);
        state.end = Some(End::Overflow);
        wake(state);
    }

    /// Ends the body, and gives back all its bytes if it is complete.
    pub(crate) fn end(self, end: End) -> Bytes {
        let mut state = self.0.lock();
        let whole = match end {
            End::Complete(_) => joined(&state.chunks, state.length),
            End::Cut | End::Overflow => Bytes::new(),
        };
        // Who still reads holds what a hit would hold: slow readers keep nobody from building.
        self.0.memory.give_back(mem::take(&mut state.reserved));
        state.end = Some(end);
        wake(state);
        whole
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.end.is_none() {
            state.end = Some(End::Cut);
            wake(state);
        }
    }
}

/// Wakes outside the lock, so that no waker runs under it.
fn wake(mut state: MutexGuard<'_, State>) {
    let asleep = mem::take(&mut state.asleep);
    drop(state);
    asleep.into_values().for_each(Waker::wake);
}

fn joined(chunks: &[Bytes], length: usize) -> Bytes {
    match chunks {
        [] => Bytes::new(),
        // A copy: it may be a small part of something large, which would stay as long as it does.
        [only] => Bytes::copy_from_slice(only),
        many => {
            let mut whole = BytesMut::with_capacity(length);
            for chunk in many {
                whole.extend_from_slice(chunk);
            }
            whole.freeze()
        }
    }
}

impl Growing {
    /// A reader that starts at the first byte.
    pub(crate) fn reader(&self) -> Reader {
        let mut state = self.0.lock();
        state.readers += 1;
        Reader {
            shared: Arc::clone(&self.0),
            id: state.readers,
            next: Position::Chunk(0),
        }
    }
}

/// One reader's place in the body.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    id: u64,
    next: Position,
}

#[derive(Clone, Copy, Debug)]
enum Position {
    Chunk(usize),
    AfterTrailers,
}

/// What a reader gets next.
#[derive(Debug)]
pub(crate) enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    Cut,
    Overflow,
}

impl Reader {
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Step> {
        let Position::Chunk(at) = self.next else {
            return Poll::Ready(Step::End);
        };
        let mut state = self.shared.lock();
        if let Some(chunk) = state.chunks.get(at) {
            self.next = Position::Chunk(at + 1);
            return Poll::Ready(Step::Data(chunk.clone()));
        }
        match &state.end {
            Some(End::Complete(Some(trailers))) => {
                self.next = Position::AfterTrailers;
                Poll::Ready(Step::Trailers(trailers.clone()))
            }
            Some(End::Complete(None)) => Poll::Ready(Step::End),
            Some(End::Cut) => Poll::Ready(Step::Cut),
            Some(End::Overflow) => Poll::Ready(Step::Overflow),
            None => {
                state.asleep.insert(self.id, waker.clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.shared.lock().asleep.remove(&self.id));
    }
}
