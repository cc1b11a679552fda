//! Who is in a flight, and whether it takes newcomers: a state machine without a runtime.

/// The occupancy of a flight.
#[derive(Debug, Default)]
pub(crate) struct State {
    waiters: usize,
    readers: usize,
    door: Door,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Door {
    #[default]
    Open,
    Sealed,
}

/// Why a flight did not take a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// It is ending: start another one.
    Sealed,
    /// It has as many waiters as it may have: fall back.
    Full,
}

/// What a departure leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Others,
    Last,
}

impl State {
    pub(crate) fn join(&mut self, limit: usize) -> Result<(), Turned> {
        match self.door {
            Door::Sealed => Err(Turned::Sealed),
            Door::Open if self.waiters >= limit => Err(Turned::Full),
            Door::Open => {
                self.waiters += 1;
                Ok(())
            }
        }
    }

    pub(crate) fn leave(&mut self) -> Left {
        self.waiters = self.waiters.saturating_sub(1);
        self.left()
    }

    /// Somebody who has an answer reads its body while the flight produces it.
    pub(crate) fn begin_reading(&mut self) {
        self.readers += 1;
    }

    pub(crate) fn stop_reading(&mut self) -> Left {
        self.readers = self.readers.saturating_sub(1);
        self.left()
    }

    fn left(&self) -> Left {
        if self.is_empty() {
            Left::Last
        } else {
            Left::Others
        }
    }

    fn is_empty(&self) -> bool {
        self.waiters == 0 && self.readers == 0
    }

    pub(crate) fn seal(&mut self) {
        self.door = Door::Sealed;
    }

    /// Seals a flight that nobody is in: a newcomer cannot slip in between.
    pub(crate) fn seal_if_empty(&mut self) -> bool {
        if self.is_empty() {
            self.seal();
        }
        self.is_empty()
    }
}
