//! The shared tier's protocol, explored state by state.
#![expect(
    clippy::fn_params_excessive_bools,
    clippy::indexing_slicing,
    clippy::needless_for_each,
    clippy::needless_pass_by_value,
    clippy::or_fun_call,
    clippy::panic,
    clippy::print_stdout,
    clippy::redundant_clone,
    clippy::similar_names,
    clippy::trivially_copy_pass_by_ref,
    clippy::use_debug,
    reason = "a model's tables are small and of fixed size, and it prints what it found"
)]

mod check;
mod events;
mod flights;
mod requests;
mod right;
mod rules;
mod scenario;
mod search;
mod server;
mod state;
mod steps;
mod take;
mod wire;
mod world;
mod wrong;
