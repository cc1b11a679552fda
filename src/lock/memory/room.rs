//! One read/write lock: its members, and the rules by which they come and go.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::book::{Expiry, expiry, extended, remaining};
use crate::lock::backend::{
    Busy, Claim, Extension, Grant, Holder, Holding, Mode, Obstacle, Queueing, Released, Remaining,
    Removed, Terms,
};

#[derive(Debug, Default)]
pub(super) struct Room {
    members: BTreeMap<Bytes, Member>,
    /// Writers that wait and are preferred, by attempt, and until when they hold readers back.
    waiting: BTreeMap<Arc<str>, Instant>,
}

#[derive(Clone, Debug)]
struct Member {
    mode: Mode,
    attempt: Arc<str>,
    metadata: Bytes,
    ends: Expiry,
    /// The read that this writer was promoted from, for a withdrawal.
    before: Option<Box<Self>>,
}

/// Whether watchers must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    Watchers,
    Nobody,
}

impl Room {
    /// Forgets what has expired; whether anything is left.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        self.members.retain(|_, member| member.ends.is_after(now));
        self.waiting.retain(|_, until| *until > now);
        !self.members.is_empty() || !self.waiting.is_empty()
    }

    pub(super) fn acquire(&mut self, now: Instant, claim: &Claim, terms: &Terms) -> Grant {
        let token = claim.token().as_bytes();
        if let Some(own) = self.members.get(token) {
            if *own.attempt == *claim.attempt() {
                return Grant::Granted { fence: None };
            }
            if claim.mode() == Mode::Read && own.mode == Mode::Read {
                return Grant::AlreadyHeld(remaining(own.ends, now));
            }
        }
        if let Some(busy) = self.obstacle(now, claim) {
            if let (Mode::Write, Queueing::HoldBack(time)) = (claim.mode(), terms.queueing()) {
                self.waiting.insert(claim.attempt().into(), now + time);
            }
            return Grant::Busy(busy);
        }
        self.admit(now, claim, terms);
        Grant::Granted { fence: None }
    }

    pub(super) fn release(&mut self, holder: &Holding) -> Released {
        let token = holder.token().as_bytes();
        let Some(member) = self.members.get(token) else {
            return if self
                .members
                .values()
                .any(|member| member.mode == Mode::Write)
            {
                Released::HeldByAnother
            } else {
                Released::Expired
            };
        };
        if !is_same(member, holder) {
            return Released::HeldByAnother;
        }
        self.members.remove(token);
        Released::Released
    }

    pub(super) fn extend(
        &mut self,
        now: Instant,
        holder: &Holding,
        change: &Extension,
    ) -> Option<(Remaining, Wake)> {
        let member = self.members.get_mut(holder.token().as_bytes())?;
        if !is_same(member, holder) {
            return None;
        }
        let before = member.ends;
        member.ends = extended(before, now, change);
        let wake = if member.ends < before {
            Wake::Watchers
        } else {
            Wake::Nobody
        };
        Some((remaining(member.ends, now), wake))
    }

    pub(super) fn holders(&self, now: Instant) -> Vec<Holder> {
        let holder = |(token, member): (&Bytes, &Member)| {
            let attempt = Bytes::copy_from_slice(member.attempt.as_bytes());
            let token = crate::lock::Token::new(token);
            Holder::new(
                member.mode,
                token,
                Some(attempt),
                remaining(member.ends, now),
            )
            .with_metadata(member.metadata.clone())
        };
        self.members.iter().map(holder).collect()
    }

    pub(super) fn clear(&mut self) -> Removed {
        let removed = if self.members.is_empty() {
            Removed::Nothing
        } else {
            Removed::Some
        };
        self.members.clear();
        removed
    }

    pub(super) fn withdraw(&mut self, claim: &Claim) -> Wake {
        let token = claim.token().as_bytes();
        let mut wake = match self.waiting.remove(claim.attempt()) {
            Some(_) => Wake::Watchers,
            None => Wake::Nobody,
        };
        let granted = |member: &Member| *member.attempt == *claim.attempt();
        if self.members.get(token).is_some_and(granted) {
            wake = Wake::Watchers;
            let before = self.members.remove(token).and_then(|member| member.before);
            if let Some(reader) = before {
                self.members.insert(Bytes::copy_from_slice(token), *reader);
            }
        }
        wake
    }

    fn obstacle(&self, now: Instant, claim: &Claim) -> Option<Busy> {
        let own = self.members.get(claim.token().as_bytes());
        let writer = self
            .members
            .values()
            .find(|member| member.mode == Mode::Write);
        let in_the_way = |obstacle, ends| Busy::new(obstacle, Some(remaining(ends, now)));
        if let Some(writer) = writer {
            return Some(in_the_way(Obstacle::Holder, writer.ends));
        }
        if claim.mode() == Mode::Read {
            let preferred = !self.waiting.is_empty();
            return preferred.then(|| Busy::new(Obstacle::WaitingWriter, None));
        }
        let others = self
            .members
            .iter()
            .filter(|(token, _)| token.as_ref() != claim.token().as_bytes())
            .map(|(_, member)| member.ends)
            .max()?;
        let obstacle = match own {
            Some(_) => Obstacle::OtherReaders,
            None => Obstacle::Holder,
        };
        Some(in_the_way(obstacle, others))
    }

    fn admit(&mut self, now: Instant, claim: &Claim, terms: &Terms) {
        self.waiting.remove(claim.attempt());
        let token = Bytes::copy_from_slice(claim.token().as_bytes());
        let before = self.members.remove(&token).map(Box::new);
        let member = Member {
            mode: claim.mode(),
            attempt: claim.attempt().into(),
            metadata: claim.metadata().clone(),
            ends: expiry(terms.ttl(), now),
            before,
        };
        self.members.insert(token, member);
    }
}

fn is_same(member: &Member, holder: &Holding) -> bool {
    holder
        .attempt()
        .is_none_or(|attempt| *member.attempt == *attempt)
}

/// How long a tombstone stands: longer than any command can be under way.
pub(super) const TOMBSTONE: Duration = Duration::from_secs(600);
