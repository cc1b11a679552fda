//! [`Nodes`]: one link to each node, and what is learnt from what they answer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{
    address::Address,
    journey::{self, Turn},
    known::Cluster,
};
use crate::link::{
    Health, Link, Phase, Server, Settings, error::Error, health::Failures, request::Manner,
};

/// The links there are: each is made for the first command to its node, and dropped when the node has left.
#[derive(Debug)]
pub(super) struct Nodes {
    cluster: Arc<Cluster>,
    settings: Settings,
    links: Mutex<HashMap<Address, Link>>,
}

/// What a command is for, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    slot: Option<u16>,
    deadline: Instant,
    /// Nothing is sent again after that: what was sent late would be given up without an answer.
    latest: Instant,
}

impl Limits {
    pub(super) fn new(slot: Option<u16>, deadline: Instant) -> Self {
        let now = Instant::now();
        Self {
            slot,
            deadline,
            latest: now + deadline.saturating_duration_since(now) / 2,
        }
    }
}

impl Nodes {
    pub(super) fn new(cluster: Arc<Cluster>, settings: Settings) -> Self {
        Self {
            cluster,
            settings,
            links: Mutex::default(),
        }
    }

    pub(super) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// How long a command may take.
    pub(super) fn patience(&self) -> Duration {
        self.settings.command_timeout
    }

    /// The node that holds the slot, or any that is there.
    pub(super) async fn owner(&self, limits: Limits) -> Result<Address, Error> {
        if let Some(owner) = self.known_owner(limits.slot, None) {
            return Ok(owner);
        }
        self.cluster.learn(limits.deadline).await;
        self.known_owner(limits.slot, None)
            .ok_or_else(|| self.cluster.unknown())
    }

    /// The same, but not the one that is `lost` if any will do.
    fn known_owner(&self, slot: Option<u16>, lost: Option<&Address>) -> Option<Address> {
        if let Some(slot) = slot {
            return self.cluster.owner(slot);
        }
        let mut masters = self.cluster.masters();
        masters.retain(|master| Some(master) != lost);
        let (there, others): (Vec<_>, Vec<_>) = masters
            .into_iter()
            .partition(|master| self.is_connected(master));
        fastrand::choice(if there.is_empty() { others } else { there })
    }

    fn is_connected(&self, node: &Address) -> bool {
        let phase = self.with(|links| links.get(node).map(Link::phase));
        phase == Some(Phase::Connected)
    }

    fn is_another_connected(&self, node: &Address) -> bool {
        self.with(|links| {
            let mut links = links.iter();
            links.any(|(other, link)| other != node && link.phase() == Phase::Connected)
        })
    }

    pub(super) fn link(&self, node: &Address) -> Link {
        self.with(|links| {
            let make = || {
                let info = node.in_place_of(self.cluster.template());
                let server = Server::node(info, self.cluster.access().clone());
                Link::new(server, self.settings.clone())
            };
            links.entry(node.clone()).or_insert_with(make).clone()
        })
    }

    /// Learns from what `node` said.
    pub(super) fn heed(&self, error: &Error, node: &Address) {
        if let Some(redirection) = error.redirection() {
            self.cluster.heed(redirection, node);
        }
        if journey::casts_doubt(error) {
            self.cluster.doubt();
        }
    }

    /// Whom to ask after `node`, once it is time to. `None`: nobody.
    pub(super) async fn way(
        &self,
        turn: Turn,
        node: &Address,
        limits: Limits,
    ) -> Option<(Address, Manner)> {
        let next = match turn {
            Turn::End => None,
            Turn::Ask(redirection) => return Some((redirection.target(node), Manner::Asking)),
            Turn::Again { after } => {
                let waited = self.pause(after, limits).await;
                self.known_owner(limits.slot, None).filter(|_| waited)
            }
            Turn::Learn => {
                self.cluster.learn(limits.latest).await;
                self.known_owner(limits.slot, Some(node))
                    .filter(|owner| owner != node)
            }
        };
        next.map(|node| (node, Manner::Usual))
    }

    /// Whether it was worth waiting: there is still time, and nobody has waited for this slot in vain lately.
    async fn pause(&self, pause: Duration, limits: Limits) -> bool {
        if pause.is_zero() {
            return true;
        }
        let slot = limits.slot.unwrap_or_default();
        let until = Instant::now() + pause;
        if until >= limits.latest || !self.cluster.is_worth_waiting_for(slot) {
            self.cluster.waited_in_vain(slot);
            return false;
        }
        sleep_until(until).await;
        true
    }

    /// What a failure means to the caller: one node that is down is not the Cluster.
    pub(super) fn judge(&self, error: Error, node: &Address) -> Error {
        if error.is_down() && self.is_another_connected(node) {
            error.partial()
        } else {
            error
        }
    }

    /// Drops the links to what is none of `nodes`.
    pub(super) fn keep(&self, nodes: &[Address]) {
        self.with(|links| links.retain(|node, _| nodes.contains(node)));
    }

    /// Of the links there are; without any, why.
    pub(super) fn health(&self) -> Vec<Health> {
        let mut links: Vec<_> = self.with(|links| {
            let links = links.iter();
            let of_node = |(node, link): (&Address, &Link)| Health {
                node: Some(node.to_string()),
                ..link.health()
            };
            links.map(of_node).collect()
        });
        links.sort_by(|one, other| one.node.cmp(&other.node));
        if links.is_empty() {
            links.push(self.health_without_links());
        }
        links
    }

    fn health_without_links(&self) -> Health {
        let outage = self.cluster.outage();
        Health {
            name: self.settings.name,
            node: None,
            phase: if outage.is_some() {
                Phase::Broken
            } else {
                Phase::Idle
            },
            since: Instant::now(),
            last_error: outage,
            latency: None,
            failures: Failures::default(),
        }
    }

    /// For a few lines, never across an await.
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<Address, Link>) -> T) -> T {
        work(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
