//! [`SlotMap`]: which node holds which slot. No I/O.

use std::ops::RangeInclusive;

use super::address::Address;
use crate::slot::SLOTS;

/// The nodes of a Cluster, and the master of each slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// For each slot the place of its master in `masters`.
    owners: Vec<Option<u16>>,
    masters: Vec<Address>,
    replicas: Vec<Address>,
}

impl Default for SlotMap {
    fn default() -> Self {
        Self {
            owners: vec![None; SLOTS.into()],
            masters: Vec::new(),
            replicas: Vec::new(),
        }
    }
}

impl SlotMap {
    pub(super) fn is_empty(&self) -> bool {
        self.masters.is_empty()
    }

    /// The master that holds a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        let at = (*self.owners.get(usize::from(slot))?)?;
        self.masters.get(usize::from(at))
    }

    pub(super) fn masters(&self) -> &[Address] {
        &self.masters
    }

    /// Masters and replicas, each once.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Address> {
        self.masters.iter().chain(&self.replicas)
    }

    pub(super) fn contains(&self, node: &Address) -> bool {
        self.nodes().any(|known| known == node)
    }

    /// These slots lie with `master`, whatever was known of it before.
    pub(super) fn assign(&mut self, slots: RangeInclusive<u16>, master: Address) {
        self.replicas.retain(|replica| *replica != master);
        let at = self.masters.iter().position(|known| *known == master);
        let at = at.unwrap_or_else(|| {
            self.masters.push(master);
            self.masters.len() - 1
        });
        // There are no more masters than slots.
        let at = u16::try_from(at).ok();
        for slot in slots {
            if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
                *owner = at;
            }
        }
    }

    pub(super) fn add_replica(&mut self, replica: Address) {
        if !self.contains(&replica) {
            self.replicas.push(replica);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: u16) -> Address {
        Address::new("10.0.0.1", port)
    }

    fn map() -> SlotMap {
        let mut map = SlotMap::default();
        map.assign(0..=99, node(1));
        map.assign(100..=SLOTS - 1, node(2));
        map.add_replica(node(3));
        map
    }

    fn nodes(map: &SlotMap) -> Vec<Address> {
        map.nodes().cloned().collect()
    }

    #[test]
    fn every_slot_lies_where_it_was_assigned() {
        let map = map();

        assert_eq!(map.owner(0), Some(&node(1)));
        assert_eq!(map.owner(99), Some(&node(1)));
        assert_eq!(map.owner(100), Some(&node(2)));
        assert_eq!(map.owner(SLOTS - 1), Some(&node(2)));
        assert_eq!(map.owner(SLOTS), None);
        assert_eq!(SlotMap::default().owner(0), None);
    }

    #[test]
    fn one_slot_moves_and_the_others_stay() {
        let mut map = map();

        map.assign(5..=5, node(4));

        assert_eq!(map.owner(5), Some(&node(4)));
        assert_eq!(map.owner(4), Some(&node(1)));
        assert_eq!(map.owner(6), Some(&node(1)));
        assert!(map.contains(&node(4)));
    }

    #[test]
    fn a_replica_that_took_over_is_one_node_still() {
        let mut map = map();

        map.assign(0..=99, node(3));
        map.add_replica(node(1));

        assert_eq!(map.owner(50), Some(&node(3)));
        assert_eq!(nodes(&map), [node(1), node(2), node(3)]);
    }

    #[test]
    fn a_node_is_listed_once_however_many_ranges_it_has() {
        let mut map = map();

        map.assign(200..=300, node(1));
        map.add_replica(node(3));

        assert_eq!(nodes(&map), [node(1), node(2), node(3)]);
        assert_eq!(map.masters(), [node(1), node(2)]);
    }
}
