//! What other people's code does by panicking, as a value.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::Poll,
};

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
