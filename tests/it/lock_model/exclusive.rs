//! The plain lock: a partial function from keys to tokens and one from keys to ends.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tower_stampede::lock::{
    Attempt, ErrorKind, Guard, Holder, LockManager, Released, Token, backend::Grant,
};

use super::{End, JUMP, Life, both_backends, life};
use crate::lock_ground::{Fault, Ground, eventually};

const KEYS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Command {
    Acquire {
        key: usize,
        life: Life,
        there: bool,
    },
    /// The backend cannot be reached, or the outcome is unknown.
    AcquireFailing {
        key: usize,
        fault: Fault,
    },
    /// What was overtaken by its own withdrawal comes in at last.
    Arrive,
    Release {
        guard: prop::sample::Index,
    },
    ReleaseFailing {
        guard: prop::sample::Index,
        fault: Fault,
    },
    ReleaseForeign {
        key: usize,
    },
    Extend {
        guard: prop::sample::Index,
        life: Life,
    },
    ForceRelease {
        key: usize,
    },
    Expire,
}

fn command() -> impl Strategy<Value = Command> {
    let key = || 0..KEYS.len();
    let guard = any::<prop::sample::Index>;
    let fault = || {
        prop::sample::select(vec![
            Fault::LoseReply,
            Fault::LoseRequest,
            Fault::Unavailable,
            Fault::Overtake,
        ])
    };
    prop_oneof![
        5 => (key(), life(), any::<bool>()).prop_map(|(key, life, there)| Command::Acquire { key, life, there }),
        2 => (key(), fault()).prop_map(|(key, fault)| Command::AcquireFailing { key, fault }),
        2 => Just(Command::Arrive),
        4 => guard().prop_map(|guard| Command::Release { guard }),
        1 => (guard(), fault()).prop_map(|(guard, fault)| Command::ReleaseFailing { guard, fault }),
        1 => key().prop_map(|key| Command::ReleaseForeign { key }),
        2 => (guard(), life()).prop_map(|(guard, life)| Command::Extend { guard, life }),
        1 => key().prop_map(|key| Command::ForceRelease { key }),
        2 => Just(Command::Expire),
    ]
}

#[derive(Default)]
struct Model {
    store: BTreeMap<usize, Token>,
    expiry: BTreeMap<usize, End>,
    now: Duration,
}

impl Model {
    fn expire(&mut self) {
        let over: Vec<_> = self
            .expiry
            .iter()
            .filter(|(_, end)| end.is_over(self.now))
            .map(|(key, _)| *key)
            .collect();
        for key in over {
            self.remove(key);
        }
    }

    fn put(&mut self, key: usize, token: Token, life: Life) {
        self.store.insert(key, token);
        self.expiry.insert(key, life.end(self.now));
    }

    fn remove(&mut self, key: usize) -> bool {
        self.expiry.remove(&key);
        self.store.remove(&key).is_some()
    }

    fn remove_if(&mut self, key: usize, token: &Token) {
        if self.store.get(&key) == Some(token) {
            self.remove(key);
        }
    }

    fn release(&mut self, key: usize, token: &Token) -> Released {
        match self.store.get(&key) {
            None => Released::Expired,
            Some(holder) if holder == token => {
                self.remove_if(key, token);
                Released::Released
            }
            Some(_) => Released::HeldByAnother,
        }
    }
}

struct Run<'a> {
    ground: &'a Ground,
    model: Model,
    guards: Vec<(usize, Guard)>,
}

async fn drive(ground: &Ground, commands: &[Command]) -> Result<(), TestCaseError> {
    let mut run = Run {
        ground,
        model: Model::default(),
        guards: Vec::new(),
    };
    for command in commands {
        run.step(command).await?;
        run.compare().await?;
    }
    for (_, guard) in run.guards {
        guard.keep();
    }
    Ok(())
}

impl Run<'_> {
    async fn step(&mut self, command: &Command) -> Result<(), TestCaseError> {
        match command {
            Command::Acquire { key, life, there } => {
                let other = self.ground.manager(|builder| builder);
                let locks = if *there { &other } else { &self.ground.locks };
                self.acquire(locks, *key, *life).await
            }
            Command::AcquireFailing { key, fault } => self.acquire_failing(*key, *fault).await,
            Command::Arrive => {
                if let Some(arrived) = self.ground.spy.arrive().await {
                    prop_assert!(matches!(arrived.unwrap(), Grant::Withdrawn));
                }
                Ok(())
            }
            Command::Release { guard } => {
                let Some((key, guard)) = self.pick(*guard) else {
                    return Ok(());
                };
                let expected = self.model.release(key, guard.token());
                prop_assert_eq!(guard.release().await.unwrap(), expected);
                Ok(())
            }
            Command::ReleaseFailing { guard, fault } => self.release_failing(guard, *fault).await,
            Command::ReleaseForeign { key } => {
                let foreign = Token::new("foreign");
                let expected = self.model.release(*key, &foreign);
                let released = self.ground.locks.lock(KEYS[*key]).release(&foreign).await;
                prop_assert_eq!(released.unwrap(), expected);
                Ok(())
            }
            Command::Extend { guard, life } => self.extend(guard, *life).await,
            Command::ForceRelease { key } => {
                let removed = self
                    .ground
                    .locks
                    .lock(KEYS[*key])
                    .force_release()
                    .await
                    .unwrap();
                prop_assert_eq!(removed, self.model.remove(*key));
                Ok(())
            }
            Command::Expire => {
                self.ground.advance(JUMP).await;
                self.model.now += JUMP;
                self.model.expire();
                Ok(())
            }
        }
    }

    async fn acquire(
        &mut self,
        locks: &LockManager,
        key: usize,
        life: Life,
    ) -> Result<(), TestCaseError> {
        let request = locks.lock(KEYS[key]);
        let request = match life.ttl() {
            Some(ttl) => request.ttl(ttl),
            None => request.persistent(),
        };
        match request.try_acquire().await.unwrap() {
            Attempt::Acquired(guard) => {
                prop_assert!(!self.model.store.contains_key(&key));
                prop_assert!(
                    !self
                        .model
                        .store
                        .values()
                        .any(|token| token == guard.token())
                );
                self.model.put(key, guard.token().clone(), life);
                self.guards.push((key, guard));
            }
            Attempt::Busy(busy) => {
                let end = self.model.expiry.get(&key).copied();
                prop_assert!(
                    end.is_some_and(|end| end.is_about(busy.remaining().unwrap(), self.model.now))
                );
            }
            Attempt::AlreadyHeld(_) => prop_assert!(false, "tokens are fresh"),
        }
        Ok(())
    }

    /// Whatever happened, nobody holds the lock because of it once it has been taken back.
    async fn acquire_failing(&self, key: usize, fault: Fault) -> Result<(), TestCaseError> {
        let before = self.ground.spy.withdrawals();
        self.ground.spy.fail_acquires([fault]);

        let error = self
            .ground
            .locks
            .lock(KEYS[key])
            .try_acquire()
            .await
            .unwrap_err();

        if fault == Fault::Unavailable {
            prop_assert_eq!(error.kind(), ErrorKind::Unavailable);
        } else {
            prop_assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            eventually(async || self.ground.spy.withdrawals() > before).await;
        }
        Ok(())
    }

    async fn release_failing(
        &mut self,
        guard: &prop::sample::Index,
        fault: Fault,
    ) -> Result<(), TestCaseError> {
        let Some((key, guard)) = self.pick(*guard) else {
            return Ok(());
        };
        if fault == Fault::LoseReply {
            self.model.remove_if(key, guard.token());
        }
        self.ground.spy.fail_releases([fault]);
        prop_assert!(guard.release().await.is_err());
        Ok(())
    }

    async fn extend(
        &mut self,
        guard: &prop::sample::Index,
        life: Life,
    ) -> Result<(), TestCaseError> {
        if self.guards.is_empty() {
            return Ok(());
        }
        let (key, guard) = guard.get(&self.guards);
        let extended = match life.ttl() {
            Some(ttl) => guard.extend(ttl).await,
            None => guard.persist().await,
        };
        if self.model.store.get(key) == Some(guard.token()) {
            prop_assert!(extended.is_ok());
            self.model.expiry.insert(*key, life.end(self.model.now));
        } else {
            prop_assert_eq!(extended.unwrap_err().kind(), ErrorKind::NotHeld);
        }
        Ok(())
    }

    fn pick(&mut self, guard: prop::sample::Index) -> Option<(usize, Guard)> {
        (!self.guards.is_empty()).then(|| self.guards.remove(guard.index(self.guards.len())))
    }

    async fn compare(&self) -> Result<(), TestCaseError> {
        for (key, name) in KEYS.iter().enumerate() {
            let holder = self.ground.elsewhere.lock(name).holder().await.unwrap();
            prop_assert_eq!(
                holder.as_ref().map(Holder::token),
                self.model.store.get(&key)
            );
            if let (Some(holder), Some(end)) = (holder, self.model.expiry.get(&key)) {
                prop_assert!(end.is_about(holder.remaining(), self.model.now));
            }
        }
        Ok(())
    }
}

both_backends!();
