//! What a flight tells those who are in it.

use std::{sync::Arc, thread};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::SizeHint;

use crate::{
    body::Growing,
    entry::{self, Entry, Fields, Head},
    key::Digest,
    purges::{Moment, Purges, Since},
};

/// The latest word from a flight's task.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// The response is shareable and small enough: read along while it is being produced.
    Streaming(Arc<Stream>),
    /// The shared tier has the entry.
    Found(Arc<Entry>),
    /// The same, and it is of a build that this flight has waited for.
    Awaited(Arc<Entry>),
    /// The resource has variants: look under the one that the request asks for.
    Elsewhere(Fields),
    Landed(Verdict),
}

/// A response whose body is still growing.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) head: Head,
    pub(crate) body: Growing,
    pub(crate) hint: SizeHint,
    /// What its entry can be purged by, and the moment its build began.
    pub(crate) tags: Box<[Digest]>,
    pub(crate) began: Moment,
}

impl Stream {
    /// Whether a request that came at `joined` may read along: it was there before any purge that
    /// reached the build.
    pub(crate) fn may_answer(&self, joined: Moment, purges: &Purges) -> bool {
        joined <= self.began || purges.since(self.began, &self.tags) == Since::Nothing
    }
}

/// How a build ended, as waiters see it.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// There is an entry: built here, or found in the shared tier.
    Stored(Arc<Entry>),
    /// For those in the flight, not stored.
    Shared(Arc<Entry>),
    /// Purged while it was being built: for those who were already waiting then.
    Invalidated(Arc<Entry>),
    /// The response is for its own request alone: everyone is free.
    Uncacheable,
    /// Too large to be stored or shared: everyone is free.
    TooLarge,
    Failed(Arc<Failure>),
    /// Nothing came of it: start over.
    Abandoned,
}

impl Verdict {
    /// Of a flight whose task ends without one, here and now.
    pub(super) fn untold() -> Self {
        if thread::panicking() {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Self::Failed(Arc::new(Failure::Status(status)))
        } else {
            Self::Abandoned
        }
    }
}

/// A failure's response with a larger body is shared as its status alone: memos are many.
pub(crate) const LARGEST_FAILURE: usize = 64 * 1024;

/// A failed build, as it is shared with everybody but the request that started it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The handler answered with a server error: the same for all.
    Response(Arc<Entry>),
    /// A failure without a response of its own.
    Status(StatusCode),
    /// There is a stale entry that may stand in (RFC 5861 section 4).
    Stale(Arc<Entry>, Arc<Self>),
}

impl Failure {
    /// The failure that another process has told of.
    pub(crate) fn of(entry: Arc<Entry>) -> Self {
        if entry.head.headers.is_empty() && entry.body.is_empty() {
            Self::Status(entry.head.status)
        } else {
            Self::Response(entry)
        }
    }

    /// What of it a request may have: a stale entry that it may not have stands in for nothing.
    ///
    /// # Errors
    ///
    /// Only the status is for it; the rest is for others.
    pub(crate) fn usable(&self, may_have: impl Fn(&Entry) -> bool) -> Result<&Self, StatusCode> {
        match self {
            Self::Response(entry) if !may_have(entry) => Err(entry.head.status),
            Self::Stale(entry, failure) if !may_have(entry) => match &**failure {
                Self::Response(entry) if !may_have(entry) => Err(entry.head.status),
                failure => Ok(failure),
            },
            Self::Response(_) | Self::Stale(..) | Self::Status(_) => Ok(self),
        }
    }

    /// The memory it takes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Response(entry) => entry.weight(),
            Self::Stale(entry, failure) => entry.weight() + failure.weight(),
            Self::Status(_) => 0,
        }
    }

    /// The failure as other processes are told of it.
    pub(crate) fn as_entry(&self, began: Moment) -> Arc<Entry> {
        let status = match self {
            Self::Response(entry) => return Arc::clone(entry),
            Self::Status(status) => *status,
            Self::Stale(_, failure) => return failure.as_entry(began),
        };
        let headers = HeaderMap::new();
        let head = Head {
            status,
            headers,
            variant: None,
            age: 0,
        };
        entry::unstored(head, Bytes::new(), None, began)
    }
}
