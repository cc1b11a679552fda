//! What a layer's keys are made of.

use std::sync::Arc;

use http::{HeaderName, Uri, request};

use super::BufferLayer;
use crate::{
    http::negotiate::Offer,
    key::{KeyWriter, Keyed, Own, QueryKey},
    policy::Cookies,
};

/// # The key
impl BufferLayer {
    /// Puts a request header in the key. Default: none; what a response names in `Vary` is taken
    /// care of without this.
    pub fn vary_by_header(self, name: HeaderName) -> Self {
        self.with(|policy| policy.key.headers.push(name))
    }

    /// Puts a cookie in the key. Requests with cookies are then no longer bypassed; all other
    /// cookies are taken off the request before it reaches the inner service. Default: none.
    pub fn vary_by_cookie(self, name: impl Into<String>) -> Self {
        self.with(|policy| {
            policy.cookies = Cookies::Keyed;
            policy.key.cookies.push(name.into());
        })
    }

    /// Which part of the query is in the key. Default: [`QueryKey::Raw`].
    pub fn query(self, query: QueryKey) -> Self {
        self.with(|policy| policy.key.query = query)
    }

    /// Adds parts of your own to the key. See [`KeyWriter`] for an example.
    pub fn key_with<F>(self, closure: F) -> Self
    where
        F: Fn(&request::Parts, &mut KeyWriter<'_>) -> Keyed + Send + Sync + 'static,
    {
        self.with(|policy| policy.key.own = Own::Adds(Arc::new(closure)))
    }

    /// Makes the whole key from parts of your own: neither authority, path nor query is in it
    /// unless `closure` puts them there. A key without any part is no key: the request bypasses.
    pub fn replace_key_with<F>(self, closure: F) -> Self
    where
        F: Fn(&request::Parts, &mut KeyWriter<'_>) -> Keyed + Send + Sync + 'static,
    {
        self.with(|policy| policy.key.own = Own::Replaces(Arc::new(closure)))
    }

    /// Where the URI that the client sent is found, for routers that cut prefixes off it. Default:
    /// axum's `OriginalUri` with the feature `axum`, else the request's own URI.
    pub fn original_uri(self, find: for<'a> fn(&'a request::Parts) -> Option<&'a Uri>) -> Self {
        self.with(|policy| policy.key.original_uri = find)
    }

    /// Replaces a request's `Accept-Language` by the one of `languages` that it likes best, the first
    /// of them where it likes several the same; one that likes none is left as it is. Name what the
    /// inner service has, in its own order: a response that varies by language then has one variant
    /// for each, whatever spelling browsers use. Without any language the field is only put in order:
    /// lower case, best first, and by name where it likes several the same, among which RFC 9110
    /// section 12.5.4 knows no order. Default: the field is compared as it is, white space aside.
    pub fn normalize_accept_language<L>(self, languages: L) -> Self
    where
        L: IntoIterator<Item: Into<String>>,
    {
        let offer = Offer::languages(languages.into_iter().map(Into::into));
        self.with(|policy| policy.offers.push(offer))
    }

    /// Replaces a request's `Accept-Encoding` by the one of `codings` that it likes best, or by
    /// `identity`; one that accepts neither is left as it is. Name what the inner service makes, in
    /// its own order. Default: as for
    /// [`normalize_accept_language`](Self::normalize_accept_language).
    pub fn normalize_accept_encoding<L>(self, codings: L) -> Self
    where
        L: IntoIterator<Item: Into<String>>,
    {
        let offer = Offer::codings(codings.into_iter().map(Into::into));
        self.with(|policy| policy.offers.push(offer))
    }
}
