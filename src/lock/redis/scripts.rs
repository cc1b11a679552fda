//! The scripts: every decision about a lock on Redis is made in one of them, atomically.

use crate::link::Script;

pub(super) static ACQUIRE: Script = Script::new(include_str!("scripts/acquire.lua"));
pub(super) static ACQUIRE_PLAIN: Script = Script::new(include_str!("scripts/acquire_plain.lua"));
/// Compare and delete.
pub(super) static RELEASE: Script = Script::new(include_str!("scripts/release.lua"));
pub(super) static EXTEND: Script = Script::new(include_str!("scripts/extend.lua"));
pub(super) static WITHDRAW: Script = Script::new(include_str!("scripts/withdraw.lua"));
pub(super) static HOLDER: Script = Script::new(include_str!("scripts/holder.lua"));
pub(super) static FORCE_RELEASE: Script = Script::new(include_str!("scripts/force_release.lua"));

macro_rules! room {
    ($script:literal) => {
        Script::new(concat!(
            include_str!("scripts/room.lua"),
            include_str!($script)
        ))
    };
}

pub(super) static ROOM_ACQUIRE: Script = room!("scripts/room_acquire.lua");
pub(super) static ROOM_RELEASE: Script = room!("scripts/room_release.lua");
pub(super) static ROOM_EXTEND: Script = room!("scripts/room_extend.lua");
pub(super) static ROOM_WITHDRAW: Script = room!("scripts/room_withdraw.lua");
pub(super) static ROOM_HOLDERS: Script = room!("scripts/room_holders.lua");
pub(super) static ROOM_FORCE_RELEASE: Script = room!("scripts/room_force_release.lua");
