//! Pure, synchronous HTTP caching rules (RFC 9110, 9111, 5861, 9213).
//!
//! Nothing here waits, reads a clock or keeps state. When a response arrives, [`storable`] judges
//! it once and [`freshness`] turns its fields into durations, so that a hit only compares instants.
//! [`vary`] says which variant a request selects, [`fields`] what of a message is kept, and
//! [`cache_control`] and [`targeted`] read the directives all of them go by. [`conditional`] and
//! [`range`] answer a request from an entry, [`revalidate`] renews one, and [`invalidate`] names
//! those that an unsafe request makes void. [`etag`] makes validators where there are none, and [`age`]
//! the field that tells a client how old an answer is.

pub(crate) mod age;
pub(crate) mod cache_control;
pub(crate) mod conditional;
mod content;
pub(crate) mod etag;
pub(crate) mod fields;
pub(crate) mod freshness;
pub(crate) mod invalidate;
pub(crate) mod negotiate;
pub(crate) mod range;
pub(crate) mod revalidate;
pub(crate) mod storable;
pub(crate) mod targeted;
pub(crate) mod vary;
