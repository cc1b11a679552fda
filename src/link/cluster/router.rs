//! [`Router`]: the way of a command through the nodes of a Cluster.

use std::sync::Arc;

use redis::{Cmd, FromRedisValue, Value};
use tokio::{task::JoinSet, time::Instant};

use super::{
    journey::Journey,
    known::Cluster,
    nodes::{Limits, Nodes},
};
use crate::{
    link::{
        Call, Health, Script, Settings,
        error::Error,
        request::{self, Manner, Request},
    },
    slot::slot,
};

/// Links to the nodes of a Cluster, for one purpose; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    nodes: Arc<Nodes>,
}

impl Router {
    pub(crate) fn new(cluster: &Arc<Cluster>, settings: Settings) -> Self {
        let nodes = Arc::new(Nodes::new(Arc::clone(cluster), settings));
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
        let slot = key.map(|key| slot(key.as_bytes()));
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
        let slot = call.first_key().map(slot);
        let reply = self.send(Request::Script(script, call), slot, deadline);
        reply.await.and_then(request::convert)
    }

    /// Sends a request to every node, masters and replicas alike; fails if one of them does.
    pub(crate) async fn query_all<T: FromRedisValue + Send + 'static>(
        &self,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Vec<T>, Error> {
        self.nodes.cluster().learn(deadline).await;
        let nodes = self.nodes.cluster().nodes();
        if nodes.is_empty() {
            return Err(self.nodes.cluster().unknown());
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
        if self.nodes.cluster().masters().is_empty() {
            self.nodes.cluster().learn(deadline).await;
        }
        let mut asked = JoinSet::new();
        for node in self.nodes.cluster().masters() {
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

    /// Of each link there is.
    pub(crate) fn health(&self) -> Vec<Health> {
        self.nodes.health()
    }

    pub(crate) fn usual_deadline(&self) -> Instant {
        Instant::now() + self.nodes.patience()
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
