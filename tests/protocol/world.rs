//! A state in its setting: what the steps work on.

use std::fmt;

use crate::{
    process::{Flight, Process, Wish},
    rules::{Rule, Rules},
    state::{State, TOKENS, Time, Token},
    wire::{Message, Run, Script},
};

/// What does not change in one exploration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) rules: Rules,
    pub(crate) stale: StaleMay,
    pub(crate) purge: PurgeBy,
    pub(crate) keys: Keys,
    pub(crate) renewing: Renewing,
}

/// What a stale entry may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StaleMay {
    /// Answer while it is refreshed (RFC 5861 section 3).
    Answer,
    /// Stand in for a failure only (RFC 5861 section 4).
    StandIn,
}

/// Who wants a new entry though there may be a fresh one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Renewing {
    Nobody,
    /// The request at this place of each process; and hits of the others refresh ahead of time.
    One(usize),
}

/// What a purge finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PurgeBy {
    /// The key: entry, lease and marker are deleted.
    Key,
    /// A tag: it leaves a record and nothing else.
    Tag,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keys {
    One,
    /// Each process asks for another key, and their digests collide.
    Colliding,
}

/// An invariant that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Breach(pub(crate) &'static str);

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) setting: Setting,
    pub(crate) breach: Option<Breach>,
}

impl World {
    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.setting.rules.have(rule)
    }

    pub(crate) fn process(&mut self, p: usize) -> &mut Process {
        &mut self.state.processes[p]
    }

    pub(crate) fn flight(&mut self, (p, f): (usize, usize)) -> &mut Flight {
        self.state.processes[p].flights[f]
            .as_mut()
            .expect("a flight to step")
    }

    pub(crate) fn send(&mut self, (p, f): (usize, usize), script: Script) {
        let flight = self.flight((p, f));
        let (token, slot) = (flight.token(), flight.slot);
        let from = u8::try_from(p).expect("few processes");
        self.state.wire.send(Message {
            from,
            token,
            slot,
            script,
            run: Run::Once,
        });
    }

    pub(crate) fn fresh_token(&mut self, p: usize) -> Token {
        if !self.has(Rule::FreshTokens) {
            return 1 + Token::try_from(p).expect("few processes");
        }
        self.require(
            self.state.tokens < TOKENS,
            "every waiter ends: somebody asks for ever",
        );
        self.state.tokens = (self.state.tokens + 1).min(TOKENS);
        self.state.tokens
    }

    pub(crate) fn tick(&mut self) -> u8 {
        self.state.clock += 1;
        self.state.clock
    }

    pub(crate) fn key(&self, p: usize) -> u8 {
        match self.setting.keys {
            Keys::One => 0,
            Keys::Colliding => u8::try_from(p).expect("few processes"),
        }
    }

    /// The entry that a flight refuses when it claims after having waited since `behind`.
    pub(crate) fn refusal(&self, flight: &Flight, behind: Time) -> Token {
        if behind == 0 || self.has(Rule::RefusalLasts) {
            flight.refused
        } else {
            0
        }
    }

    /// What the request at this place of a process is content with.
    pub(crate) fn wish(&self, r: usize) -> Wish {
        match self.setting.renewing {
            Renewing::One(renewing) if renewing == r => Wish::New,
            Renewing::One(_) | Renewing::Nobody => Wish::Any,
        }
    }

    /// Notes a breach, the first one.
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "an invariant holds or does not"
    )]
    pub(crate) fn require(&mut self, holds: bool, invariant: &'static str) {
        if !holds && self.breach.is_none() {
            self.breach = Some(Breach(invariant));
        }
    }
}
