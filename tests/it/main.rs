//! Integration tests: one binary, real parts.

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
mod lock_server;
#[cfg(test)]
mod lock_shared;
#[cfg(test)]
mod lock_token;
#[cfg(test)]
mod lock_wait;
#[cfg(test)]
mod lock_wire;
#[cfg(test)]
mod support;
