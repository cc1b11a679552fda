//! Locks for one process and for many: leases with a token and a time to live.
