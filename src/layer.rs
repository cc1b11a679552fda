//! [`BufferLayer`]: one route's policy, as a builder.

mod keying;
mod renewing;
mod tagging;
mod waiting;

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use http::{HeaderName, StatusCode, response};
use tower_layer::Layer;

use crate::{
    cache::Cache,
    http::{
        freshness::Heuristic,
        storable::{self, Nonces, Statuses},
    },
    policy::{
        Authorization, Cookies, Etags, Exposure, Heads, KeyShown, Mode, Policy, Ranges,
        RequestDirectives,
    },
    service::BufferService,
    switch::Switch,
    time::LONGEST,
};

/// Keeps a herd of requests off the services it wraps.
///
/// Of all requests for the same key at the same time, one reaches the inner service; the others get
/// its response. What may be stored answers later requests from the [`Cache`].
///
/// A layer is one route's policy over a cache that routes share. Its options take typed values and
/// none of them can fail; where two of them contradict each other, the later sections say which
/// yields. Clones are cheap.
///
/// # The key
///
/// Two requests are the same if they agree in authority, path and query, in what
/// `X-Forwarded-Host`, `X-Forwarded-Proto` and `Forwarded` say of host and scheme, and in whatever the
/// options add. The query and the fields are compared byte for byte; the authority's case and default
/// port mean nothing. The fields of proxies are in the key because handlers build links with them: a
/// client that makes one up gets an entry of its own, and nobody else sees it. (Where clients can reach
/// the service around the proxy, they can fill the cache with such entries, as they can with queries.)
/// Where a request's `Host` says something else than its target, both are in the key. A request
/// whose authority cannot be read, or that has two, bypasses; one that names none at all (HTTP/1.0,
/// or `/report` in a test) has a key of its own, without one.
///
/// # Limits
///
/// What a layer keeps is bounded. A key of more than 8 KiB bypasses; a variant whose key is longer, or
/// that would be a resource's seventeenth, is shared and not stored. A cache remembers how the last
/// build of a key ended, failed or uncacheable, for at most 10 000 keys and in at most 10 MB; beyond,
/// some are forgotten. See [`max_body`](Self::max_body), [`max_waiters`](Self::max_waiters) and
/// the capacities of the [`CacheBuilder`](crate::CacheBuilder) for the others.
///
/// (The `tower` crate has layers named `Buffer` and `BufferLayer` too: those put a queue before a
/// service, which is another thing.)
///
/// ```
/// use std::{convert::Infallible, time::Duration};
///
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt as _, Empty, Full};
/// use tower::{ServiceBuilder, ServiceExt as _, service_fn};
/// use tower_stampede::{BufferLayer, Cache};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let service = ServiceBuilder::new()
///     .layer(BufferLayer::new(Cache::in_memory()).ttl(Duration::from_secs(60)))
///     .service(service_fn(|_request: Request<Empty<Bytes>>| async {
///         Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("expensive"))))
///     }));
///
/// let request = Request::get("http://shop.example/report").body(Empty::new())?;
/// let response = service.oneshot(request).await?;
/// let outcome = response.headers()["cache-status"].to_str()?;
/// assert!(outcome.starts_with("stampede; fwd=uri-miss; stored; ttl="));
/// assert_eq!(response.into_body().collect().await?.to_bytes(), "expensive");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct BufferLayer {
    cache: Cache,
    policy: Arc<Policy>,
    /// A router may apply the layer again for each connection.
    checked: Arc<Once>,
}

impl BufferLayer {
    /// A layer over `cache`, with the defaults that each option documents.
    pub fn new(cache: Cache) -> Self {
        let policy = Arc::default();
        let checked = Arc::new(Once::new());
        Self {
            cache,
            policy,
            checked,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(Arc::make_mut(&mut self.policy));
        self.checked = Arc::new(Once::new());
        self
    }

    /// What the layer does at all. Default: [`Mode::Cache`].
    pub fn mode(self, mode: Mode) -> Self {
        self.with(|policy| policy.mode = mode)
    }

    /// Has a switch turn this layer on and off while it runs.
    pub fn switch(self, switch: &Switch) -> Self {
        self.with(|policy| policy.switch = Some(switch.clone()))
    }

    /// Puts a [`CacheOutcome`](crate::CacheOutcome) into the extensions of each response, for the layers
    /// outside this one: logs, metrics, tests. Default: it is only in `Cache-Status`.
    pub fn expose_outcome(self) -> Self {
        self.with(|policy| policy.exposure = Exposure::Extension)
    }

    /// What logs and spans call this layer. Default: none.
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        self.with(|policy| policy.name = Some(name.into()))
    }

    /// Adds `key` to `Cache-Status` (RFC 9211 section 2.8), as the 32 hex digits that name the resource
    /// in the shared tier too: `stampede; hit; ttl=59; key="5f1b…"` is all that is in Redis under
    /// `stampede:{5f1b…}:`. Nothing of the key can be read from them; still, who knows all of a key but
    /// a short secret can try for it. Default: off.
    pub fn show_key(self) -> Self {
        self.with(|policy| policy.key_shown = KeyShown::Digest)
    }

    /// Says which options get into each other's way; each still does what it says.
    fn check(&self) {
        let (max_body, largest_entry) = (self.policy.max_body, self.cache.local().largest());
        if max_body as u64 > largest_entry {
            tracing::warn!(
                layer = self.policy.name.as_deref(),
                max_body,
                largest_entry,
                "max_body is more than the cache's capacity lets one entry take: larger ones are not \
                 kept in this process"
            );
        }
        let Some(shared) = self.cache.shared() else {
            return;
        };
        let (lease_ttl, redis_budget) = (shared.lease_ttl(), shared.longest());
        let wait_timeout = self.policy.wait_timeout;
        if wait_timeout <= redis_budget {
            tracing::warn!(
                layer = self.policy.name.as_deref(),
                ?wait_timeout,
                ?redis_budget,
                "wait_timeout is not longer than redis_budget: when Redis stands still, requests fall back \
                 before anything is built"
            );
        }
        if wait_timeout <= lease_ttl {
            tracing::warn!(
                layer = self.policy.name.as_deref(),
                ?wait_timeout,
                ?lease_ttl,
                "wait_timeout is not longer than lease_ttl: when a worker dies, those who wait fall \
                 back before another one takes over"
            );
        }
    }

    // ===== freshness =====

    /// The lifetime of responses that state none themselves and whose status is 200, 203, 301 or
    /// 308. Default: none, so that a response that says nothing is shared with those who wait for
    /// it and not stored.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|policy| policy.rules.ttl.default = Some(ttl.min(LONGEST)))
    }

    /// The lifetime of responses with this status that state none themselves, whatever
    /// [`ttl`](Self::ttl) says: 404 or 410 for a moment, or zero to leave one of its statuses out.
    /// Default: none. Server errors stay failures, which are not stored, unless
    /// [`allow_error_statuses`](Self::allow_error_statuses) is set too.
    pub fn ttl_for(self, status: StatusCode, ttl: Duration) -> Self {
        self.with(|policy| policy.rules.ttl.by_status.push((status, ttl.min(LONGEST))))
    }

    /// Adds a field to those that are meant for this cache alone (RFC 9213). One that is present,
    /// and is a valid dictionary, decides in place of `Cache-Control` and `Expires`; the one added
    /// last is looked at first. Default: `CDN-Cache-Control`.
    pub fn target_field(self, name: HeaderName) -> Self {
        self.with(|policy| policy.rules.targets.insert(0, name))
    }

    /// Derives the lifetime of a response that states none from its `Last-Modified`: a tenth of the
    /// time that it has been unchanged, and `cap` at most (RFC 9111 section 4.2.2). Default: off. A
    /// [`ttl`](Self::ttl) goes before it.
    pub fn heuristic_freshness(self, cap: Duration) -> Self {
        self.with(|policy| policy.rules.heuristic = Heuristic::LastModified { cap })
    }

    /// For how long a stale entry with an `ETag` or `Last-Modified` is kept, in both tiers, so that
    /// the next build can ask the inner service whether it still holds: a 304 renews it without a
    /// body. Responses with `no-cache` are stored for this alone. Default: an hour; zero turns
    /// conditional builds off for entries without a stale window.
    pub fn keep_for_validation(self, window: Duration) -> Self {
        self.with(|policy| policy.keep_for_validation = window.min(LONGEST))
    }

    /// Whether clients may say how fresh their answers have to be. Default:
    /// [`RequestDirectives::Ignore`].
    pub fn request_directives(self, choice: RequestDirectives) -> Self {
        self.with(|policy| policy.request_directives = choice)
    }

    /// How much of the layer's own [`ttl`](Self::ttl) is left to chance, so that entries that were
    /// stored together do not expire together: a lifetime is shortened by up to this fraction.
    /// Default: 0.05. Values outside 0 to 1 are clamped. What a response states itself is kept.
    pub fn jitter(self, fraction: f64) -> Self {
        let fraction = if fraction.is_nan() {
            0.0
        } else {
            fraction.clamp(0.0, 1.0)
        };
        self.with(|policy| policy.jitter = fraction)
    }

    /// For how long an entry that is stale answers at once, while one request refreshes it
    /// (RFC 5861 section 3). Default: zero; a directive in the response wins.
    pub fn stale_while_revalidate(self, window: Duration) -> Self {
        self.with(|policy| policy.rules.stale_while_revalidate = window.min(LONGEST))
    }

    /// For how long an entry that is stale answers in place of a failed build (RFC 5861 section 4).
    /// Default: zero; a directive in the response wins.
    pub fn stale_if_error(self, window: Duration) -> Self {
        self.with(|policy| policy.rules.stale_if_error = window.min(LONGEST))
    }

    /// Stores only responses for which `predicate` says yes, and shares no others. It is asked
    /// after all other rules have said yes. Default: always yes.
    pub fn cache_if<F>(self, predicate: F) -> Self
    where
        F: Fn(&response::Parts) -> bool + Send + Sync + 'static,
    {
        self.with(|policy| policy.cache_if = Some(Arc::new(predicate)))
    }

    /// Lets a range request on a cold key build the whole response: it is stored, and the request
    /// gets its part as soon as the whole is there at once, else the whole. Default: it passes to the
    /// inner service as it is, once it is known that the shared tier has no entry either, and its
    /// response is neither stored nor shared.
    pub fn fill_on_range(self) -> Self {
        self.with(|policy| policy.ranges = Ranges::Fill)
    }

    /// Builds a HEAD on a cold key as a GET: the whole response is stored, and the HEAD gets its fields
    /// as soon as they are there. With [`OnDisconnect::Cancel`](crate::OnDisconnect::Cancel) that build goes on only if somebody else
    /// waits for it. Default: HEADs are built as HEADs, shared among themselves, and not stored.
    pub fn fill_on_head(self) -> Self {
        self.with(|policy| policy.heads = Heads::Fill)
    }

    /// Gives what is stored without an `ETag` a strong one, made from the body, its type, coding and
    /// language: clients can then ask whether they have it already, and get 304 without a body, and
    /// ask for ranges of it with `If-Range`. The first response has it too where it was complete at
    /// once; one that is passed on while it is produced has none, nor has one that is not stored. The
    /// inner service, which knows nothing of such a tag, is not asked about it. Default: off.
    pub fn generate_etag(self) -> Self {
        self.with(|policy| policy.etags = Etags::Generated)
    }

    /// The largest body that is stored or shared, in bytes. Default: 4 MiB. Larger ones reach the
    /// request that asked for them whole, and nobody else.
    pub fn max_body(self, bytes: usize) -> Self {
        self.with(|policy| policy.max_body = bytes)
    }

    /// Treats requests with cookies as if they had none, and lets the inner service see them.
    ///
    /// Only for services whose responses never depend on a cookie: otherwise one user gets what
    /// was made for another. Default: requests with cookies bypass.
    pub fn allow_ignored_cookies(self) -> Self {
        self.with(|policy| policy.cookies = Cookies::Ignored)
    }

    /// Caches requests with `Authorization` if the response allows it by `public`, `s-maxage` or
    /// `must-revalidate` (RFC 9111 section 3.5). Such a response answers anybody, with credentials or
    /// without; any other one that was made for an anonymous request answers none with credentials,
    /// which the RFC would let it. Default: they bypass.
    pub fn allow_authorization(self) -> Self {
        self.with(|policy| policy.authorization = Authorization::AsDeclared)
    }

    // ===== what may be stored =====

    /// Stores and shares responses without this field, which only the request that caused the build
    /// gets: an identifier of the request, a timing. Default: what `private` and `no-cache` name in the
    /// response.
    pub fn strip_header(self, name: HeaderName) -> Self {
        self.with(|policy| policy.rules.personal.push(name))
    }

    /// Stores and shares responses with `Set-Cookie` without that field; the request that caused the
    /// build gets it. Only where no other part of such a response is personal. Default: a response
    /// with `Set-Cookie` is neither stored nor shared.
    pub fn allow_set_cookie_stripped(self) -> Self {
        self.with(|policy| policy.rules.cookies = storable::Cookies::Strip)
    }

    /// Stores and shares responses with `Set-Cookie` as they are: everybody gets the same cookie.
    /// Default: they are neither stored nor shared.
    pub fn allow_set_cookie(self) -> Self {
        self.with(|policy| policy.rules.cookies = storable::Cookies::Keep)
    }

    /// Stores responses whose `Content-Security-Policy` has a nonce, which is then the same for all
    /// and can be guessed. Default: they are neither stored nor shared.
    pub fn allow_csp_nonce(self) -> Self {
        self.with(|policy| policy.rules.nonces = Nonces::Allow)
    }

    /// Stores server errors, unknown statuses too, where they state a lifetime of their own. Default:
    /// a server error is a failure, whatever it states.
    pub fn allow_error_statuses(self) -> Self {
        self.with(|policy| policy.rules.statuses = Statuses::Permissive)
    }
}

impl<S> Layer<S> for BufferLayer {
    type Service = BufferService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        self.checked.call_once(|| self.check());
        BufferService::new(inner, self.cache.clone(), Arc::clone(&self.policy))
    }
}
