//! The read/write lock: members by holder, each with an end of its own.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tower_stampede::lock::{Acquire, Attempt, Mode, Token, Who};

use super::{End, JUMP, Life, both_backends, life};
use crate::lock_ground::{Fault, Ground, eventually};

const HOLDERS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Command {
    Acquire {
        holder: usize,
        mode: Mode,
        life: Life,
        twice: bool,
    },
    /// Its reply is lost, and it is taken back.
    AcquireLost {
        holder: usize,
        mode: Mode,
    },
    Release {
        holder: usize,
    },
    ForceRelease,
    UpdateTtl {
        holder: usize,
        life: Life,
    },
    Expire,
}

fn command() -> impl Strategy<Value = Command> {
    let holder = || 0..HOLDERS.len();
    let mode = || prop::sample::select(vec![Mode::Read, Mode::Read, Mode::Write]);
    prop_oneof![
        6 => (holder(), mode(), life(), any::<bool>())
            .prop_map(|(holder, mode, life, twice)| Command::Acquire { holder, mode, life, twice }),
        1 => (holder(), mode()).prop_map(|(holder, mode)| Command::AcquireLost { holder, mode }),
        4 => holder().prop_map(|holder| Command::Release { holder }),
        1 => Just(Command::ForceRelease),
        2 => (holder(), life()).prop_map(|(holder, life)| Command::UpdateTtl { holder, life }),
        2 => Just(Command::Expire),
    ]
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    SecondRead,
}

#[derive(Default)]
struct Model {
    members: BTreeMap<usize, (Mode, End)>,
    now: Duration,
}

impl Model {
    fn answer(&self, holder: usize, mode: Mode) -> Answer {
        let writing = self.members.values().any(|(mode, _)| *mode == Mode::Write);
        let alone = self.members.keys().all(|member| *member == holder);
        match mode {
            Mode::Read if writing => Answer::No,
            Mode::Read if self.members.contains_key(&holder) => Answer::SecondRead,
            Mode::Read => Answer::Yes,
            _ if !writing && alone => Answer::Yes,
            _ => Answer::No,
        }
    }
}

async fn drive(ground: &Ground, commands: &[Command]) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    for command in commands {
        step(ground, &mut model, command).await?;
        compare(ground, &model).await?;
    }
    Ok(())
}

async fn step(ground: &Ground, model: &mut Model, command: &Command) -> Result<(), TestCaseError> {
    match *command {
        Command::Acquire {
            holder,
            mode,
            life,
            twice,
        } => {
            if twice {
                ground.spy.fail_acquires([Fault::Twice]);
            }
            let request = request(ground, holder, mode);
            let request = match life.ttl() {
                Some(ttl) => request.ttl(ttl),
                None => request.persistent(),
            };
            let expected = model.answer(holder, mode);
            prop_assert_eq!(attempt(&request).await, &expected);
            if expected == Answer::Yes {
                model.members.insert(holder, (mode, life.end(model.now)));
            }
        }
        Command::AcquireLost { holder, mode } => {
            let before = ground.spy.withdrawals();
            ground.spy.fail_acquires([Fault::LoseReply]);
            prop_assert!(request(ground, holder, mode).try_acquire().await.is_err());
            eventually(async || ground.spy.withdrawals() > before).await;
        }
        Command::Release { holder } => {
            let token = Token::new(HOLDERS[holder]);
            let released = ground.elsewhere.read("r").release(&token).await.unwrap();
            prop_assert_eq!(released.was_held(), model.members.remove(&holder).is_some());
        }
        Command::ForceRelease => {
            let removed = ground.elsewhere.write("r").force_release().await.unwrap();
            prop_assert_eq!(removed, !model.members.is_empty());
            model.members.clear();
        }
        Command::UpdateTtl { holder, life } => update_ttl(ground, model, holder, life).await?,
        Command::Expire => {
            ground.advance(JUMP).await;
            model.now += JUMP;
            let now = model.now;
            model.members.retain(|_, (_, end)| !end.is_over(now));
        }
    }
    Ok(())
}

async fn update_ttl(
    ground: &Ground,
    model: &mut Model,
    holder: usize,
    life: Life,
) -> Result<(), TestCaseError> {
    let token = Token::new(HOLDERS[holder]);
    let adopted = ground.elsewhere.read("r").adopt(&token).await.unwrap();
    let member = model.members.get_mut(&holder);
    prop_assert_eq!(adopted.is_some(), member.is_some());
    if let (Some(guard), Some((_, end))) = (adopted, member) {
        match life.ttl() {
            Some(ttl) => guard.extend(ttl).await.unwrap(),
            None => guard.persist().await.unwrap(),
        }
        *end = life.end(model.now);
        guard.keep();
    }
    Ok(())
}

fn request(ground: &Ground, holder: usize, mode: Mode) -> Acquire {
    let request = match mode {
        Mode::Read => ground.locks.read("r"),
        _ => ground.locks.write("r"),
    };
    request.token(HOLDERS[holder])
}

async fn attempt(request: &Acquire) -> &'static Answer {
    match request.try_acquire().await.unwrap() {
        Attempt::Acquired(guard) => {
            guard.keep();
            &Answer::Yes
        }
        Attempt::AlreadyHeld(_) => &Answer::SecondRead,
        Attempt::Busy(_) => &Answer::No,
    }
}

async fn compare(ground: &Ground, model: &Model) -> Result<(), TestCaseError> {
    let lock = ground.elsewhere.read("r");
    let holders = lock.holders().await.unwrap();
    prop_assert_eq!(holders.len(), model.members.len());
    prop_assert_eq!(lock.is_held().await.unwrap(), !model.members.is_empty());
    for (member, (mode, end)) in &model.members {
        let token = Token::new(HOLDERS[*member]);
        prop_assert!(lock.exists(Who::Token(token.clone())).await.unwrap());
        let found = holders.iter().find(|holder| *holder.token() == token);
        prop_assert!(found.is_some_and(|holder| holder.mode() == *mode));
        prop_assert!(found.is_some_and(|holder| end.is_about(holder.remaining(), model.now)));
    }
    Ok(())
}

both_backends!();
