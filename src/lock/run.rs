//! Work under a lock, which is released however the work ends.

use std::{future::Future, panic::resume_unwind, pin::Pin};

use super::{
    backend::Released,
    error::{Error, ErrorKind, Operation},
    guard::Guard,
};
use crate::caught::caught;

pub(super) async fn run<F: Future>(
    mut guard: Guard,
    mut work: Pin<Box<F>>,
) -> Result<F::Output, Error> {
    guard.release_on_drop();
    let outcome = if guard.renews() {
        tokio::select! {
            biased;
            done = caught(work.as_mut()) => Some(done),
            () = guard.lost() => None,
        }
    } else {
        Some(caught(work.as_mut()).await)
    };
    // The work ends before the lock does.
    drop(work);
    let key = guard.keys().next().map(str::to_owned);
    let released = guard.release().await;
    report(released, key.as_deref());
    let Some(done) = outcome else {
        return Err(Error::new(ErrorKind::NotHeld).during(Operation::Extend));
    };
    // It is thrown again once the lock is released.
    Ok(done.unwrap_or_else(|thrown| resume_unwind(thrown)))
}

fn report(released: Result<Released, Error>, key: Option<&str>) {
    let error = match released {
        Ok(Released::Released) => return,
        Ok(_) => "it was not held any more".to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::warn!(key, error, "a lock could not be released after the work");
}
