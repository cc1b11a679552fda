//! Breadth first, so that a counterexample is a shortest one.

use std::{
    collections::{HashSet, VecDeque},
    fmt::Write as _,
    hash::{BuildHasherDefault, Hash as _, Hasher},
};

use crate::{
    check,
    state::State,
    steps::{self, Action, Cause},
    take,
    world::{Breach, Setting},
};

/// What a search found.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) counterexample: Option<Counterexample>,
}

#[derive(Debug)]
pub(crate) struct Counterexample {
    pub(crate) breach: Breach,
    pub(crate) steps: Vec<Action>,
    last: Box<State>,
}

impl Counterexample {
    #[expect(clippy::use_debug, reason = "a trace is for the model's own author")]
    pub(crate) fn trace(&self) -> String {
        let mut trace = format!("{}\n", self.breach);
        for (at, step) in self.steps.iter().enumerate() {
            writeln!(trace, "{:3} {step:?}", at + 1).expect("writing to a string does not fail");
        }
        write!(trace, "{:?}", self.last).expect("writing to a string does not fail");
        trace
    }
}

/// Where a state came from.
struct Origin {
    parent: u32,
    action: Action,
}

struct Search {
    setting: Setting,
    seen: HashSet<u64, BuildHasherDefault<Fold>>,
    origins: Vec<Origin>,
    queue: VecDeque<(u32, State)>,
}

/// Visits every state that can be reached from `start`, until one breaks an invariant.
pub(crate) fn explore(start: State, setting: Setting) -> Explored {
    let mut search = Search {
        setting,
        seen: HashSet::default(),
        origins: vec![Origin {
            parent: 0,
            action: Action::Age,
        }],
        queue: VecDeque::new(),
    };
    search.seen.insert(fingerprint(&start));
    search.queue.push_back((0, start));
    let counterexample = search.run();
    Explored {
        states: search.seen.len(),
        counterexample,
    }
}

impl Search {
    fn run(&mut self) -> Option<Counterexample> {
        while let Some((at, state)) = self.queue.pop_front() {
            let mut rests = true;
            for (action, cause) in steps::all(&state, self.setting) {
                let Some((next, breach)) = take::take(&state, self.setting, (action, cause)) else {
                    continue;
                };
                rests &= cause != Cause::Protocol;
                if let Some(breach) = breach.or_else(|| check::always(&next)) {
                    return Some(self.counterexample(breach, (at, Some(action)), next));
                }
                if self.seen.insert(fingerprint(&next)) {
                    let number = u32::try_from(self.origins.len()).expect("a bounded search");
                    self.origins.push(Origin { parent: at, action });
                    self.queue.push_back((number, next));
                }
            }
            if let Some(breach) = check::at_rest(&state).filter(|_| rests) {
                return Some(self.counterexample(breach, (at, None), state));
            }
        }
        None
    }

    fn counterexample(
        &self,
        breach: Breach,
        (mut at, last_step): (u32, Option<Action>),
        last: State,
    ) -> Counterexample {
        let mut steps: Vec<_> = last_step.into_iter().collect();
        while at != 0 {
            let origin = &self.origins[at as usize];
            steps.push(origin.action);
            at = origin.parent;
        }
        steps.reverse();
        Counterexample {
            breach,
            steps,
            last: Box::new(last),
        }
    }
}

/// Stands for a state: among a million of them, two alike are one chance in ten million.
fn fingerprint(state: &State) -> u64 {
    let mut fold = Fold::default();
    state.hash(&mut fold);
    fold.finish()
}

/// A quick hash, also without optimisation.
#[derive(Default)]
struct Fold(u64);

impl Fold {
    fn fold(&mut self, value: u64) {
        self.0 = (self.0 ^ value)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            .rotate_left(29);
    }
}

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.fold(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.fold(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.fold(value);
    }

    fn write_isize(&mut self, value: isize) {
        // The discriminant of an enum.
        self.fold(u64::from(value.to_le_bytes()[0]));
    }

    fn write_usize(&mut self, value: usize) {
        self.fold(value as u64);
    }
}
