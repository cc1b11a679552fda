//! The names of records, and of the locks.

use super::generations::Mark;
use crate::{
    entry::codec::VERSION,
    key::Digest,
    shared::{Place, Slot},
};

/// The names in one namespace: at most 140 bytes, of the characters that every store takes.
#[derive(Clone, Debug)]
pub(super) struct Names {
    namespace: String,
}

impl Names {
    pub(super) fn new(namespace: String) -> Self {
        Self { namespace }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn name(&self, resource: Digest, variant: Option<Digest>, kind: &str) -> String {
        let Self { namespace } = self;
        match variant {
            Some(variant) => format!("{namespace}:{resource}:{kind}:{variant}"),
            None => format!("{namespace}:{resource}:{kind}"),
        }
    }

    pub(super) fn entry(&self, place: &Place) -> String {
        self.name(place.resource, place.variant, &format!("e{VERSION}"))
    }

    /// The entry of the resource that a variant belongs to.
    pub(super) fn resource(&self, place: &Place) -> String {
        self.name(place.resource, None, &format!("e{VERSION}"))
    }

    /// That the last response was for its own request alone.
    pub(super) fn marker(&self, place: &Place) -> String {
        self.name(place.resource, place.variant, "m")
    }

    /// How the last build under this lock failed.
    pub(super) fn failure(&self, place: &Place, slot: Slot) -> String {
        self.name(place.resource, place.variant, &numbered("f", slot))
    }

    pub(super) fn lock(&self, place: &Place, slot: Slot) -> String {
        self.name(place.resource, place.variant, &numbered("l", slot))
    }

    /// The generation of what a mark is on.
    pub(super) fn generation(&self, mark: Mark) -> String {
        let Self { namespace } = self;
        match mark {
            Mark::Any => format!("{namespace}:g:any"),
            Mark::All => format!("{namespace}:g:all"),
            Mark::Tag(tag) => format!("{namespace}:g:{tag}"),
        }
    }
}

fn numbered(kind: &str, slot: Slot) -> String {
    match slot {
        Slot::Build => kind.to_owned(),
        Slot::Extra(number) => format!("{kind}{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_that_every_store_takes_and_no_two_are_the_same() {
        let digest = Digest::of(b"resource");
        let plain = Place {
            resource: digest,
            resource_proof: [0; 32],
            variant: None,
            proof: [0; 32],
        };
        let variant = Place {
            variant: Some(digest),
            ..plain
        };
        let names = Names::new("n".repeat(64));
        let mut all = Vec::new();
        for place in [plain, variant] {
            all.extend([names.entry(&place), names.marker(&place)]);
            for slot in [Slot::Build, Slot::Extra(1), Slot::Extra(255)] {
                all.extend([names.failure(&place, slot), names.lock(&place, slot)]);
            }
        }
        for mark in [Mark::Any, Mark::All, Mark::Tag(digest)] {
            all.push(names.generation(mark));
        }

        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        for name in &all {
            assert!(name.len() <= 140 && name.bytes().all(allowed), "{name}");
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(names.resource(&variant), names.entry(&plain));
    }
}
