//! How the keys of a namespace are spread over the slots of a Cluster.
//!
//! What a script reads together must lie in one slot, and every claim and fill reads what has been purged. So the
//! namespace is cut into shards: all keys of a shard's resources, and a record of the purges of its own, share a
//! hash tag, and a purge is written into every shard.

use crate::key::Digest;

/// More shards would spread better, and would make purges dearer.
pub(super) const SHARDS: usize = 64;

/// Of each shard the smallest number that hashes to its part of the slots, so that the nodes of a Cluster get even
/// shares. These are in the keys' names: never to be changed.
const HASH_TAGS: [u16; SHARDS] = [
    10, 18, 113, 342, 29, 21, 3, 122, 69, 61, 72, 162, 50, 58, 153, 43, 11, 19, 112, 343, 28, 20,
    2, 123, 68, 60, 73, 163, 51, 59, 152, 42, 12, 102, 111, 119, 133, 23, 1, 9, 173, 63, 70, 78,
    52, 142, 49, 41, 13, 103, 110, 118, 132, 22, 0, 8, 172, 62, 71, 79, 53, 143, 48, 40,
];

/// Whether there are several nodes to spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    Whole,
    Sharded,
}

/// The hash tag of the shard that a resource is in.
pub(super) fn hash_tag_of(resource: &Digest) -> u16 {
    let byte = resource.as_bytes().first().copied().unwrap_or_default();
    let shard = usize::from(byte) % SHARDS;
    HASH_TAGS.get(shard).copied().unwrap_or_default()
}

pub(super) fn hash_tags() -> impl Iterator<Item = u16> {
    HASH_TAGS.into_iter()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::slot::{SLOTS, slot};

    const RANGE: u16 = SLOTS / 64;

    fn slot_of(number: u16) -> u16 {
        slot(number.to_string().as_bytes())
    }

    #[test]
    fn each_shard_has_the_smallest_number_that_hashes_to_its_range() {
        for (shard, tag) in (0..).zip(hash_tags()) {
            let in_range = |number: &u16| slot_of(*number) / RANGE == shard;
            assert_eq!((0..=tag).find(in_range), Some(tag), "shard {shard}");
        }
    }

    #[test]
    fn up_to_eight_even_masters_have_even_parts_of_the_shards() {
        for masters in 1..=8 {
            let mut shards = vec![0; masters];
            for tag in hash_tags() {
                let master = usize::from(slot_of(tag)) * masters / usize::from(SLOTS);
                shards[master] += 1;
            }
            let (least, most) = (shards.iter().min().unwrap(), shards.iter().max().unwrap());
            assert!(most - least <= 2, "{shards:?}");
        }
    }

    #[test]
    fn resources_are_spread_over_all_shards() {
        let digest = |number: u32| Digest::of(&number.to_be_bytes());
        let tags: HashSet<_> = (0..2000).map(|n| hash_tag_of(&digest(n))).collect();

        assert_eq!(tags.len(), SHARDS);
        assert_eq!(hash_tag_of(&digest(1)), hash_tag_of(&digest(1)));
    }
}
