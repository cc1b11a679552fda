//! The scripts' keys and arguments.

use std::time::Duration;

use super::scripts::{
    ACQUIRE, ACQUIRE_PLAIN, EXTEND, FORCE_RELEASE, HOLDER, RELEASE, ROOM_ACQUIRE, ROOM_EXTEND,
    ROOM_FORCE_RELEASE, ROOM_HOLDERS, ROOM_RELEASE, ROOM_WITHDRAW, WITHDRAW,
};
use crate::{
    link::{Call, Script},
    lock::{
        backend::{
            Claim, Extension, Family, Fencing, Holding, Key, Mode, Queueing, Reentry, Terms, Ttl,
        },
        manager::first,
        value::Proof,
    },
};

/// For so long a withdrawn attempt and an addition are remembered: longer than a command can be
/// under way.
const REMEMBERED: Duration = Duration::from_secs(600);
/// For so long a fencing counter outlives its lock.
const COUNTER: Duration = Duration::from_secs(24 * 60 * 60);

type Invocation = (&'static Script, Call);

pub(super) fn channel(key: &Key, family: Family) -> String {
    key.companion(match family {
        Family::Exclusive => "c",
        Family::ReadWrite => "rc",
    })
}

pub(super) fn acquire(claim: &Claim, terms: &Terms) -> Invocation {
    if claim.mode() != Mode::Exclusive {
        return room_acquire(claim, terms);
    }
    if let ([key], true, Fencing::Off, Ttl::Millis(ttl)) =
        (claim.keys(), claim.is_plain(), terms.fencing(), terms.ttl())
    {
        let call = Call::new()
            .key(key.as_str())
            .key(tombstone(claim))
            .arg(&claim.value()[..])
            .arg(ttl);
        return (&ACQUIRE_PLAIN, call);
    }
    let proof = Proof::of_token(claim.token());
    let mut call = keys(Call::new(), claim.keys()).key(tombstone(claim));
    if terms.fencing() == Fencing::Numbered {
        for key in claim.keys() {
            call = call.key(key.companion("f"));
        }
    }
    let call = call
        .arg(claim.keys().len())
        .arg(&claim.value()[..])
        .arg(&proof.exact[..])
        .arg(&proof.prefix[..])
        .arg(millis(terms.ttl()))
        .arg(match terms.reentry() {
            Reentry::Replace => "replace",
            Reentry::Report => "report",
        })
        .arg(whole(COUNTER));
    (&ACQUIRE, call)
}

pub(super) fn release(holder: &Holding) -> Invocation {
    if let Some(room) = room_of(holder) {
        let call = member(rooms(room), holder).arg(channel(room, Family::ReadWrite));
        return (&ROOM_RELEASE, call);
    }
    let proof = holder.proof();
    let call = keys(Call::new(), holder.keys())
        .arg(&proof.exact[..])
        .arg(&proof.prefix[..]);
    (&RELEASE, channels(call, holder.keys()))
}

pub(super) fn extend(holder: &Holding, change: &Extension) -> Invocation {
    let (what, time) = match change {
        Extension::Replace(ttl) => ("replace", millis(*ttl)),
        Extension::Add { millis, .. } => ("add", *millis),
        Extension::Tell => ("tell", 0),
    };
    if let Some(room) = room_of(holder) {
        let call = member(once(rooms(room), room, change), holder)
            .arg(what)
            .arg(time)
            .arg(whole(REMEMBERED))
            .arg(channel(room, Family::ReadWrite));
        return (&ROOM_EXTEND, call);
    }
    let proof = holder.proof();
    let mut call = keys(Call::new(), holder.keys());
    if let Some(key) = holder.keys().first() {
        call = once(call, key, change);
    }
    let call = call
        .arg(holder.keys().len())
        .arg(&proof.exact[..])
        .arg(&proof.prefix[..])
        .arg(what)
        .arg(time)
        .arg(whole(REMEMBERED));
    (&EXTEND, channels(call, holder.keys()))
}

pub(super) fn holders(key: &Key, family: Family) -> Invocation {
    match family {
        Family::Exclusive => (&HOLDER, Call::new().key(key.as_str())),
        Family::ReadWrite => (&ROOM_HOLDERS, rooms(key)),
    }
}

pub(super) fn force_release(key: &Key, family: Family) -> Invocation {
    let (script, call) = match family {
        Family::Exclusive => (&FORCE_RELEASE, Call::new().key(key.as_str())),
        Family::ReadWrite => (&ROOM_FORCE_RELEASE, rooms(key)),
    };
    (script, call.arg(channel(key, family)))
}

pub(super) fn withdraw(claim: &Claim) -> Invocation {
    if claim.mode() != Mode::Exclusive {
        let room = first(claim);
        let call = rooms(room)
            .key(tombstone(claim))
            .arg(claim.token().as_bytes())
            .arg(claim.attempt())
            .arg(whole(REMEMBERED))
            .arg(channel(room, Family::ReadWrite));
        return (&ROOM_WITHDRAW, call);
    }
    let call = keys(Call::new(), claim.keys())
        .key(tombstone(claim))
        .arg(&claim.value()[..])
        .arg(whole(REMEMBERED));
    (&WITHDRAW, channels(call, claim.keys()))
}

fn room_acquire(claim: &Claim, terms: &Terms) -> Invocation {
    let room = first(claim);
    let mut call = rooms(room).key(tombstone(claim));
    if terms.fencing() == Fencing::Numbered {
        call = call.key(room.companion("f"));
    }
    let call = call
        .arg(match claim.mode() {
            Mode::Read => "r",
            Mode::Exclusive | Mode::Write => "w",
        })
        .arg(claim.token().as_bytes())
        .arg(claim.attempt())
        .arg(millis(terms.ttl()))
        .arg(&claim.metadata()[..])
        .arg(match terms.queueing() {
            Queueing::Silent => 0,
            Queueing::HoldBack(time) => whole(time),
        })
        .arg(whole(COUNTER));
    (&ROOM_ACQUIRE, call)
}

fn room_of(holder: &Holding) -> Option<&Key> {
    match holder.family() {
        Family::Exclusive => None,
        Family::ReadWrite => holder.keys().first(),
    }
}

fn rooms(key: &Key) -> Call {
    ["rw", "rn", "rq"]
        .iter()
        .fold(Call::new(), |call, part| call.key(key.companion(part)))
}

fn member(call: Call, holder: &Holding) -> Call {
    call.arg(holder.token().as_bytes())
        .arg(holder.attempt().unwrap_or_default())
}

fn once(call: Call, key: &Key, change: &Extension) -> Call {
    match change {
        Extension::Add { once, .. } => call.key(key.companion(&format!("a:{once}"))),
        _ => call,
    }
}

fn keys(call: Call, keys: &[Key]) -> Call {
    keys.iter().fold(call, |call, key| call.key(key.as_str()))
}

fn channels(call: Call, keys: &[Key]) -> Call {
    keys.iter()
        .fold(call, |call, key| call.arg(channel(key, Family::Exclusive)))
}

fn tombstone(claim: &Claim) -> String {
    first(claim).companion(&["x:", claim.attempt()].concat())
}

/// 0 means persistent; no other time to live is 0.
fn millis(ttl: Ttl) -> u64 {
    match ttl {
        Ttl::Millis(millis) => millis,
        Ttl::Persistent => 0,
    }
}

fn whole(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
