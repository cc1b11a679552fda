//! What other people's code does by panicking, as a value.

use std::{
    any::Any,
    error::Error,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    task::Poll,
};

use tokio::time::{Instant, timeout_at};

/// What was thrown. It is never shown: it may quote anything.
pub(crate) type Thrown = Box<dyn Any + Send>;

/// Awaits `work` and catches its panic; it must not be polled again then.
///
/// # Cancel safety
///
/// Dropped early, `work` is where it was.
pub(crate) async fn caught<F: Future + ?Sized>(mut work: Pin<&mut F>) -> Result<F::Output, Thrown> {
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(thrown) => Poll::Ready(Err(thrown)),
        },
    )
    .await
}

/// Awaits `work` until `deadline`.
///
/// # Errors
///
/// It took longer, or panicked.
pub(crate) async fn in_time<F: Future>(
    deadline: Instant,
    work: F,
) -> Result<F::Output, Box<dyn Error + Send + Sync>> {
    timeout_at(deadline, caught(pin!(work)))
        .await?
        .map_err(|_thrown| "it panicked".into())
}
