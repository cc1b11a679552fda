//! Several locks at once: each key holds one value, a token's value may be replaced where it holds
//! all, and every other operation needs all of the keys' values.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::prelude::*;
use tower_stampede::lock::{Attempt, ErrorKind, Guard, Released};

use super::{End, JUMP, Life, both_backends, life};
use crate::lock_ground::{Fault, Ground, eventually};

const KEYS: [&str; 4] = ["1", "2", "3", "4"];

#[derive(Clone, Debug)]
enum Command {
    /// Holder 0 has random tokens, the others one each.
    Obtain {
        keys: Vec<usize>,
        holder: usize,
        life: Life,
        twice: bool,
    },
    /// Its outcome is unknown, and it is taken back.
    ObtainLost {
        keys: Vec<usize>,
        fault: Fault,
    },
    Refresh {
        guard: prop::sample::Index,
        life: Life,
    },
    Release {
        guard: prop::sample::Index,
    },
    Tell {
        guard: prop::sample::Index,
    },
    Delete {
        key: usize,
    },
    Expire,
}

fn command() -> impl Strategy<Value = Command> {
    let guard = any::<prop::sample::Index>;
    let keys = prop::collection::vec(0..KEYS.len(), 1..6);
    prop_oneof![
        6 => (keys.clone(), 0..3_usize, life(), any::<bool>())
            .prop_map(|(keys, holder, life, twice)| Command::Obtain { keys, holder, life, twice }),
        1 => (keys, prop::sample::select(vec![Fault::LoseReply, Fault::LoseRequest])).prop_map(|(keys, fault)| Command::ObtainLost { keys, fault }),
        2 => (guard(), life()).prop_map(|(guard, life)| Command::Refresh { guard, life }),
        4 => guard().prop_map(|guard| Command::Release { guard }),
        2 => guard().prop_map(|guard| Command::Tell { guard }),
        1 => (0..KEYS.len()).prop_map(|key| Command::Delete { key }),
        2 => Just(Command::Expire),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    holder: usize,
    /// Which acquisition wrote it.
    number: usize,
    end: End,
}

struct Obtained {
    keys: BTreeSet<usize>,
    number: usize,
    guard: Guard,
}

struct Run<'a> {
    ground: &'a Ground,
    store: BTreeMap<usize, Value>,
    now: Duration,
    obtained: usize,
    guards: Vec<Obtained>,
}

async fn drive(ground: &Ground, commands: &[Command]) -> Result<(), TestCaseError> {
    let mut run = Run {
        ground,
        store: BTreeMap::new(),
        now: Duration::ZERO,
        obtained: 0,
        guards: Vec::new(),
    };
    for command in commands {
        run.step(command).await?;
        for (key, name) in KEYS.iter().enumerate() {
            let held = ground.elsewhere.lock(name).is_held().await.unwrap();
            prop_assert_eq!(held, run.store.contains_key(&key));
        }
    }
    run.guards
        .into_iter()
        .for_each(|obtained| obtained.guard.keep());
    Ok(())
}

impl Run<'_> {
    async fn step(&mut self, command: &Command) -> Result<(), TestCaseError> {
        match command {
            Command::Obtain {
                keys,
                holder,
                life,
                twice,
            } => {
                if *twice {
                    self.ground.spy.fail_acquires([Fault::Twice]);
                }
                self.obtain(keys, *holder, *life).await
            }
            Command::ObtainLost { keys, fault } => self.obtain_lost(keys, *fault).await,
            Command::Refresh { guard, life } => self.refresh(guard, *life).await,
            Command::Release { guard } => self.release(guard).await,
            Command::Tell { guard } => self.tell(guard).await,
            Command::Delete { key } => {
                let removed = self.ground.elsewhere.lock(KEYS[*key]).force_release().await;
                prop_assert_eq!(removed.unwrap(), self.store.remove(key).is_some());
                Ok(())
            }
            Command::Expire => {
                self.ground.advance(JUMP).await;
                self.now += JUMP;
                let now = self.now;
                self.store.retain(|_, value| !value.end.is_over(now));
                Ok(())
            }
        }
    }

    async fn obtain(
        &mut self,
        keys: &[usize],
        holder: usize,
        life: Life,
    ) -> Result<(), TestCaseError> {
        let request = self
            .ground
            .locks
            .lock_all(keys.iter().map(|key| KEYS[*key]));
        let request = match holder {
            0 => request,
            holder => request.token(format!("holder {holder}")),
        };
        let request = match life.ttl() {
            Some(ttl) => request.ttl(ttl),
            None => request.persistent(),
        };
        let keys: BTreeSet<_> = keys.iter().copied().collect();
        let free = keys.iter().all(|key| !self.store.contains_key(key));
        let own = |key: &usize| {
            self.store
                .get(key)
                .is_some_and(|value| value.holder == holder)
        };
        let obtained = free || (holder != 0 && keys.iter().all(own));

        match request.try_acquire().await.unwrap() {
            Attempt::Acquired(guard) => {
                prop_assert!(obtained);
                self.obtained += 1;
                let value = Value {
                    holder,
                    number: self.obtained,
                    end: life.end(self.now),
                };
                self.store.extend(keys.iter().map(|key| (*key, value)));
                self.guards.push(Obtained {
                    keys,
                    number: self.obtained,
                    guard,
                });
            }
            Attempt::Busy(busy) => {
                prop_assert!(!obtained);
                let longest = keys
                    .iter()
                    .filter_map(|key| self.store.get(key))
                    .map(|value| value.end)
                    .max();
                prop_assert!(
                    longest.is_some_and(|end| end.is_about(busy.remaining().unwrap(), self.now))
                );
            }
            Attempt::AlreadyHeld(_) => prop_assert!(false, "nobody asked for that"),
        }
        Ok(())
    }

    async fn obtain_lost(&self, keys: &[usize], fault: Fault) -> Result<(), TestCaseError> {
        let before = self.ground.spy.withdrawals();
        self.ground.spy.fail_acquires([fault]);
        let request = self
            .ground
            .locks
            .lock_all(keys.iter().map(|key| KEYS[*key]));
        prop_assert!(request.try_acquire().await.is_err());
        eventually(async || self.ground.spy.withdrawals() > before).await;
        Ok(())
    }

    async fn refresh(
        &mut self,
        index: &prop::sample::Index,
        life: Life,
    ) -> Result<(), TestCaseError> {
        if self.guards.is_empty() {
            return Ok(());
        }
        let obtained = index.get(&self.guards);
        let refreshed = match life.ttl() {
            Some(ttl) => obtained.guard.extend(ttl).await,
            None => obtained.guard.persist().await,
        };
        if self.holds(obtained) {
            prop_assert!(refreshed.is_ok());
            let end = life.end(self.now);
            for key in &obtained.keys {
                self.store.get_mut(key).unwrap().end = end;
            }
        } else {
            prop_assert_eq!(refreshed.unwrap_err().kind(), ErrorKind::NotHeld);
        }
        Ok(())
    }

    async fn release(&mut self, index: &prop::sample::Index) -> Result<(), TestCaseError> {
        if self.guards.is_empty() {
            return Ok(());
        }
        let obtained = self.guards.remove(index.index(self.guards.len()));
        let holds = self.holds(&obtained);
        let released = obtained.guard.release().await.unwrap();
        prop_assert_eq!(released == Released::Released, holds);
        if holds {
            self.store.retain(|key, _| !obtained.keys.contains(key));
        }
        Ok(())
    }

    async fn tell(&self, index: &prop::sample::Index) -> Result<(), TestCaseError> {
        if self.guards.is_empty() {
            return Ok(());
        }
        let obtained = index.get(&self.guards);
        let told = obtained.guard.remaining().await.unwrap();
        prop_assert_eq!(told.is_some(), self.holds(obtained));
        if let Some(told) = told {
            let least = obtained
                .keys
                .iter()
                .map(|key| self.store[key].end)
                .min()
                .unwrap();
            prop_assert!(least.is_about(told, self.now));
        }
        Ok(())
    }

    fn holds(&self, obtained: &Obtained) -> bool {
        let own = |key| {
            self.store
                .get(key)
                .is_some_and(|value| value.number == obtained.number)
        };
        obtained.keys.iter().all(own)
    }
}

both_backends!();
