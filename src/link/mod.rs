//! Supervised connections to Redis.
