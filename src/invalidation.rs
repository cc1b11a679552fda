//! What an unsafe request does to the entries that it makes void (RFC 9111 section 4.4).

use std::fmt;

use http::{HeaderMap, Method, Response, Uri, header::HOST, request};

use crate::{
    cache::{Cache, Target},
    http::invalidate,
    policy::{Mode, Policy},
};

/// What is kept of an unsafe request until its response tells what became of it.
pub(crate) struct Invalidation {
    cache: Cache,
    method: Method,
    target: Uri,
    host: HeaderMap,
    stage: Stage,
}

/// How far the request has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The inner service has not seen it.
    Waiting,
    /// It may have taken effect.
    Sent,
    Settled,
}

impl Invalidation {
    /// Nothing for a safe request, or where nothing is stored.
    pub(crate) fn of(
        request: &request::Parts,
        cache: &Cache,
        policy: &Policy,
    ) -> Option<Box<Self>> {
        if policy.mode != Mode::Cache || invalidate::leaves_entries_alone(&request.method) {
            return None;
        }
        let hosts = request.headers.get_all(HOST).iter().cloned();
        Some(Box::new(Self {
            cache: cache.clone(),
            method: request.method.clone(),
            target: policy.key.target(request).clone(),
            host: hosts.map(|host| (HOST, host)).collect(),
            stage: Stage::Waiting,
        }))
    }

    /// The inner service gets the request now. From here on, no response at all means that nobody
    /// knows what it has done: the target is purged then.
    pub(crate) fn sent(&mut self) {
        self.stage = Stage::Sent;
    }

    /// The request has been answered: unless it failed, its target is purged, and what `Location`
    /// and `Content-Location` name on the same origin.
    pub(crate) fn settle<B>(&mut self, response: &Response<B>) {
        self.stage = Stage::Settled;
        let request = (&self.method, &self.target, &self.host);
        let response = (response.status(), response.headers());
        for uri in invalidate::invalidated(request, response) {
            self.cache.invalidate(Target::uri_at(&uri, &self.host));
        }
    }
}

impl Drop for Invalidation {
    /// The client went away, or the inner service failed or panicked, and the write may still have
    /// been done.
    fn drop(&mut self) {
        if self.stage == Stage::Sent {
            self.cache
                .invalidate(Target::uri_at(&self.target, &self.host));
        }
    }
}

impl fmt::Debug for Invalidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invalidation")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}
