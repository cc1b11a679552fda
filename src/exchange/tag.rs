//! Making an entity tag without holding up others: hashing a large body takes its time.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio::task::yield_now;

use crate::http::etag::{Step, Tagging};

/// The tag of a response with these fields and this body.
pub(super) async fn of(headers: &HeaderMap, body: &Bytes) -> HeaderValue {
    let mut tagging = Tagging::new(headers, body);
    loop {
        match tagging.step() {
            Step::Done(tag) => return tag,
            Step::More(more) => tagging = more,
        }
        yield_now().await;
    }
}
