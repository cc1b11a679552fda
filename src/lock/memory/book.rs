//! Every lock of the process and every rule about it, as a state machine without a clock of its own.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::room::{Room, TOMBSTONE, Wake};
use crate::lock::backend::{
    Busy, Claim, Extension, Family, Fencing, Grant, Holder, Holding, Key, Mode, Obstacle, Reentry,
    Released, Remaining, Removed, Terms, Ttl,
};

/// Below so many records nothing is swept.
const SWEEP: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Book {
    exclusive: HashMap<Key, Entry>,
    rooms: HashMap<Key, Room>,
    /// Attempts that were withdrawn and additions that were made, and until when they are remembered.
    done: HashMap<Arc<str>, Instant>,
    fence: u64,
    woken: Vec<(Key, Family)>,
    sweep_at: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Bytes,
    ends: Expiry,
    fence: Option<u64>,
}

/// When a lock ends by itself. A later end is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Expiry {
    At(Instant),
    Never,
}

impl Expiry {
    pub(super) fn is_after(self, now: Instant) -> bool {
        match self {
            Self::At(end) => end > now,
            Self::Never => true,
        }
    }
}

impl Book {
    /// The keys whose watchers must be told since the last call.
    pub(super) fn take_woken(&mut self) -> Vec<(Key, Family)> {
        mem::take(&mut self.woken)
    }

    pub(super) fn acquire(&mut self, now: Instant, claim: &Claim, terms: &Terms) -> Grant {
        self.sweep(now);
        if self.is_done(now, claim.attempt()) {
            return Grant::Withdrawn;
        }
        let grant = match claim.mode() {
            Mode::Exclusive => self.acquire_exclusive(now, claim, terms),
            Mode::Read | Mode::Write => {
                let grant = self.room(now, claim).acquire(now, claim, terms);
                self.numbered(grant, terms)
            }
        };
        self.forget_empty_room(now, claim.keys());
        grant
    }

    pub(super) fn release(&mut self, now: Instant, holder: &Holding) -> Released {
        if holder.family() == Family::ReadWrite {
            return self.release_member(now, holder);
        }
        let values: Vec<_> = self.values(now, holder.keys());
        if values.iter().flatten().any(|value| !holder.matches(value)) {
            return Released::HeldByAnother;
        }
        if values.iter().any(Option::is_none) {
            return Released::Expired;
        }
        for key in holder.keys() {
            self.exclusive.remove(key);
            self.woken.push((key.clone(), Family::Exclusive));
        }
        Released::Released
    }

    pub(super) fn extend(
        &mut self,
        now: Instant,
        holder: &Holding,
        change: &Extension,
    ) -> Option<Remaining> {
        let change = self.once(now, change);
        if holder.family() == Family::ReadWrite {
            return self.extend_member(now, holder, &change);
        }
        let values: Vec<_> = self.values(now, holder.keys());
        let held =
            |value: &Option<Bytes>| value.as_ref().is_some_and(|value| holder.matches(value));
        if !values.iter().all(held) {
            return None;
        }
        let mut soonest = Expiry::Never;
        for key in holder.keys() {
            let entry = self.exclusive.get_mut(key)?;
            let before = entry.ends;
            entry.ends = extended(before, now, &change);
            soonest = soonest.min(entry.ends);
            if entry.ends < before {
                self.woken.push((key.clone(), Family::Exclusive));
            }
        }
        Some(remaining(soonest, now))
    }

    pub(super) fn holders(&mut self, now: Instant, key: &Key, family: Family) -> Vec<Holder> {
        if family == Family::ReadWrite {
            let room = self.rooms.get_mut(key);
            return room.map_or_else(Vec::new, |room| {
                room.expire(now);
                room.holders(now)
            });
        }
        let entry = self
            .exclusive
            .get(key)
            .filter(|entry| entry.ends.is_after(now));
        entry
            .map(|entry| Holder::from_value(&entry.value, remaining(entry.ends, now)))
            .into_iter()
            .collect()
    }

    pub(super) fn force_release(&mut self, now: Instant, key: &Key, family: Family) -> Removed {
        let removed = match family {
            Family::Exclusive => match self.exclusive.remove(key) {
                Some(entry) if entry.ends.is_after(now) => Removed::Some,
                _ => Removed::Nothing,
            },
            Family::ReadWrite => self.rooms.get_mut(key).map_or(Removed::Nothing, |room| {
                room.expire(now);
                room.clear()
            }),
        };
        if removed == Removed::Some {
            self.woken.push((key.clone(), family));
        }
        removed
    }

    pub(super) fn withdraw(&mut self, now: Instant, claim: &Claim) {
        self.done.insert(claim.attempt().into(), now + TOMBSTONE);
        for key in claim.keys() {
            let wake = match claim.mode() {
                Mode::Exclusive => self.withdraw_exclusive(key, claim),
                Mode::Read | Mode::Write => self
                    .rooms
                    .get_mut(key)
                    .map_or(Wake::Nobody, |room| room.withdraw(claim)),
            };
            if wake == Wake::Watchers {
                self.woken.push((key.clone(), claim.mode().family()));
            }
        }
    }

    fn acquire_exclusive(&mut self, now: Instant, claim: &Claim, terms: &Terms) -> Grant {
        let token = Holding::of_token(
            claim.keys().into(),
            Family::Exclusive,
            claim.token().clone(),
        );
        let mut own = 0;
        let mut latest = None;
        for key in claim.keys() {
            let Some(entry) = self.live(now, key) else {
                continue;
            };
            if entry.value == claim.value() {
                return Grant::Granted { fence: entry.fence };
            }
            own += usize::from(token.matches(&entry.value));
            latest = latest.max(Some(entry.ends));
        }
        match latest {
            None => self.put(now, claim, terms),
            Some(ends) if own == claim.keys().len() => match terms.reentry() {
                Reentry::Replace => self.put(now, claim, terms),
                Reentry::Report => Grant::AlreadyHeld(remaining(ends, now)),
            },
            Some(ends) => Grant::Busy(Busy::new(Obstacle::Holder, Some(remaining(ends, now)))),
        }
    }

    fn put(&mut self, now: Instant, claim: &Claim, terms: &Terms) -> Grant {
        let grant = self.numbered(Grant::Granted { fence: None }, terms);
        let fence = match &grant {
            Grant::Granted { fence } => *fence,
            _ => None,
        };
        for key in claim.keys() {
            let entry = Entry {
                value: claim.value().clone(),
                ends: expiry(terms.ttl(), now),
                fence,
            };
            self.exclusive.insert(key.clone(), entry);
        }
        grant
    }

    fn withdraw_exclusive(&mut self, key: &Key, claim: &Claim) -> Wake {
        match self.exclusive.get(key) {
            Some(entry) if entry.value == claim.value() => {
                self.exclusive.remove(key);
                Wake::Watchers
            }
            _ => Wake::Nobody,
        }
    }

    fn release_member(&mut self, now: Instant, holder: &Holding) -> Released {
        let Some(key) = holder.keys().first() else {
            return Released::Expired;
        };
        let released = self.rooms.get_mut(key).map_or(Released::Expired, |room| {
            room.expire(now);
            room.release(holder)
        });
        if released.was_held() {
            self.woken.push((key.clone(), Family::ReadWrite));
        }
        self.forget_empty_room(now, holder.keys());
        released
    }

    fn extend_member(
        &mut self,
        now: Instant,
        holder: &Holding,
        change: &Extension,
    ) -> Option<Remaining> {
        let key = holder.keys().first()?;
        let room = self.rooms.get_mut(key)?;
        room.expire(now);
        let (remaining, wake) = room.extend(now, holder, change)?;
        if wake == Wake::Watchers {
            self.woken.push((key.clone(), Family::ReadWrite));
        }
        Some(remaining)
    }

    fn numbered(&mut self, grant: Grant, terms: &Terms) -> Grant {
        match grant {
            Grant::Granted { fence: None } if terms.fencing() == Fencing::Numbered => {
                self.fence += 1;
                Grant::Granted {
                    fence: Some(self.fence),
                }
            }
            grant => grant,
        }
    }

    /// An addition that was made already only tells.
    fn once(&mut self, now: Instant, change: &Extension) -> Extension {
        match change {
            Extension::Add { once, .. } if self.is_done(now, once) => Extension::Tell,
            Extension::Add { once, .. } => {
                self.done.insert(Arc::clone(once), now + TOMBSTONE);
                change.clone()
            }
            _ => change.clone(),
        }
    }

    fn is_done(&self, now: Instant, name: &str) -> bool {
        self.done.get(name).is_some_and(|until| *until > now)
    }

    fn live(&self, now: Instant, key: &Key) -> Option<&Entry> {
        self.exclusive
            .get(key)
            .filter(|entry| entry.ends.is_after(now))
    }

    fn values(&self, now: Instant, keys: &[Key]) -> Vec<Option<Bytes>> {
        let value = |key| self.live(now, key).map(|entry| entry.value.clone());
        keys.iter().map(value).collect()
    }

    fn room(&mut self, now: Instant, claim: &Claim) -> &mut Room {
        let key = claim.keys().first().expect("a claim has at least one key");
        let room = self.rooms.entry(key.clone()).or_default();
        room.expire(now);
        room
    }

    fn forget_empty_room(&mut self, now: Instant, keys: &[Key]) {
        for key in keys {
            if self
                .rooms
                .get_mut(key)
                .is_some_and(|room| !room.expire(now))
            {
                self.rooms.remove(key);
            }
        }
    }

    /// Drops what has expired, once in a while, so that names that are never used again cost nothing.
    fn sweep(&mut self, now: Instant) {
        if self.size() < self.sweep_at.max(SWEEP) {
            return;
        }
        self.exclusive.retain(|_, entry| entry.ends.is_after(now));
        self.rooms.retain(|_, room| room.expire(now));
        self.done.retain(|_, until| *until > now);
        self.sweep_at = self.size() * 2;
    }

    fn size(&self) -> usize {
        self.exclusive.len() + self.rooms.len() + self.done.len()
    }
}

pub(super) fn expiry(ttl: Ttl, now: Instant) -> Expiry {
    // An end that no clock can tell never comes.
    let end = ttl.duration().and_then(|ttl| now.checked_add(ttl));
    end.map_or(Expiry::Never, Expiry::At)
}

pub(super) fn remaining(ends: Expiry, now: Instant) -> Remaining {
    match ends {
        Expiry::At(end) => {
            let millis = end.saturating_duration_since(now).as_millis();
            Remaining::Millis(u64::try_from(millis).unwrap_or(u64::MAX))
        }
        Expiry::Never => Remaining::Persistent,
    }
}

pub(super) fn extended(ends: Expiry, now: Instant, change: &Extension) -> Expiry {
    match (change, ends) {
        (Extension::Replace(ttl), _) => expiry(*ttl, now),
        (Extension::Add { millis, .. }, Expiry::At(end)) => end
            .checked_add(Duration::from_millis(*millis))
            .map_or(Expiry::Never, Expiry::At),
        (Extension::Add { .. }, Expiry::Never) | (Extension::Tell, _) => ends,
    }
}
