//! Who waits in a Cluster is woken over a channel of the shard, wherever its slot lies.

use std::{collections::HashMap, time::Duration};

use tokio::time::{sleep, timeout};
use tower_stampede::{Cache, RedisConfig};

use crate::{
    support::{
        cluster::Cluster,
        log::Log,
        worker::{
            AMPLE, Handler, Herd, Worker, cache, failing, layer, settled, text, until, waiting,
        },
    },
    topologies::acl_rules,
};

const SHARDS: usize = 64;

/// How many listen to each shard's channel, by the node and the channel.
fn listeners(cluster: &Cluster) -> HashMap<(usize, String), usize> {
    let mut listeners = HashMap::new();
    for (at, node) in cluster.nodes.iter().enumerate() {
        let ask = ["PUBSUB", "SHARDCHANNELS", "stampede:*:wakes"];
        let channels: Vec<String> = node.try_command(&ask).unwrap_or_default();
        let ask: Vec<_> = ["PUBSUB", "SHARDNUMSUB"]
            .into_iter()
            .chain(channels.iter().map(String::as_str))
            .collect();
        let counts: Vec<(String, usize)> = node.try_command(&ask).unwrap_or_default();
        listeners.extend(
            counts
                .into_iter()
                .map(|(channel, count)| ((at, channel), count)),
        );
    }
    listeners
}

/// Returns once `count` processes listen to each shard, at the node that holds it.
async fn all_hear(cluster: &Cluster, count: usize) {
    until(|| {
        let listeners = listeners(cluster);
        listeners.len() == SHARDS && listeners.values().all(|listening| *listening == count)
    })
    .await;
}

/// Two processes, of which one builds and the other waits, both listening to all shards.
struct Wait<'a> {
    cluster: &'a Cluster,
    handler: Handler,
    caches: [Cache; 2],
    workers: [Worker; 2],
    herd: Herd,
}

impl<'a> Wait<'a> {
    async fn start(cluster: &'a Cluster) -> Self {
        let config = cluster.config();
        let wait = Self::between(cluster, [config.clone(), config]).await;
        all_hear(cluster, 2).await;
        wait
    }

    async fn between(cluster: &'a Cluster, configs: [RedisConfig; 2]) -> Self {
        let handler = Handler::held();
        let caches = configs.map(cache);
        let workers = caches
            .each_ref()
            .map(|cache| handler.worker(&layer(cache), text));
        let builds = workers[0].herd("/report", 1);
        handler.has_begun(1).await;
        let herd = builds.and(workers[1].herd("/report", 5));
        waiting(&caches, 6).await;
        Self {
            cluster,
            handler,
            caches,
            workers,
            herd,
        }
    }

    /// The digest, and the channel of its shard.
    fn subject(&self) -> (String, String) {
        let leases = self.cluster.keys("stampede:*:l");
        let [lease] = &*leases else {
            panic!("one lease: {leases:?}");
        };
        let mut parts = lease.split(':');
        let (tag, digest) = (parts.nth(1).unwrap(), parts.next().unwrap());
        (digest.to_owned(), format!("stampede:{tag}:wakes"))
    }

    /// Ends the build, and says how often what was published to whom.
    async fn ends(self) -> (u64, u64) {
        self.cluster.reset_counts();
        self.handler.let_go();
        for answer in self.herd.answers().await {
            assert_eq!(answer.text(), "build 1");
        }
        for cache in &self.caches {
            settled(cache).await;
        }
        assert_eq!(self.handler.builds(), 1);
        let counts = self.cluster.everywhere::<String>(&["INFO", "commandstats"]);
        let count = |command: &str| {
            let name = format!("cmdstat_{command}:calls=");
            let lines = counts.iter().flat_map(|stats| stats.lines());
            let calls = lines.filter_map(|line| line.strip_prefix(&name)?.split(',').next());
            calls.map(|calls| calls.parse::<u64>().unwrap()).sum()
        };
        (count("spublish"), count("publish"))
    }
}

/// What a process hears of a shard's channel it counts, if it cannot believe it.
async fn both_hear(cluster: &Cluster, caches: &[Cache; 2], node: usize, channel: &str) {
    let told = |cache: &Cache| cache.stats().doubtful_events;
    let before = caches.each_ref().map(told);
    let said: usize = cluster.nodes[node].command(&["SPUBLISH", channel, "garbage"]);
    assert_eq!(said, 2);
    until(|| caches.each_ref().map(told) == before.map(|before| before + 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_build_is_told_on_its_shards_channel_and_on_no_other() {
    let cluster = Cluster::start().await;
    let wait = Wait::start(&cluster).await;

    assert_eq!(wait.ends().await, (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_given_back_without_an_entry_is_told_there_too() {
    let cluster = Cluster::start().await;
    let handler = Handler::open();
    let caches = [cache(cluster.config()), cache(cluster.config())];
    let [one, other] = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), failing));
    one.get("/a").await;
    other.get("/b").await;
    all_hear(&cluster, 2).await;
    cluster.reset_counts();

    one.get("/c").await;
    settled(&caches[0]).await;

    until(|| cluster.count("spublish") == 1).await;
    assert_eq!(cluster.count("publish"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_has_a_waiter_ask_at_once() {
    let cluster = Cluster::start().await;
    let wait = Wait::start(&cluster).await;
    let (digest, channel) = wait.subject();
    let wake = format!("1:{}:w:{digest}", "0".repeat(32));
    let node = &cluster.nodes[cluster.owner(&channel)];
    let claims = || node.count("evalsha");

    let asks = async {
        // Far more often than polls and renewals would have it in that time.
        for _ in 0..100 {
            let before = claims();
            let said: usize = node.command(&["SPUBLISH", &channel, &wake]);
            assert_eq!(said, 2);
            until(|| claims() > before).await;
        }
    };

    timeout(AMPLE, asks).await.expect("woken each time");
    assert_eq!(wait.ends().await, (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_listened_to_where_its_slot_has_moved_to() {
    let cluster = Cluster::start().await;
    let wait = Wait::start(&cluster).await;
    let (_, channel) = wait.subject();
    let (slot, from) = (cluster.slot(&channel), cluster.owner(&channel));
    let to = (from + 1) % 3;

    cluster.reshard(slot, from, to);

    until(|| listeners(&cluster).get(&(to, channel.clone())) == Some(&2)).await;
    all_hear(&cluster, 2).await;
    both_hear(&cluster, &wait.caches, to, &channel).await;
    assert_eq!(wait.ends().await, (1, 0));
}

/// The channel that is looked at, and where it is.
fn some_channel(cluster: &Cluster) -> (String, usize) {
    let channel = "stampede:{10}:wakes";
    (channel.to_owned(), cluster.owner(channel))
}

/// Two processes that have asked for something, and listen to all shards.
async fn listening(config: RedisConfig) -> ([Cache; 2], [Worker; 2]) {
    let caches = [cache(config.clone()), cache(config)];
    let workers = caches
        .each_ref()
        .map(|cache| Handler::open().worker(&layer(cache), text));
    for (worker, cache) in workers.iter().zip(&caches) {
        worker.get("/report").await;
        settled(cache).await;
    }
    (caches, workers)
}

/// Whoever asks for something learns that a node has moved.
async fn ask_until(workers: &[Worker; 2], condition: impl Fn() -> bool) {
    let asks = async {
        for at in 0.. {
            if condition() {
                return;
            }
            for worker in workers {
                worker.get(&format!("/{at}")).await;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(2 * AMPLE, asks)
        .await
        .expect("the condition never held");
}

/// Has a replica take over for a master, and looks that both workers listen there, and hear.
async fn replica_is_listened_to(take_over: impl FnOnce(&mut Cluster, [usize; 2])) {
    let mut cluster = Cluster::with_replicas().await;
    let (caches, workers) = listening(cluster.config()).await;
    all_hear(&cluster, 2).await;
    let (channel, master) = some_channel(&cluster);
    let replica = master + 3;

    take_over(&mut cluster, [master, replica]);

    let place = (replica, channel.clone());
    ask_until(&workers, || listeners(&cluster).get(&place) == Some(&2)).await;
    all_hear(&cluster, 2).await;
    both_hear(&cluster, &caches, replica, &channel).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_listened_to_where_its_replica_has_taken_over_in_order() {
    replica_is_listened_to(|cluster, [_, replica]| {
        cluster.nodes[replica].command::<()>(&["CLUSTER", "FAILOVER"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_listened_to_where_the_replica_of_a_dead_master_has_taken_over() {
    replica_is_listened_to(|cluster, [master, _]| {
        cluster.expects_the_worst();
        cluster.nodes[master].kill();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_is_made_again_and_no_local_entry_is_doubted_meanwhile() {
    let cluster = Cluster::start().await;
    let (_caches, workers) = listening(cluster.config()).await;
    all_hear(&cluster, 2).await;
    cluster.reset_counts();

    for node in &cluster.nodes {
        let clients: String = node.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        let listens = |line: &&str| !line.contains(" ssub=0 ");
        for client in clients.lines().filter(listens) {
            let id = client.split(' ').next().unwrap().strip_prefix("id=");
            node.command::<()>(&["CLIENT", "KILL", "ID", id.unwrap()]);
        }
    }

    until(|| cluster.count("ssubscribe") == 128).await;
    all_hear(&cluster, 2).await;
    for worker in &workers {
        worker.get("/report").await;
    }
    assert_eq!(cluster.count("evalsha"), 0, "served from what is local");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_has_lost_a_slot_unseen_says_where_it_is_listened_to() {
    let cluster = Cluster::start().await;
    let config = deaf(&cluster);
    let (caches, _workers) = listening(config).await;
    let (channel, from) = some_channel(&cluster);
    let (slot, to) = (cluster.slot(&channel), (from + 1) % 3);
    cluster.reshard(slot, from, to);
    cluster.reset_counts();

    cluster.everywhere::<()>(&["ACL", "SETUSER", "deaf", "+ssubscribe"]);

    all_hear(&cluster, 2).await;
    both_hear(&cluster, &caches, to, &channel).await;
    let stats: String = cluster.nodes[from].command(&["INFO", "errorstats"]);
    assert!(stats.contains("errorstat_MOVED"), "{stats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_servers_know_no_shards_the_whole_namespace_is_told() {
    let options = [
        ["--rename-command", "SPUBLISH", "OLD1"],
        ["--rename-command", "SSUBSCRIBE", "OLD2"],
    ];
    let cluster = Cluster::with_options(options.as_flattened()).await;
    let config = cluster.config();
    let wait = Wait::between(&cluster, [config.clone(), config]).await;

    assert_eq!(wait.ends().await, (0, 1));
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn shards_are_listened_to_through_tls() {
    let authority = crate::support::tls::Authority::new();
    let cluster = Cluster::with_tls(&authority).await;
    let config = RedisConfig::cluster(cluster.tls_urls()).tls_ca(authority.file());

    let (caches, _workers) = listening(config).await;

    all_hear(&cluster, 2).await;
    let (channel, master) = some_channel(&cluster);
    both_hear(&cluster, &caches, master, &channel).await;
}

fn deaf(cluster: &Cluster) -> RedisConfig {
    let rules = acl_rules();
    let words: Vec<_> = ["ACL", "SETUSER", "deaf", "reset", "on", ">secret"]
        .into_iter()
        .chain(rules.split_whitespace())
        .chain(["-ssubscribe"])
        .collect();
    cluster.everywhere::<()>(&words);
    cluster.config().user("deaf").password("secret")
}

#[tokio::test]
async fn who_may_not_listen_to_shards_learns_by_polling_and_says_so_once_for_each_node() {
    let (log, _guard) = Log::start();
    let cluster = Cluster::start().await;
    let configs = [cluster.config(), deaf(&cluster)];
    let wait = Wait::between(&cluster, configs).await;
    all_hear(&cluster, 1).await;
    let refusals = || log.lines("INFO", "no sharded channels");
    until(|| refusals().len() == 3).await;

    assert_eq!(wait.ends().await, (1, 0));

    assert_eq!(refusals().len(), 3, "{}", log.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_listens_to_the_shard_the_whole_namespace_is_told() {
    let cluster = Cluster::start().await;
    let deaf = deaf(&cluster);
    let wait = Wait::between(&cluster, [deaf.clone(), deaf]).await;

    assert_eq!(wait.ends().await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_listened_to_no_longer_than_the_cache_lives() {
    let cluster = Cluster::start().await;
    let wait = Wait::start(&cluster).await;
    let Wait {
        handler,
        caches,
        workers,
        herd,
        ..
    } = wait;
    handler.let_go();
    herd.answers().await;

    drop((caches, workers));

    until(|| listeners(&cluster).is_empty()).await;
    let pubsub = || cluster.nodes.iter().map(|node| node.clients("pubsub"));
    until(|| pubsub().sum::<usize>() == 0).await;
}
