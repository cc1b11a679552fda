//! [`Router`]: one link to each node, and the way of a command through them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{Cmd, FromRedisValue, Value};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    address::Address,
    journey::{self, Journey, Turn},
    known::Cluster,
    redirection::Kind,
};
use crate::link::{
    Call, Health, Link, Phase, Script, Server, Settings,
    error::Error,
    request::{self, Manner, Request},
};

/// Links to the nodes of a Cluster, for one purpose; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    nodes: Arc<Nodes>,
}

/// The links there are: each is made for the first command to its node, and dropped when the node has left.
#[derive(Debug)]
pub(super) struct Nodes {
    cluster: Arc<Cluster>,
    settings: Settings,
    links: Mutex<HashMap<Address, Link>>,
}

impl Router {
    pub(crate) fn new(cluster: &Arc<Cluster>, settings: Settings) -> Self {
        let nodes = Arc::new(Nodes {
            cluster: Arc::clone(cluster),
            settings,
            links: Mutex::default(),
        });
        cluster.register(Arc::downgrade(&nodes));
        Self { nodes }
    }

    /// Sends a command to whichever node holds `key`; without one, to any.
    pub(crate) async fn query<T: FromRedisValue>(
        &self,
        command: &Cmd,
        key: Option<&str>,
        deadline: Instant,
    ) -> Result<T, Error> {
        let slot = key.map(|key| crate::slot::slot(key.as_bytes()));
        let reply = self.send(Request::Command(command), slot, deadline).await;
        reply.and_then(request::convert)
    }

    /// Calls a script where its first key lies.
    pub(crate) async fn invoke<T: FromRedisValue>(
        &self,
        script: &'static Script,
        call: &Call,
        deadline: Instant,
    ) -> Result<T, Error> {
        let slot = call.first_key().map(crate::slot::slot);
        let reply = self.send(Request::Script(script, call), slot, deadline);
        reply.await.and_then(request::convert)
    }

    /// Sends a request to every node, masters and replicas alike; fails if one of them does.
    pub(crate) async fn query_all<T: FromRedisValue + Send + 'static>(
        &self,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Vec<T>, Error> {
        self.nodes.cluster.learn(deadline).await;
        let nodes = self.nodes.cluster.nodes();
        if nodes.is_empty() {
            return Err(self.nodes.cluster.unknown());
        }
        let mut asked = JoinSet::new();
        for node in nodes {
            let (link, command) = (self.nodes.link(&node), command.clone());
            asked.spawn(async move { link.query_by(&command, deadline).await });
        }
        let mut replies = Vec::new();
        while let Some(reply) = asked.join_next().await {
            replies.push(reply.unwrap_or_else(|_| Err(Error::lost()))?);
        }
        Ok(replies)
    }

    /// Connects to every master, and has it know `script`; says whether one of them is there, as soon as one is.
    pub(crate) async fn prepare(&self, script: &'static Script) -> bool {
        let deadline = self.usual_deadline();
        if self.nodes.cluster.masters().is_empty() {
            self.nodes.cluster.learn(deadline).await;
        }
        let mut asked = JoinSet::new();
        for node in self.nodes.cluster.masters() {
            let link = self.nodes.link(&node);
            asked.spawn(async move { link.prepare(script).await });
        }
        while let Some(ready) = asked.join_next().await {
            if ready.unwrap_or(false) {
                asked.detach_all();
                return true;
            }
        }
        false
    }

    /// Of the links there are; without any, why.
    pub(crate) fn health(&self) -> Vec<Health> {
        let mut links: Vec<_> = self.nodes.with(|links| {
            let links = links.iter();
            links.map(|(node, link)| of_node(node, link)).collect()
        });
        links.sort_by(|one, other| one.node.cmp(&other.node));
        if links.is_empty() {
            links.push(self.nodes.health_without_links());
        }
        links
    }

    pub(crate) fn usual_deadline(&self) -> Instant {
        Instant::now() + self.nodes.settings.command_timeout
    }

    async fn send(
        &self,
        request: Request<'_>,
        slot: Option<u16>,
        deadline: Instant,
    ) -> Result<Value, Error> {
        let nodes = &self.nodes;
        let limits = Limits::new(slot, deadline);
        let mut journey = Journey::default();
        let mut next = (nodes.owner(limits).await?, Manner::Usual);
        loop {
            let (node, manner) = next;
            let link = nodes.link(&node);
            let error = match link.attempt(request, manner, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            nodes.heed(&error, &node);
            let turn = journey.turn(&error, fastrand::f64());
            let Some(way) = nodes.way(turn, &node, limits).await else {
                link.failed(&error);
                return Err(nodes.judge(error, &node));
            };
            next = way;
        }
    }
}

/// What a command is for, and until when.
#[derive(Clone, Copy, Debug)]
struct Limits {
    slot: Option<u16>,
    deadline: Instant,
    /// Nothing is sent again after that: what was sent late would be given up without an answer.
    latest: Instant,
}

impl Limits {
    fn new(slot: Option<u16>, deadline: Instant) -> Self {
        let now = Instant::now();
        Self {
            slot,
            deadline,
            latest: now + deadline.saturating_duration_since(now) / 2,
        }
    }
}

fn of_node(node: &Address, link: &Link) -> Health {
    Health {
        node: Some(node.to_string()),
        ..link.health()
    }
}

impl Nodes {
    /// The node that holds the slot, or any that is there.
    async fn owner(&self, limits: Limits) -> Result<Address, Error> {
        if let Some(owner) = self.known_owner(limits.slot, None) {
            return Ok(owner);
        }
        self.cluster.learn(limits.deadline).await;
        self.known_owner(limits.slot, None)
            .ok_or_else(|| self.cluster.unknown())
    }

    /// The same, but not the one that is `lost` if any will do.
    fn known_owner(&self, slot: Option<u16>, lost: Option<&Address>) -> Option<Address> {
        match slot {
            Some(slot) => self.cluster.owner(slot),
            None => self.connected(lost).or_else(|| {
                let mut masters = self.cluster.masters();
                masters.retain(|master| Some(master) != lost);
                fastrand::choice(masters)
            }),
        }
    }

    /// A node that is connected to, and is not that one.
    fn connected(&self, except: Option<&Address>) -> Option<Address> {
        self.with(|links| {
            let mut links = links.iter();
            let found = links
                .find(|(node, link)| Some(*node) != except && link.phase() == Phase::Connected);
            found.map(|(node, _)| node.clone())
        })
    }

    fn link(&self, node: &Address) -> Link {
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
    fn heed(&self, error: &Error, node: &Address) {
        if let Some(redirection) = error.redirection()
            && redirection.kind == Kind::Moved
        {
            self.cluster
                .moved(redirection.slot, redirection.target(node));
        }
        if journey::casts_doubt(error) {
            self.cluster.doubt();
        }
    }

    /// Whom to ask after `node`, once it is time to. `None`: nobody.
    async fn way(&self, turn: Turn, node: &Address, limits: Limits) -> Option<(Address, Manner)> {
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
    fn judge(&self, error: Error, node: &Address) -> Error {
        if error.is_down() && self.connected(Some(node)).is_some() {
            error.partial()
        } else {
            error
        }
    }

    /// Drops the links to what is none of `nodes`.
    pub(super) fn keep(&self, nodes: &[Address]) {
        self.with(|links| links.retain(|node, _| nodes.contains(node)));
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
            failures: Default::default(),
        }
    }

    /// For a few lines, never across an await.
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<Address, Link>) -> T) -> T {
        work(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
