//! A build that meets its own cache and key again, in a layer further in, must not wait for itself.

use std::sync::Arc;

use http::Extensions;

use crate::{cache::Cache, key::Key};

/// Goes with the request into its build: which builds it is part of.
#[derive(Clone, Debug)]
pub(crate) struct Building(Arc<Link>);

#[derive(Debug)]
struct Link {
    cache: Cache,
    resource: Key,
    outer: Option<Building>,
}

impl Building {
    /// Marks a request as part of the build of `resource`.
    pub(crate) fn mark(extensions: &mut Extensions, cache: &Cache, resource: &Key) {
        let link = Link {
            cache: cache.clone(),
            resource: resource.clone(),
            outer: extensions.remove::<Self>(),
        };
        extensions.insert(Self(Arc::new(link)));
    }

    /// Whether the request is part of a build of `resource` in `cache`.
    pub(crate) fn contains(extensions: &Extensions, cache: &Cache, resource: &[u8]) -> bool {
        let mut next = extensions.get::<Self>();
        while let Some(Self(link)) = next {
            if link.resource.as_bytes() == resource && link.cache.is_same(cache) {
                return true;
            }
            next = link.outer.as_ref();
        }
        false
    }
}
