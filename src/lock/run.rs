//! Work under a lock, which is released however the work ends.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    task::Poll,
};

use super::{
    backend::Released,
    error::{Error, ErrorKind, Operation},
    guard::Guard,
};

type Caught<T> = Result<T, Box<dyn Any + Send>>;

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
    Ok(done.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Awaits `work` and catches its panic, which is thrown again after the release.
async fn caught<F: Future>(mut work: Pin<&mut F>) -> Caught<F::Output> {
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}

fn report(released: Result<Released, Error>, key: Option<&str>) {
    let error = match released {
        Ok(Released::Released) => return,
        Ok(_) => "it was not held any more".to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::warn!(key, error, "a lock could not be released after the work");
}
