//! [`Cluster`]: what is known of it, and how that is kept true.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{
    address::Address,
    look,
    map::SlotMap,
    nodes::Nodes,
    pace::{Begin, News, Pace},
    redirection::{Kind, Redirection},
    topology::Topology,
};
use crate::link::{access::Access, connect, error::Error, logs, supervisor::spawn_detached};

/// A connection that asks nothing looks around so often, so that it does not stay with a node that left.
const OLD: Duration = Duration::from_secs(15);

/// For so long nobody waits again for a slot that somebody has waited for in vain.
const UNSETTLED: Duration = Duration::from_millis(500);

/// One Cluster, as all connections to it know it.
#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    template: ConnectionInfo,
    access: Access,
    state: Mutex<State>,
    /// How many looks have ended.
    looks: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    map: SlotMap,
    pace: Pace,
    /// When the map was last confirmed.
    seen: Option<Instant>,
    unsettled: HashMap<u16, Instant>,
    /// Why the last look failed.
    outage: Option<Arc<Error>>,
    /// Who has links to its nodes.
    routers: Vec<Weak<Nodes>>,
}

impl Cluster {
    /// Each of `seeds` and of all nodes is logged in to as `template` says.
    pub(in crate::link) fn new(
        seeds: Vec<ConnectionInfo>,
        template: ConnectionInfo,
        access: Access,
    ) -> Self {
        Self {
            seeds: seeds.into_iter().map(connect::tuned).collect(),
            template: connect::tuned(template),
            access,
            state: Mutex::new(State {
                map: SlotMap::default(),
                pace: Pace::new(Instant::now()),
                seen: None,
                unsettled: HashMap::new(),
                outage: None,
                routers: Vec::new(),
            }),
            looks: watch::Sender::new(0),
        }
    }

    pub(in crate::link) fn access(&self) -> &Access {
        &self.access
    }

    pub(in crate::link) fn template(&self) -> &ConnectionInfo {
        &self.template
    }

    // ===== what is known =====

    pub(super) fn owner(&self, slot: u16) -> Option<Address> {
        self.with(|state| state.map.owner(slot).cloned())
    }

    pub(super) fn masters(&self) -> Vec<Address> {
        self.with(|state| state.map.masters().to_vec())
    }

    pub(super) fn nodes(&self) -> Vec<Address> {
        self.with(|state| state.map.nodes().cloned().collect())
    }

    /// Why nothing is known of it.
    pub(super) fn unknown(&self) -> Error {
        Error::broken(self.outage().as_ref())
    }

    pub(super) fn outage(&self) -> Option<Arc<Error>> {
        self.with(|state| state.outage.clone())
    }

    /// How to connect to any master, rather not to the `last` one.
    ///
    /// A replica would do, but a node lists another one's replica only once that has begun to follow, so that
    /// whoever counts those who listen might not find it.
    pub(in crate::link) async fn any(
        self: &Arc<Self>,
        patience: Duration,
        last: Option<&ConnectionAddr>,
    ) -> Result<ConnectionInfo, Error> {
        let last = last.and_then(Address::of);
        if self.masters().is_empty() {
            self.learn(Instant::now() + patience).await;
        } else if last.is_some() {
            // It was lost, or never was there.
            self.doubt();
        }
        let mut masters = self.masters();
        if masters.len() > 1 {
            masters.retain(|master| Some(master) != last.as_ref());
        }
        let chosen = fastrand::choice(&masters).ok_or_else(|| self.unknown())?;
        Ok(chosen.in_place_of(&self.template))
    }

    /// Whether the node at `address` is none of its nodes any more.
    pub(in crate::link) fn has_lost(self: &Arc<Self>, address: &ConnectionAddr) -> bool {
        let seen = self.with(|state| state.seen);
        if seen.is_none_or(|seen| seen.elapsed() >= OLD) {
            self.doubt();
        }
        let Some(address) = Address::of(address) else {
            return false;
        };
        self.with(|state| !state.map.is_empty() && !state.map.contains(&address))
    }

    // ===== what a node has said =====

    /// What `answering` says of where a slot lies.
    pub(super) fn heed(&self, redirection: &Redirection, answering: &Address) {
        if redirection.kind == Kind::Moved {
            self.moved(redirection.slot, redirection.target(answering));
        }
    }

    /// A slot lies with `master`.
    pub(super) fn moved(&self, slot: u16, master: Address) {
        self.with(|state| state.map.assign(slot..=slot, master));
    }

    /// Somebody has waited for a slot in vain, and somebody else need not.
    pub(super) fn waited_in_vain(&self, slot: u16) {
        let now = Instant::now();
        self.with(|state| {
            state.unsettled.retain(|_, until| now < *until);
            state.unsettled.insert(slot, now + UNSETTLED);
        });
    }

    pub(super) fn is_worth_waiting_for(&self, slot: u16) -> bool {
        let until = self.with(|state| state.unsettled.get(&slot).copied());
        until.is_none_or(|until| until <= Instant::now())
    }

    // ===== looking again =====

    /// What is known may not hold any more: looks again in the background, unless that was done a moment ago.
    pub(super) fn doubt(self: &Arc<Self>) -> Begin {
        let begin = self.with(|state| state.pace.begin(Instant::now()));
        if begin == Begin::Now {
            spawn_detached(look::look(Look {
                cluster: Arc::clone(self),
                found: None,
            }));
        }
        begin
    }

    /// As [`doubt`](Self::doubt), and waits until the look has ended or `deadline` has passed.
    pub(super) async fn learn(self: &Arc<Self>, deadline: Instant) {
        let mut looks = self.looks.subscribe();
        if self.doubt() != Begin::TooSoon {
            // Whatever comes of it shows in what is known then.
            drop(timeout_at(deadline, looks.changed()).await);
        }
    }

    /// Changes whenever a look has ended.
    pub(super) fn looks(&self) -> watch::Receiver<u64> {
        self.looks.subscribe()
    }

    /// Whom to ask: all that is known, in any order.
    fn candidates(&self) -> Vec<ConnectionInfo> {
        let mut candidates = self.seeds.clone();
        for node in self.nodes() {
            let info = node.in_place_of(&self.template);
            if !candidates.iter().any(|known| known.addr() == info.addr()) {
                candidates.push(info);
            }
        }
        fastrand::shuffle(&mut candidates);
        candidates
    }

    /// `nodes` drops its links to nodes that are gone whenever the Cluster has changed.
    pub(super) fn register(&self, nodes: Weak<Nodes>) {
        self.with(|state| state.routers.push(nodes));
    }

    fn looked(&self, found: Result<Topology, Error>) {
        match found {
            Ok(topology) => self.learnt(topology.map),
            Err(error) => self.failed(error),
        }
        self.looks.send_modify(|looks| *looks += 1);
    }

    fn learnt(&self, map: SlotMap) {
        let now = Instant::now();
        let (news, outage, routers) = self.with(|state| {
            let news = if state.map == map {
                News::None
            } else {
                News::Some
            };
            state.map = map;
            state.seen = Some(now);
            state.pace.ended(now, news, fastrand::f64());
            state.routers.retain(|router| router.strong_count() > 0);
            (news, state.outage.take(), state.routers.clone())
        });
        if outage.is_some() {
            logs::cluster_known();
        }
        if news == News::Some {
            let nodes = self.nodes();
            for router in routers.iter().filter_map(Weak::upgrade) {
                router.keep(&nodes);
            }
        }
    }

    fn failed(&self, error: Error) {
        let error = Arc::new(error);
        let known = self.with(|state| {
            state
                .pace
                .ended(Instant::now(), News::None, fastrand::f64());
            state.outage.replace(Arc::clone(&error))
        });
        if known.is_none() {
            logs::cluster_unknown(&error);
        }
    }

    /// For a few lines, never across an await.
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A look under way. It ends when this is dropped, whatever came of it.
pub(super) struct Look {
    cluster: Arc<Cluster>,
    found: Option<Result<Topology, Error>>,
}

impl Look {
    pub(super) fn candidates(&self) -> Vec<ConnectionInfo> {
        self.cluster.candidates()
    }

    pub(super) fn access(&self) -> &Access {
        &self.cluster.access
    }

    pub(super) fn ends(mut self, found: Result<Topology, Error>) {
        self.found = Some(found);
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let interrupted = || Err(Error::broken(None));
        self.cluster
            .looked(self.found.take().unwrap_or_else(interrupted));
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo as _;

    use super::*;

    fn node(port: u16) -> Address {
        Address::new("10.0.0.1", port)
    }

    fn cluster() -> Arc<Cluster> {
        let info = "redis://10.0.0.1:1".into_connection_info().unwrap();
        let seeds = vec![info.clone()];
        Arc::new(Cluster::new(seeds, info, Access::default()))
    }

    /// Two masters, of which the seed is one.
    fn known() -> Arc<Cluster> {
        let cluster = cluster();
        let mut map = SlotMap::default();
        map.assign(0..=99, node(1));
        map.assign(100..=199, node(2));
        map.add_replica(node(4));
        cluster.learnt(map);
        cluster
    }

    #[test]
    fn seeds_and_nodes_are_asked_each_once() {
        let asked = |cluster: &Cluster| {
            let candidates = cluster.candidates().into_iter();
            let mut asked: Vec<_> = candidates.map(|info| info.addr().to_string()).collect();
            asked.sort();
            asked
        };

        assert_eq!(asked(&cluster()), ["10.0.0.1:1"]);
        assert_eq!(asked(&known()), ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:4"]);
    }

    #[test]
    fn a_slot_that_moved_lies_there_until_the_next_look() {
        let cluster = known();

        cluster.moved(5, node(3));

        assert_eq!(cluster.owner(5), Some(node(3)));
        assert_eq!(cluster.owner(6), Some(node(1)));
        cluster.learnt(SlotMap::default());
        assert_eq!(cluster.owner(5), None);
    }

    #[tokio::test(start_paused = true)]
    async fn after_one_has_waited_for_a_slot_in_vain_nobody_does_for_a_while() {
        let cluster = known();

        cluster.waited_in_vain(5);

        assert!(!cluster.is_worth_waiting_for(5));
        assert!(cluster.is_worth_waiting_for(6));
        tokio::time::advance(UNSETTLED).await;
        assert!(cluster.is_worth_waiting_for(5));
    }

    #[tokio::test]
    async fn any_master_but_the_last_one_is_connected_to() {
        let cluster = known();
        let last = ConnectionAddr::Tcp("10.0.0.1".to_owned(), 1);

        for _ in 0..20 {
            let next = cluster.any(Duration::ZERO, Some(&last)).await.unwrap();
            assert_eq!(next.addr().to_string(), "10.0.0.1:2");
        }
    }

    #[tokio::test]
    async fn a_node_that_has_left_is_told_from_one_that_has_not() {
        let cluster = known();
        let at = |port| ConnectionAddr::Tcp("10.0.0.1".to_owned(), port);

        assert!(!cluster.has_lost(&at(1)));
        assert!(cluster.has_lost(&at(7)));
        assert!(!self::cluster().has_lost(&at(7)), "nothing is known yet");
    }
}
