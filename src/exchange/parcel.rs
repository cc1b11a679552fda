//! The request of the one who starts a flight.

use std::sync::{Arc, Mutex, PoisonError};

use http::Request;

/// A request that both its sender and the flight's task can reach: whoever takes it first has it.
///
/// The task takes it when it starts to build. Until then a sender whose wait is over may take it
/// back; a sender that goes away leaves it to the task.
#[derive(Debug)]
pub(crate) struct Parcel<B>(Arc<Mutex<Option<Request<B>>>>);

impl<B> Parcel<B> {
    pub(crate) fn new(request: Request<B>) -> Self {
        Self(Arc::new(Mutex::new(Some(request))))
    }

    pub(crate) fn take(&self) -> Option<Request<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
    }
}

// Written by hand: a shared request need not be `Clone`.
impl<B> Clone for Parcel<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
