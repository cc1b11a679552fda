//! A real Redis Cluster of three masters, with or without replicas, that lives as long as the test.

use std::thread;

use redis::FromRedisValue;
use tower_stampede::RedisConfig;

#[cfg(feature = "tls")]
use super::tls::Authority;
use super::{
    redis::{RedisServer, free_port},
    worker::until,
};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;
const HERE: &str = "127.0.0.1";

/// A node that is silent for so long (ms) is taken for dead: on a machine under load, none by mistake.
const NODE_TIMEOUT: &str = "5000";
/// The same where one is to die, and at the start, since the nodes tell each other the more the shorter it is.
const SHORT_NODE_TIMEOUT: &str = "1000";

pub struct Cluster {
    /// The three masters of the beginning, then their replicas in the same order.
    pub nodes: Vec<RedisServer>,
}

impl Cluster {
    /// Three masters alone.
    pub async fn start() -> Self {
        Self::of(MASTERS, &Vec::new).await
    }

    /// Three masters with a replica each.
    pub async fn with_replicas() -> Self {
        Self::of(2 * MASTERS, &Vec::new).await
    }

    /// Three masters alone, with further options.
    pub async fn with_options(options: &[&str]) -> Self {
        let options = || options.iter().map(|&word| word.to_owned()).collect();
        Self::of(MASTERS, &options).await
    }

    /// Three masters alone, which speak TLS to each other and to clients that want it.
    #[cfg(feature = "tls")]
    pub async fn with_tls(authority: &Authority) -> Self {
        let own = authority.sign(HERE, "node");
        let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let (certificate, key, ca) = (
            text(&own.certificate),
            text(&own.key),
            text(&authority.file()),
        );
        let options = || {
            let port = free_port().to_string();
            let words = [
                ["--tls-port", &port],
                ["--tls-cert-file", &certificate],
                ["--tls-key-file", &key],
                ["--tls-ca-cert-file", &ca],
                ["--tls-auth-clients", "no"],
                ["--tls-cluster", "yes"],
            ];
            words
                .iter()
                .flatten()
                .map(|&word| word.to_owned())
                .collect()
        };
        Self::of(MASTERS, &options).await
    }

    #[cfg(feature = "tls")]
    pub fn tls_urls(&self) -> Vec<String> {
        let ports = self.everywhere::<(String, String)>(&["CONFIG", "GET", "tls-port"]);
        let ports = ports.into_iter();
        ports
            .map(|(_, port)| format!("rediss://{HERE}:{port}"))
            .collect()
    }

    /// Returns once every node takes commands.
    async fn of(count: usize, options: &(dyn Fn() -> Vec<String> + Sync)) -> Self {
        let nodes = thread::scope(|scope| {
            let mut starts = Vec::new();
            for _ in 0..count {
                starts.push(scope.spawn(|| node(options)));
            }
            let started = starts.into_iter().map(|start| start.join().unwrap());
            started.collect()
        });
        let cluster = Self { nodes };
        cluster.deal_out_slots();
        cluster.introduce();
        cluster.add_replicas().await;
        until(|| cluster.nodes.iter().all(|node| is_ready(node, count))).await;
        cluster.takes_for_dead_after(NODE_TIMEOUT);
        cluster
    }

    fn deal_out_slots(&self) {
        for (at, master) in self.nodes.iter().take(MASTERS).enumerate() {
            let first = (at * SLOTS / MASTERS).to_string();
            let last = ((at + 1) * SLOTS / MASTERS - 1).to_string();
            master.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            let epoch = (at + 1).to_string();
            master.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        }
    }

    /// Everyone to everyone, which is faster than gossip.
    fn introduce(&self) {
        for node in &self.nodes {
            for other in self
                .nodes
                .iter()
                .filter(|other| other.port() != node.port())
            {
                let (_, bus): (String, String) = other.command(&["CONFIG", "GET", "cluster-port"]);
                let port = other.port().to_string();
                node.command::<()>(&["CLUSTER", "MEET", HERE, &port, &bus]);
            }
        }
    }

    async fn add_replicas(&self) {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        for (replica, master) in replicas.iter().zip(masters) {
            let id = id(master);
            // Refused until it has heard of its master.
            let words = ["CLUSTER", "REPLICATE", &id];
            until(|| replica.try_command::<()>(&words).is_ok()).await;
        }
    }

    /// From now on, a node that is silent is soon taken for dead.
    pub fn expects_the_worst(&self) {
        self.takes_for_dead_after(SHORT_NODE_TIMEOUT);
    }

    /// From now on, nobody is taken for dead.
    pub fn hopes_for_the_best(&self) {
        self.takes_for_dead_after("600000");
    }

    fn takes_for_dead_after(&self, millis: &str) {
        self.everywhere::<()>(&["CONFIG", "SET", "cluster-node-timeout", millis]);
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    pub fn config(&self) -> RedisConfig {
        RedisConfig::cluster(self.urls())
    }

    /// Every node that answers is asked the same.
    pub fn everywhere<T: FromRedisValue>(&self, words: &[&str]) -> Vec<T> {
        let answers = self.nodes.iter().map(|node| node.try_command(words));
        answers.flatten().collect()
    }

    /// How often a command ran, on all nodes together.
    pub fn count(&self, command: &str) -> u64 {
        self.nodes.iter().map(|node| node.count(command)).sum()
    }

    pub fn reset_counts(&self) {
        self.everywhere::<()>(&["CONFIG", "RESETSTAT"]);
    }

    /// The keys that match, of all masters.
    pub fn keys(&self, pattern: &str) -> Vec<String> {
        let masters = self.nodes.iter().take(MASTERS);
        masters
            .flat_map(|node| node.command::<Vec<String>>(&["KEYS", pattern]))
            .collect()
    }

    /// The node that holds a key, by its place among the nodes.
    pub fn owner(&self, key: &str) -> usize {
        let slot = self.slot(key);
        let owner = self.nodes.iter().position(|node| holds(node, slot));
        owner.expect("a node holds the slot")
    }

    /// Whether everyone tells clients of a replica, which they do once it has got something to follow.
    pub fn is_listed(&self, replica: usize) -> bool {
        let port = format!("({})", self.nodes[replica].port());
        let slots = self.everywhere::<redis::Value>(&["CLUSTER", "SLOTS"]);
        slots
            .iter()
            .all(|slots| format!("{slots:?}").contains(&port))
    }

    pub fn slot(&self, key: &str) -> u16 {
        let slots = self.everywhere(&["CLUSTER", "KEYSLOT", key]);
        slots[0]
    }

    /// The slot is on its way from now on.
    pub fn begin_to_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        let (source, target) = (id(from), id(to));
        to.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        from.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    }

    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let (from, port) = (&self.nodes[from], self.nodes[to].port().to_string());
        loop {
            let keys: Vec<String> = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                return;
            }
            let mut words = vec!["MIGRATE", HERE, &port, "", "0", "10000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            from.command::<()>(&words);
        }
    }

    /// The slot has arrived, and everyone is told.
    pub fn end_move(&self, slot: u16, to: usize) {
        let (slot, target) = (slot.to_string(), id(&self.nodes[to]));
        let told = ["CLUSTER", "SETSLOT", &slot, "NODE", &target];
        self.nodes[to].command::<()>(&told);
        for node in self.nodes.iter().take(MASTERS) {
            node.command::<()>(&told);
        }
    }

    /// All of it, at once.
    pub fn reshard(&self, slot: u16, from: usize, to: usize) {
        self.begin_to_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, to);
    }

    /// Whether a node calls itself a master.
    pub fn leads(&self, node: usize) -> bool {
        let role = self.nodes[node].try_command::<redis::Value>(&["ROLE"]);
        let redis::Value::Array(role) = role.unwrap_or(redis::Value::Nil) else {
            return false;
        };
        role.first() == Some(&redis::Value::BulkString(b"master".to_vec()))
    }
}

fn node(options: &(dyn Fn() -> Vec<String> + Sync)) -> RedisServer {
    RedisServer::with(|| {
        let bus = free_port().to_string();
        let own = [
            ["--cluster-enabled", "yes"],
            ["--cluster-port", &bus],
            ["--cluster-node-timeout", SHORT_NODE_TIMEOUT],
            ["--repl-diskless-sync-delay", "0"],
            ["--repl-ping-replica-period", "1"],
        ];
        let own = own.iter().flatten().map(|&word| word.to_owned());
        own.chain(options()).collect()
    })
}

fn id(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"])
}

fn is_ready(node: &RedisServer, count: usize) -> bool {
    let info: String = node.command(&["CLUSTER", "INFO"]);
    let nodes: String = node.command(&["CLUSTER", "NODES"]);
    let replicas = nodes.lines().filter(|line| line.contains("slave"));
    let replication: String = node.command(&["INFO", "replication"]);
    info.contains("cluster_state:ok")
        && info.contains(&format!("cluster_known_nodes:{count}"))
        && replicas.count() == count - MASTERS
        && !replication.contains("master_link_status:down")
}

fn holds(node: &RedisServer, slot: u16) -> bool {
    let Ok(ranges) = node.try_command::<Vec<redis::Value>>(&["CLUSTER", "SLOTS"]) else {
        return false;
    };
    ranges.into_iter().any(|range| {
        let redis::Value::Array(range) = range else {
            return false;
        };
        let number = |at: usize| redis::from_redis_value::<u16>(range[at].clone()).unwrap();
        let redis::Value::Array(master) = &range[2] else {
            return false;
        };
        let port: u16 = redis::from_redis_value(master[1].clone()).unwrap();
        (number(0)..=number(1)).contains(&slot) && port == node.port()
    })
}
