//! Scaffolding that the tests share.
