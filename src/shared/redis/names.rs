//! The names of keys and channels.

use std::fmt;

use super::shards::{self, Spread};
use crate::{
    entry::codec::VERSION,
    key::Digest,
    purges::{Force, Purge, Reach},
    shared::{Place, Slot},
    token::Token,
};

/// The names in one namespace. All keys of a resource are in one Cluster slot.
#[derive(Clone, Debug)]
pub(super) struct Names {
    namespace: String,
    spread: Spread,
}

/// What the names of a resource's keys begin with.
struct Prefix<'a> {
    names: &'a Names,
    resource: &'a Digest,
}

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { names, resource } = self;
        match names.spread {
            Spread::Whole => write!(f, "{}:{{{resource}}}", names.namespace),
            Spread::Sharded => {
                let tag = shards::hash_tag_of(resource);
                write!(f, "{}:{{{tag}}}:{resource}", names.namespace)
            }
        }
    }
}

impl Names {
    pub(super) fn new(namespace: String, spread: Spread) -> Self {
        Self { namespace, spread }
    }

    fn name(&self, place: &Place, kind: &str) -> String {
        let prefix = Prefix {
            names: self,
            resource: &place.resource,
        };
        match &place.variant {
            Some(variant) => format!("{prefix}:{kind}:{variant}"),
            None => format!("{prefix}:{kind}"),
        }
    }

    pub(super) fn entry(&self, place: &Place) -> String {
        self.name(place, &format!("e{VERSION}"))
    }

    /// The entry of the resource that a variant belongs to.
    pub(super) fn resource(&self, place: &Place) -> String {
        self.entry(&Place {
            variant: None,
            ..*place
        })
    }

    pub(super) fn lease(&self, place: &Place, slot: Slot) -> String {
        match slot {
            Slot::Build => self.name(place, "l"),
            Slot::Extra(number) => self.name(place, &format!("l{number}")),
        }
    }

    /// That the last response was for its own request alone.
    pub(super) fn marker(&self, place: &Place) -> String {
        self.name(place, "m")
    }

    /// How the last build under this lease failed.
    pub(super) fn failure(&self, place: &Place, slot: Slot) -> String {
        match slot {
            Slot::Build => self.name(place, "f"),
            Slot::Extra(number) => self.name(place, &format!("f{number}")),
        }
    }

    pub(super) fn tombstone(&self, place: &Place, token: &Token) -> String {
        let resource = Place {
            variant: None,
            ..*place
        };
        self.name(&resource, &format!("x:{}", token.as_str()))
    }

    /// When which tag was purged, where the resource is.
    pub(super) fn tags(&self, place: &Place) -> String {
        match self.spread {
            Spread::Whole => self.all_tags(),
            Spread::Sharded => self.tags_of_shard(shards::hash_tag_of(&place.resource)),
        }
    }

    /// The same on one server, for all resources.
    pub(super) fn all_tags(&self) -> String {
        format!("{}:tags", self.namespace)
    }

    /// The same in a Cluster, for the resources of each shard.
    pub(super) fn tags_of_shards(&self) -> impl Iterator<Item = String> + '_ {
        shards::hash_tags().map(|tag| self.tags_of_shard(tag))
    }

    /// All sets of purged tags there are.
    pub(super) fn sets_of_tags(&self) -> Vec<String> {
        match self.spread {
            Spread::Whole => vec![self.all_tags()],
            Spread::Sharded => self.tags_of_shards().collect(),
        }
    }

    fn tags_of_shard(&self, tag: u16) -> String {
        format!("{}:{{{tag}}}:tags", self.namespace)
    }

    /// The channel on which one process is told that others have heeded its purges.
    pub(super) fn answers(&self, process: &Token) -> String {
        format!("{}:heeded:{}", self.namespace, process.as_str())
    }

    /// The channel of the resource's shard, which only its node hears. On one server there is none.
    pub(super) fn wakes(&self, resource: &Digest) -> String {
        match self.spread {
            Spread::Whole => String::new(),
            Spread::Sharded => self.wakes_of_shard(shards::hash_tag_of(resource)),
        }
    }

    /// The same for each shard.
    pub(super) fn wakes_of_shards(&self) -> impl Iterator<Item = String> + '_ {
        shards::hash_tags().map(|tag| self.wakes_of_shard(tag))
    }

    fn wakes_of_shard(&self, tag: u16) -> String {
        format!("{}:{{{tag}}}:wakes", self.namespace)
    }

    /// The channel on which the processes of the namespace tell each other what happened.
    pub(super) fn channel(&self) -> String {
        format!("{}:events", self.namespace)
    }
}

/// What a purge is called in the set of tags.
pub(super) fn member(Purge { reach, force }: Purge) -> String {
    let soft = match force {
        Force::Hard => "",
        Force::Soft => "~",
    };
    match reach {
        Reach::All => format!("{soft}!"),
        Reach::Tag(tag) => format!("{soft}{tag}"),
    }
}

/// Reads a purge back.
pub(super) fn parse_member(text: &str) -> Option<Purge> {
    let (force, rest) = match text.strip_prefix('~') {
        Some(rest) => (Force::Soft, rest),
        None => (Force::Hard, text),
    };
    let reach = match rest {
        "!" => Reach::All,
        tag => Reach::Tag(Digest::parse(tag.as_bytes())?),
    };
    Some(Purge { reach, force })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::slot;

    fn place() -> Place {
        Place {
            resource: Digest::of(b"resource"),
            resource_proof: [0; 32],
            variant: Some(Digest::of(b"variant")),
            proof: [0; 32],
        }
    }

    /// Of every kind.
    fn keys(names: &Names) -> Vec<String> {
        let (place, token) = (place(), Token::label());
        vec![
            names.entry(&place),
            names.resource(&place),
            names.lease(&place, Slot::Build),
            names.lease(&place, Slot::Extra(1)),
            names.marker(&place),
            names.failure(&place, Slot::Build),
            names.tombstone(&place, &token),
        ]
    }

    #[test]
    fn on_one_server_a_resource_names_its_own_slot() {
        let names = Names::new("shop".to_owned(), Spread::Whole);
        let resource = place().resource;

        for key in keys(&names) {
            assert!(key.starts_with(&format!("shop:{{{resource}}}:")), "{key}");
        }
        assert_eq!(names.tags(&place()), "shop:tags");
        assert_eq!(names.wakes(&resource), "");
    }

    #[test]
    fn in_a_cluster_all_keys_of_a_resource_lie_in_the_slot_of_their_shards_purges() {
        let names = Names::new("shop".to_owned(), Spread::Sharded);
        let tags = names.tags(&place());

        for key in keys(&names) {
            assert_eq!(slot(key.as_bytes()), slot(tags.as_bytes()), "{key}");
            assert!(key.contains(&place().resource.to_string()), "{key}");
        }
        let wakes = names.wakes(&place().resource);
        assert_eq!(slot(wakes.as_bytes()), slot(tags.as_bytes()), "{wakes}");
        assert!(names.wakes_of_shards().any(|shard| shard == wakes));
        assert_eq!(
            names
                .tags_of_shards()
                .filter(|shard| *shard == tags)
                .count(),
            1
        );
    }
}
