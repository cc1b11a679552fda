//! The one place that spawns.

use std::future::Future;

use tokio::{runtime::Handle, task::JoinHandle};
use tracing::{Instrument as _, Span};

/// Spawns `future` on the runtime of the caller, in the caller's span.
///
/// Without a runtime (a guard dropped after the runtime has ended) nothing runs and `None` comes
/// back: what the task would have done must then be covered by a TTL.
pub(crate) fn spawn<F>(future: F) -> Option<JoinHandle<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn_in(Span::current(), future)
}

/// As [`spawn`], in a span of its own.
pub(crate) fn spawn_in<F>(span: Span, future: F) -> Option<JoinHandle<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let handle = Handle::try_current().ok()?;
    Some(handle.spawn(future.instrument(span)))
}
