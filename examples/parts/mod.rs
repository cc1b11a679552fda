//! What several examples share: children that never outlive their parent, and a Redis of their own.

pub(crate) mod offspring;
pub(crate) mod redis_server;
