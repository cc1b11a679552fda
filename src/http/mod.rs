//! Pure, synchronous HTTP caching rules.
