//! What several examples share: children that never outlive their parent, and a Redis of their own.
#![allow(
    clippy::allow_attributes,
    dead_code,
    reason = "each example uses its own part"
)]

pub(crate) mod offspring;
pub(crate) mod redis_server;

use std::{error::Error, process::ExitCode};

/// Says what went wrong in words.
#[expect(clippy::print_stderr, reason = "a person reads it")]
pub(crate) fn exit_code(result: Result<(), Box<dyn Error + Send + Sync>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
