//! The shared tier's protocol, explored state by state. (draft)
#![expect(
    clippy::indexing_slicing,
    reason = "the model's tables are small and of fixed size"
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
