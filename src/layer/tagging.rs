//! What a layer's entries can be purged by.

use std::sync::Arc;

use http::request;

use super::BufferLayer;
use crate::{
    cache::Target,
    key::{Key, Keyed},
    policy::TagFields,
    survey::Survey,
    tags,
};

/// # Purging
impl BufferLayer {
    /// Tags that every entry of this layer can be purged by. Adds to what earlier calls have said.
    ///
    /// ```
    /// use tower_stampede::{BufferLayer, Cache, Target};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_stampede::PurgeError> {
    /// let cache = Cache::in_memory();
    /// let layer = BufferLayer::new(cache.clone()).tags(["reports"]);
    ///
    /// cache.purge(Target::tag("reports")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tags<T: AsRef<str>>(self, names: impl IntoIterator<Item = T>) -> Self {
        let tags = names.into_iter().map(|name| tags::named(name.as_ref()));
        self.with(|policy| policy.tags.extend(tags))
    }

    /// Tags that depend on the request, such as the tenant's. Default: none. What the response itself
    /// names comes on top: [`CacheTags`](crate::CacheTags), and the fields `Cache-Tag`,
    /// `Surrogate-Key` and `xkey`.
    pub fn tags_with<T, I>(
        self,
        tagger: impl Fn(&request::Parts) -> I + Send + Sync + 'static,
    ) -> Self
    where
        T: AsRef<str>,
        I: IntoIterator<Item = T>,
    {
        let tagger = move |request: &request::Parts| {
            let names = tagger(request).into_iter();
            names.map(|name| tags::named(name.as_ref())).collect()
        };
        self.with(|policy| policy.tagger = Some(Arc::new(tagger)))
    }

    /// Leaves `Cache-Tag`, `Surrogate-Key` and `xkey` on the responses, for a cache further on.
    /// Default: they are taken off.
    pub fn forward_tag_fields(self) -> Self {
        self.with(|policy| policy.tag_fields = TagFields::Forward)
    }

    /// What a purge of exactly the resource that `request` asks this layer for reaches: all its
    /// variants, and nothing else. `None` if the request has no key here.
    ///
    /// Behind a router that cuts prefixes off, `request` is to be as the layer sees it.
    pub fn target_of(&self, request: &request::Parts) -> Option<Target> {
        let mut key = Vec::new();
        let _keyed: Keyed = self
            .policy
            .key
            .write(request, &Survey::of(&request.headers), &mut key)
            .ok()?;
        Some(Target::key(&Key::new(&key)))
    }
}
