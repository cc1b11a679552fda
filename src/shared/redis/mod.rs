//! The shared tier on Redis.
