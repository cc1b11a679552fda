//! Integration tests: one binary, real parts.
#![expect(
    clippy::disallowed_methods,
    reason = "tests are the callers that spawn"
)]
#![expect(
    clippy::absolute_paths,
    clippy::double_ended_iterator_last,
    clippy::large_enum_variant,
    clippy::large_futures,
    clippy::needless_for_each,
    clippy::semicolon_if_nothing_returned,
    clippy::similar_names,
    clippy::type_complexity,
    reason = "a test reads best as the story it tells"
)]

#[cfg(test)]
mod bodies;
#[cfg(test)]
mod bounds;
#[cfg(test)]
#[cfg(feature = "redis")]
mod busy;
#[cfg(test)]
mod cancel;
#[cfg(test)]
#[cfg(feature = "redis")]
mod cluster;
#[cfg(test)]
#[cfg(feature = "redis")]
mod cluster_faults;
#[cfg(test)]
#[cfg(feature = "redis")]
mod cluster_locks;
#[cfg(test)]
#[cfg(feature = "redis")]
mod cluster_slots;
#[cfg(test)]
#[cfg(feature = "redis")]
mod cluster_wakes;
#[cfg(test)]
mod coalescing;
#[cfg(test)]
mod compose;
#[cfg(test)]
#[cfg(all(feature = "compression", feature = "redis"))]
mod compression;
#[cfg(test)]
#[cfg(feature = "redis")]
mod connecting;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod control;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod defaults;
#[cfg(test)]
mod endings;
#[cfg(test)]
#[cfg(feature = "redis")]
mod events;
#[cfg(test)]
#[cfg(feature = "redis")]
mod examples;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_cancel;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_counts;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_events;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_exits;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_forged;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_health;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_logs;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_memory;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_network;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_purge;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fault_start;
#[cfg(test)]
#[cfg(feature = "redis")]
mod fleet;
#[cfg(test)]
#[cfg(feature = "redis")]
mod following;
#[cfg(test)]
mod http_answers;
#[cfg(test)]
#[cfg(feature = "redis")]
mod http_bytes;
#[cfg(test)]
mod http_invalidation;
#[cfg(test)]
mod http_options;
#[cfg(test)]
#[cfg(feature = "redis")]
mod http_proxy;
#[cfg(test)]
mod http_revalidation;
#[cfg(test)]
#[cfg(feature = "redis")]
mod http_shared;
#[cfg(test)]
mod http_support;
#[cfg(test)]
mod http_wire;
#[cfg(test)]
mod keys;
#[cfg(test)]
#[cfg(feature = "redis")]
mod leases;
#[cfg(test)]
mod lengths;
#[cfg(test)]
#[cfg(feature = "redis")]
mod lifetimes;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod lock_cancel;
#[cfg(test)]
mod lock_contention;
#[cfg(test)]
mod lock_example;
#[cfg(test)]
mod lock_exclusive;
#[cfg(test)]
mod lock_extend;
#[cfg(test)]
mod lock_faults;
#[cfg(test)]
mod lock_ground;
#[cfg(test)]
mod lock_input;
#[cfg(test)]
mod lock_model;
#[cfg(test)]
mod lock_multi;
#[cfg(test)]
mod lock_process;
#[cfg(test)]
mod lock_server;
#[cfg(test)]
mod lock_shared;
#[cfg(test)]
mod lock_subscription;
#[cfg(test)]
mod lock_token;
#[cfg(test)]
mod lock_wait;
#[cfg(test)]
mod lock_wire;
#[cfg(test)]
#[cfg(feature = "axum")]
mod nested;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod outcomes;
#[cfg(test)]
mod paired;
#[cfg(test)]
mod paired_corners;
#[cfg(test)]
#[cfg(all(feature = "memcached", feature = "redis"))]
mod paired_faults;
#[cfg(test)]
mod paired_liars;
#[cfg(test)]
#[cfg(feature = "memcached")]
mod paired_memcached;
#[cfg(test)]
mod paired_purging;
#[cfg(test)]
#[cfg(feature = "redis")]
mod patience;
#[cfg(test)]
#[cfg(feature = "redis")]
mod purge_corners;
#[cfg(test)]
#[cfg(feature = "redis")]
mod purging;
#[cfg(test)]
#[cfg(feature = "redis")]
mod races;
#[cfg(test)]
#[cfg(all(feature = "axum", feature = "redis"))]
mod readme;
#[cfg(test)]
#[cfg(feature = "redis")]
mod redis_faults;
#[cfg(test)]
#[cfg(feature = "redis")]
mod refreshing;
#[cfg(test)]
#[cfg(feature = "redis")]
mod renewals;
#[cfg(test)]
#[cfg(feature = "redis")]
mod renewing;
#[cfg(test)]
#[cfg(feature = "redis")]
mod settings;
#[cfg(test)]
mod shapes;
#[cfg(test)]
#[cfg(feature = "redis")]
mod shared;
#[cfg(test)]
#[cfg(feature = "redis")]
mod shutdown;
#[cfg(test)]
mod staleness;
#[cfg(test)]
mod support;
#[cfg(test)]
#[cfg(feature = "redis")]
mod topologies;
#[cfg(test)]
#[cfg(feature = "redis")]
mod topologies_sentinel;
#[cfg(test)]
#[cfg(feature = "tls")]
mod topologies_tls;
#[cfg(test)]
mod variants;
#[cfg(test)]
mod waiting;
#[cfg(test)]
#[cfg(feature = "redis")]
mod workers;
