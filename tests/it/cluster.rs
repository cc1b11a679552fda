//! The cache on a Redis Cluster: entries, builds and purges are shared, wherever a slot lies.

use std::collections::HashSet;

use http::{HeaderValue, StatusCode, Uri};
use tower_stampede::{Cache, LinkHealth, LinkState, RedisConfig, Target};

use crate::{
    support::{
        cluster::Cluster,
        log::Log,
        redis::RedisServer,
        worker::{
            AMPLE, Handler, Incoming, Outgoing, Worker, builder, cache, layer, settled, text,
            until, waiting,
        },
    },
    topologies::{acl_rules, serves},
};

/// More than there are shards, so that several resources lie in most of them.
const PATHS: usize = 200;

/// Of one URI, and each a resource of its own.
fn paths() -> Vec<String> {
    (0..PATHS).map(|at| format!("/page?at={at}")).collect()
}

/// What reaches all of them.
fn targets() -> [Target; 3] {
    let uri = Uri::from_static("http://shop.example/page");
    [Target::uri(&uri), Target::tag("catalogue"), Target::all()]
}

fn tagged(build: usize, request: &Incoming) -> Outgoing {
    let mut response = text(build, request);
    let tag = HeaderValue::from_static("catalogue");
    response.headers_mut().insert("cache-tag", tag);
    response
}

fn fleet(config: &RedisConfig, handler: &Handler, count: usize) -> (Vec<Cache>, Vec<Worker>) {
    let caches: Vec<_> = (0..count).map(|_| cache(config.clone())).collect();
    let workers = caches
        .iter()
        .map(|cache| handler.worker(&layer(cache), tagged))
        .collect();
    (caches, workers)
}

async fn read_all(worker: &Worker, cache: &Cache) -> Vec<String> {
    let mut bodies = Vec::new();
    for path in paths() {
        bodies.push(worker.get(&path).await.text().to_owned());
    }
    settled(cache).await;
    bodies
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_serves_the_cache_and_the_locks() {
    let cluster = Cluster::start().await;

    serves(&cluster.config()).await;

    // One node is enough to find the others.
    let url = cluster.nodes[1].url();
    cluster.everywhere::<()>(&["FLUSHALL"]);
    serves(&RedisConfig::cluster([url])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_ask_at_the_same_time_share_one_build() {
    let cluster = Cluster::start().await;
    let handler = Handler::held();
    let (caches, workers) = fleet(&cluster.config(), &handler, 2);

    let herd = workers[0]
        .herd("/report", 50)
        .and(workers[1].herd("/report", 50));
    waiting(&caches, 100).await;
    handler.let_go();

    for answer in herd.answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    assert_eq!(handler.builds(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_lie_evenly_on_all_masters_and_are_everybodys() {
    let cluster = Cluster::start().await;
    let handler = Handler::open();
    let (caches, workers) = fleet(&cluster.config(), &handler, 2);

    let built = read_all(&workers[0], &caches[0]).await;
    let read = read_all(&workers[1], &caches[1]).await;

    assert_eq!(built, read);
    assert_eq!(handler.builds(), PATHS);
    for node in &cluster.nodes {
        let entries: Vec<String> = node.command(&["KEYS", "stampede:*:e*"]);
        assert!(
            (PATHS / 5..PATHS / 2).contains(&entries.len()),
            "{entries:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_build_is_two_round_trips_and_a_shared_hit_is_one() {
    let cluster = Cluster::start().await;
    let handler = Handler::open();
    let (caches, workers) = fleet(&cluster.config(), &handler, 2);
    // Everywhere connected to and every script known.
    for (worker, cache) in workers.iter().zip(&caches) {
        read_all(worker, cache).await;
    }
    let trips = || cluster.count("evalsha") + cluster.count("eval");

    cluster.reset_counts();
    workers[0].get("/cold").await;
    settled(&caches[0]).await;
    assert_eq!(trips(), 2);

    cluster.reset_counts();
    workers[1].get("/cold").await;
    settled(&caches[1]).await;
    assert_eq!(trips(), 1);
    assert_eq!(cluster.count("script|load"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_reaches_all_shards_and_every_process_and_says_how_many_heeded_it() {
    let cluster = Cluster::with_replicas().await;
    let handler = Handler::open();
    // Each listens to a master of its own choice.
    let (caches, workers) = fleet(&cluster.config(), &handler, 4);
    let mut builds = 0;
    for target in targets() {
        for (worker, cache) in workers.iter().zip(&caches) {
            read_all(worker, cache).await;
        }
        builds += PATHS;
        assert_eq!(handler.builds(), builds, "before {target:?}");

        let purged = caches[0].purge(target).await.unwrap();

        assert!(purged.is_complete(), "{purged:?}");
        assert_eq!(purged.processes, Some(4));
    }
    read_all(&workers[3], &caches[3]).await;
    assert_eq!(handler.builds(), builds + PATHS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_purge_makes_stale_in_all_shards() {
    let cluster = Cluster::start().await;
    let handler = Handler::open();
    let patient = || builder(cluster.config()).max_refreshes(PATHS).build();
    let caches = [patient().unwrap(), patient().unwrap()];
    let workers = caches.each_ref().map(|cache| {
        let layer = layer(cache).stale_while_revalidate(AMPLE);
        handler.worker(&layer, tagged)
    });
    let mut before = Vec::new();
    for (worker, cache) in workers.iter().zip(&caches) {
        before = read_all(worker, cache).await;
    }

    caches[0]
        .soft_purge(Target::tag("catalogue"))
        .await
        .unwrap();

    assert_eq!(read_all(&workers[1], &caches[1]).await, before);
    assert_eq!(handler.builds(), 2 * PATHS, "each was refreshed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_fences_the_builds_under_way_in_all_shards() {
    let cluster = Cluster::start().await;
    let handler = Handler::held();
    let (caches, workers) = fleet(&cluster.config(), &handler, 2);
    let under_way: Vec<_> = paths()
        .iter()
        .map(|path| workers[0].herd(path, 1))
        .collect();
    handler.has_begun(PATHS).await;

    caches[1].purge(Target::tag("catalogue")).await.unwrap();
    handler.let_go();
    for herd in under_way {
        assert_eq!(herd.answers().await[0].status, StatusCode::OK);
    }
    settled(&caches[0]).await;

    assert_eq!(cluster.keys("stampede:*:e*"), [""; 0]);
    read_all(&workers[1], &caches[1]).await;
    assert_eq!(handler.builds(), 2 * PATHS);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_namespaces_do_not_meet() {
    let cluster = Cluster::start().await;
    let handler = Handler::open();
    let caches = ["shop", "blog"].map(|name| {
        let builder = builder(cluster.config()).namespace(name);
        builder.build().unwrap()
    });
    let workers = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), tagged));
    for (worker, cache) in workers.iter().zip(&caches) {
        read_all(worker, cache).await;
    }
    assert_eq!(handler.builds(), 2 * PATHS);

    caches[0].purge(Target::all()).await.unwrap();

    read_all(&workers[1], &caches[1]).await;
    assert_eq!(handler.builds(), 2 * PATHS);
    let keys = |name: &str| cluster.keys(&format!("{name}:*:e*")).len();
    assert_eq!((keys("shop"), keys("blog")), (PATHS, PATHS));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_names_the_node_of_each_link() {
    let cluster = Cluster::start().await;
    let (caches, workers) = fleet(&cluster.config(), &Handler::open(), 1);
    let before = caches[0].health();
    assert!(before.links.iter().all(|link| link.node.is_none()));

    read_all(&workers[0], &caches[0]).await;

    let nodes: HashSet<_> = cluster
        .nodes
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.port()))
        .collect();
    let health = caches[0].health();
    for name in ["claims", "fills", "leases"] {
        let links = health.links.iter().filter(|link| link.name == name);
        let named: HashSet<_> = links
            .map(|link| {
                assert_eq!(link.state, LinkState::Connected);
                link.node.clone().unwrap()
            })
            .collect();
        // Leases are given back over their links, and nobody has done so.
        assert!(named == nodes || name == "leases", "{name}: {named:?}");
    }
    let events = health.links.last().unwrap();
    assert_eq!(events.name, "events");
    assert!(nodes.contains(events.node.as_ref().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_needs_no_more_than_the_keys_channels_and_commands_in_the_docs() {
    let cluster = Cluster::start().await;
    let rules = acl_rules();
    let words: Vec<_> = ["ACL", "SETUSER", "worker", "reset", "on", ">p@ss/w:rd"]
        .into_iter()
        .chain(rules.split_whitespace())
        .collect();
    cluster.everywhere::<()>(&words);
    let config = cluster.config().user("worker").password("p@ss/w:rd");

    serves(&config).await;

    for refused in cluster.everywhere::<redis::Value>(&["ACL", "LOG"]) {
        assert_eq!(refused, redis::Value::Array(Vec::new()));
    }
}

#[tokio::test]
async fn what_is_no_cluster_is_told_and_the_requests_go_on() {
    let (log, _guard) = Log::start();
    let server = RedisServer::start();
    let cache = cache(RedisConfig::cluster([server.url()]));
    let worker = Handler::open().worker(&layer(&cache), text);

    assert_eq!(worker.get("/report").await.text(), "build 1");
    assert_eq!(worker.get("/report").await.text(), "build 1");

    let told = "no node tells of the Cluster";
    until(|| !log.lines("WARN", told).is_empty()).await;
    let line = log.lines("WARN", told).remove(0);
    assert!(line.contains("cluster support disabled"), "{line}");
    let broken = |link: &LinkHealth| link.last_error.is_some();
    assert!(cache.health().links.iter().any(broken));
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn every_node_is_spoken_to_through_tls() {
    let authority = crate::support::tls::Authority::new();
    let cluster = Cluster::with_tls(&authority).await;
    // One of them: the others are found at the ports for TLS.
    let config = RedisConfig::cluster(cluster.tls_urls().into_iter().take(1));
    cluster.everywhere::<()>(&["CONFIG", "RESETSTAT"]);

    serves(&config.tls_ca(authority.file())).await;

    assert!(cluster.count("evalsha") > 0);
}
