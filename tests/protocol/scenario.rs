//! Where an exploration starts, and what may go wrong in it.

use crate::{
    process::{Copied, Life, Memo, Process, Request},
    rules::{Rule, Rules},
    search::{self, Explored},
    state::{Age, Entry, Fault, Faults, Marker, PROCESSES, Server, State},
    wire::Wire,
    world::{Keys, PurgeBy, Renewing, Setting, StaleMay},
};

/// An exploration, and how it starts: with a cold key, unless told otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    start: State,
    setting: Setting,
}

impl Scenario {
    /// `requests[p]` requests come to process `p`.
    pub(crate) fn with_requests(requests: &[usize]) -> Self {
        let absent = Process {
            life: Life::Crashed,
            ..Process::NEW
        };
        let mut processes = [absent; PROCESSES];
        for (process, &count) in processes.iter_mut().zip(requests) {
            process.life = Life::Alive;
            process.requests[..count].fill(Request::Unborn);
        }
        let start = State {
            server: Server::default(),
            processes,
            wire: Wire::default(),
            faults: Faults {
                in_all: u8::MAX,
                ..Faults::default()
            },
            tokens: 0,
            clock: 0,
        };
        let setting = Setting {
            rules: Rules::ALL,
            stale: StaleMay::StandIn,
            purge: PurgeBy::Tag,
            keys: Keys::One,
            renewing: Renewing::Nobody,
        };
        Self { start, setting }
    }

    pub(crate) fn fault(mut self, fault: Fault, times: u8) -> Self {
        self.start.faults.each[fault as usize] = times;
        self
    }

    /// Each of the faults may happen once.
    pub(crate) fn faults(self, faults: &[Fault]) -> Self {
        faults
            .iter()
            .fold(self, |scenario, fault| scenario.fault(*fault, 1))
    }

    pub(crate) fn at_most(mut self, faults: u8) -> Self {
        self.start.faults.in_all = faults;
        self
    }

    pub(crate) fn without(mut self, rule: Rule) -> Self {
        self.setting.rules = self.setting.rules.without(rule);
        self
    }

    pub(crate) fn purged_by_key(mut self) -> Self {
        self.setting.purge = PurgeBy::Key;
        self
    }

    pub(crate) fn stale_may_answer(mut self) -> Self {
        self.setting.stale = StaleMay::Answer;
        self
    }

    /// The request at this place of each process renews, and hits refresh ahead of time.
    pub(crate) fn renewing(mut self, request: usize) -> Self {
        self.setting.renewing = Renewing::One(request);
        self
    }

    pub(crate) fn colliding_keys(mut self) -> Self {
        self.setting.keys = Keys::Colliding;
        self
    }

    /// There is an entry in the shared tier, and in the first process's own.
    pub(crate) fn starting_with(mut self, age: Age) -> Self {
        let entry = Entry {
            token: 1,
            began: 1,
            source: 1,
            key: 0,
            age,
        };
        self.start.server.entry = Some(entry);
        self.start.processes[0].local = Some(Copied {
            entry,
            overtaken: None,
        });
        self.start.tokens = 1;
        self.start.clock = 1;
        self
    }

    /// The last response was uncacheable, as the shared tier and the first process know.
    pub(crate) fn starting_marked(mut self) -> Self {
        self.start.server.marker = Marker::HitForMiss;
        self.start.processes[0].memo = Memo::HitForMiss;
        self
    }

    pub(crate) fn explore(self) -> Explored {
        search::explore(self.start, self.setting)
    }
}
