//! Pure, synchronous HTTP caching rules (RFC 9110, 9111, 5861, 9213).
//!
//! Nothing here waits, reads a clock or keeps state. When a response arrives, [`storable`] judges
//! it once and [`freshness`] turns its fields into durations, so that a hit only compares instants.
//! [`vary`] says which variant a request selects, [`fields`] what of a message is kept, and
//! [`cache_control`] and [`targeted`] read the directives all of them go by.

pub(crate) mod cache_control;
mod content;
pub(crate) mod fields;
pub(crate) mod freshness;
pub(crate) mod storable;
pub(crate) mod targeted;
pub(crate) mod vary;
