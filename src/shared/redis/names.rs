//! The names of keys and channels.

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
}

impl Names {
    pub(super) fn new(namespace: String) -> Self {
        Self { namespace }
    }

    fn name(&self, place: &Place, kind: &str) -> String {
        let Self { namespace } = self;
        let Place {
            resource, variant, ..
        } = place;
        match variant {
            Some(variant) => format!("{namespace}:{{{resource}}}:{kind}:{variant}"),
            None => format!("{namespace}:{{{resource}}}:{kind}"),
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

    /// When which tag was purged.
    pub(super) fn tags(&self) -> String {
        format!("{}:tags", self.namespace)
    }

    /// The channel on which one process is told that others have heeded its purges.
    pub(super) fn answers(&self, process: &Token) -> String {
        format!("{}:heeded:{}", self.namespace, process.as_str())
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
