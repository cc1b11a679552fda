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
}

impl Invalidation {
    /// Nothing for a safe request, or where nothing is stored.
    pub(crate) fn of(
        request: &request::Parts,
        cache: &Cache,
        policy: &Policy,
    ) -> Option<Box<Self>> {
        if policy.mode != Mode::Cache || invalidate::is_safe(&request.method) {
            return None;
        }
        let hosts = request.headers.get_all(HOST).iter().cloned();
        Some(Box::new(Self {
            cache: cache.clone(),
            method: request.method.clone(),
            target: policy.key.target(request).clone(),
            host: hosts.map(|host| (HOST, host)).collect(),
        }))
    }

    /// The request has been answered: unless it failed, its target is purged, and what `Location`
    /// and `Content-Location` name on the same origin.
    pub(crate) fn settle<B>(&self, response: &Response<B>) {
        let request = (&self.method, &self.target, &self.host);
        let response = (response.status(), response.headers());
        for uri in invalidate::invalidated(request, response) {
            self.cache.invalidate(Target::uri_at(&uri, &self.host));
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
