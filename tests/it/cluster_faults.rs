//! Nodes of a Cluster that die, freeze and hand over: every request is answered, and it heals by itself.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep, timeout};
use tower_stampede::{Cache, LinkHealth, RedisConfig, Target};

use crate::support::{
    cluster::Cluster,
    log::Log,
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{AMPLE, Handler, Worker, builder, cache, layer, settled, text, until},
};

/// What one request may be held up, on a machine under load.
const SHORTLY: Duration = Duration::from_secs(3);

/// With the budget that people have by default.
fn hasty(config: RedisConfig) -> Cache {
    Cache::builder().redis(config).build().unwrap()
}

/// Asks on, each time for something else, until `healed`; no answer ever fails or is late.
async fn asks_on(worker: &Worker, cache: &Cache, name: &str, healed: impl Fn() -> bool) {
    let asking = async {
        for at in 0_usize.. {
            let start = Instant::now();
            let answer = worker.get(&format!("/{name}/{at}")).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert!(start.elapsed() < SHORTLY, "{:?}", start.elapsed());
            settled(cache).await;
            if healed() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(2 * AMPLE, asking).await.expect("it heals");
}

fn size(cluster: &Cluster, node: usize) -> usize {
    let size = cluster.nodes[node].try_command::<usize>(&["DBSIZE"]);
    size.unwrap_or(0)
}

/// Fills all shards, so that everything is connected to.
async fn fill(worker: &Worker, cache: &Cache) {
    for at in 0..100 {
        worker.get(&format!("/before/{at}")).await;
    }
    settled(cache).await;
}

#[tokio::test]
async fn a_killed_master_is_followed_by_its_replica_and_no_request_fails() {
    let mut cluster = Cluster::with_replicas().await;
    let cache = hasty(cluster.config());
    let worker = Handler::open().worker(&layer(&cache), text);
    fill(&worker, &cache).await;
    let dead = format!("127.0.0.1:{}", cluster.nodes[0].port());

    cluster.expects_the_worst();
    cluster.nodes[0].kill();
    asks_on(&worker, &cache, "meanwhile", || cluster.leads(3)).await;
    let before = size(&cluster, 3);
    asks_on(&worker, &cache, "after", || size(&cluster, 3) > before).await;

    let leads_there = |link: &LinkHealth| link.node.as_ref() == Some(&dead);
    asks_on(&worker, &cache, "later", || {
        !cache.health().links.iter().any(leads_there)
    })
    .await;
}

#[tokio::test]
async fn an_ordered_failover_under_load_fails_no_request() {
    let cluster = Cluster::with_replicas().await;
    let cache = hasty(cluster.config());
    let worker = Handler::open().worker(&layer(&cache), text);
    fill(&worker, &cache).await;

    cluster.nodes[3].command::<()>(&["CLUSTER", "FAILOVER"]);
    asks_on(&worker, &cache, "meanwhile", || {
        cluster.leads(3) && !cluster.leads(0)
    })
    .await;
    let before = size(&cluster, 3);

    asks_on(&worker, &cache, "after", || size(&cluster, 3) > before).await;
}

#[tokio::test]
async fn a_frozen_master_costs_requests_their_budget_until_its_replica_takes_over() {
    let cluster = Cluster::with_replicas().await;
    let cache = hasty(cluster.config());
    let worker = Handler::open().worker(&layer(&cache), text);
    fill(&worker, &cache).await;

    cluster.expects_the_worst();
    cluster.nodes[0].pause();
    asks_on(&worker, &cache, "meanwhile", || cluster.leads(3)).await;
    let before = size(&cluster, 3);
    asks_on(&worker, &cache, "after", || size(&cluster, 3) > before).await;

    // Whoever wakes takes orders no more, and is nobody's master.
    cluster.nodes[0].resume();
    until(|| !cluster.leads(0)).await;
    let before = size(&cluster, 3);
    asks_on(&worker, &cache, "later", || size(&cluster, 3) > before).await;
}

#[tokio::test]
async fn parts_that_are_down_keep_no_other_part_from_being_shared() {
    let (log, _guard) = Log::start();
    let mut cluster = Cluster::start().await;
    // Long enough for a machine under load.
    let budget = Duration::from_secs(2);
    let cache = builder(cluster.config()).redis_budget(budget);
    let cache = cache.build().unwrap();
    let worker = Handler::open().worker(&layer(&cache), text);
    fill(&worker, &cache).await;
    // What is left answers for its own part.
    cluster.hopes_for_the_best();
    for dead in 0..2 {
        cluster.nodes[dead].kill();
    }
    let before = size(&cluster, 2);
    let start = Instant::now();

    for at in 0..150 {
        let answer = worker.get(&format!("/meanwhile/{at}")).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    settled(&cache).await;

    // 100 of them for the parts that are down, none of which waited for long.
    assert!(start.elapsed() < AMPLE, "{:?}", start.elapsed());
    let stored = size(&cluster, 2) - before;
    assert!(stored > 25, "{stored}");
    assert_eq!(log.lines("WARN", "opened"), [""; 0]);
}

#[tokio::test]
async fn a_service_that_starts_before_its_cluster_shares_once_it_is_there() {
    let (log, _guard) = Log::start();
    let cluster = Cluster::start().await;
    let seed = FaultProxy::start(cluster.nodes[0].port());
    seed.refuse();
    let cache = hasty(RedisConfig::cluster([seed.url()]));
    let worker = Handler::open().worker(&layer(&cache), text);
    for at in 0..10 {
        let answer = worker.get(&format!("/before/{at}")).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    assert_eq!(
        log.lines("WARN", "no node tells").len(),
        1,
        "{}",
        log.text()
    );

    seed.heal();

    let stored = || !cluster.keys("*:e*").is_empty();
    asks_on(&worker, &cache, "after", stored).await;
    assert_eq!(log.lines("INFO", "a node tells").len(), 1);
}

#[tokio::test]
async fn nodes_that_all_have_new_addresses_are_found_through_the_seeds() {
    let first = Cluster::start().await;
    let second = Cluster::start().await;
    let seed = FaultProxy::start(first.nodes[0].port());
    let other_seed = FaultProxy::start(second.nodes[0].port());
    other_seed.refuse();
    let cache = hasty(RedisConfig::cluster([seed.url(), other_seed.url()]));
    let worker = Handler::open().worker(&layer(&cache), text);
    fill(&worker, &cache).await;

    seed.refuse();
    other_seed.heal();
    drop(first);

    let stored = || !second.keys("*:e*").is_empty();
    asks_on(&worker, &cache, "after", stored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_cannot_reach_a_part_fails_and_reaches_the_others_and_may_be_repeated() {
    let mut cluster = Cluster::with_options(&["--cluster-require-full-coverage", "no"]).await;
    let handler = Handler::open();
    let caches = [cache(cluster.config()), cache(cluster.config())];
    let workers = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), text));
    let mut before = 0;
    for (worker, cache) in workers.iter().zip(&caches) {
        fill(worker, cache).await;
        before = handler.builds();
    }

    cluster.expects_the_worst();
    cluster.nodes[0].kill();
    let failed = caches[0].purge(Target::all()).await;
    assert!(failed.is_err(), "{failed:?}");

    fill(&workers[0], &caches[0]).await;
    assert_eq!(handler.builds(), 2 * before, "here all of it is purged");
    let held = cluster.nodes[1].command::<usize>(&["DBSIZE"]);
    assert!(held > 0);

    cluster.nodes[0].restart();
    let purges = async {
        loop {
            let purged = caches[0].purge(Target::all()).await;
            if purged.is_ok_and(|purged| purged.is_complete()) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(AMPLE, purges).await.expect("it heals");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_listens_to_another_node_when_its_own_is_gone() {
    let mut cluster = Cluster::with_replicas().await;
    let handler = Handler::open();
    let caches = [cache(cluster.config()), cache(cluster.config())];
    let workers = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), text));
    for (worker, cache) in workers.iter().zip(&caches) {
        fill(worker, cache).await;
    }
    let listens = |node: &RedisServer| node.try_command(&["PUBSUB", "NUMSUB", "stampede:events"]);
    let count = |node: &RedisServer| listens(node).map_or(0, |(_, count): (String, usize)| count);
    let heard = cluster.nodes.iter().position(|node| count(node) > 0);

    cluster.expects_the_worst();
    cluster.nodes[heard.unwrap()].kill();
    until(|| cluster.nodes.iter().map(count).sum::<usize>() == 2).await;

    let purges = async {
        loop {
            // Until the dead node is known to be dead, nobody knows how many listen to it.
            let purged = caches[0].purge(Target::all()).await;
            if purged.is_ok_and(|purged| purged.is_complete()) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(2 * AMPLE, purges).await.expect("it heals");
    let builds = handler.builds();
    fill(&workers[1], &caches[1]).await;
    assert_eq!(handler.builds(), builds + 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_many_have_heeded_a_purge_is_unknown_while_a_node_cannot_be_asked() {
    let cluster = Cluster::with_replicas().await;
    let cache = cache(cluster.config());
    let worker = Handler::open().worker(&layer(&cache), text);
    fill(&worker, &cache).await;
    until(|| cluster.is_listed(5)).await;

    cluster.nodes[5].pause();
    let purged = cache.purge(Target::all()).await.unwrap();

    assert_eq!(purged.processes, None);
    cluster.nodes[5].resume();
    let complete = async || cache.purge(Target::all()).await.unwrap().is_complete();
    let heals = async {
        while !complete().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(AMPLE, heals).await.expect("it heals");
}
