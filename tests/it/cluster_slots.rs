//! Slots that move from node to node under the cache and the locks.

use std::time::Duration;

use tower_stampede::lock::{LockManager, Released};

use crate::{
    lock_ground::take,
    support::{
        cluster::Cluster,
        log::Log,
        worker::{AMPLE, Handler, builder, cache, layer, settled, text, until, waiting},
    },
    topologies::locks,
};

/// How often the nodes have refused something with `code`.
fn refusals(cluster: &Cluster, code: &str) -> u64 {
    let name = format!("errorstat_{code}:count=");
    let of_node = |stats: &String| {
        let mut lines = stats.lines();
        let count = lines.find_map(|line| line.strip_prefix(&name));
        count.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    let stats = cluster.everywhere::<String>(&["INFO", "errorstats"]);
    stats.iter().map(of_node).sum()
}

/// The one key that matches, its slot, who holds it, and another node.
fn whereabouts(cluster: &Cluster, pattern: &str) -> (u16, usize, usize) {
    let keys = cluster.keys(pattern);
    assert_eq!(keys.len(), 1, "{keys:?}");
    let from = cluster.owner(&keys[0]);
    (cluster.slot(&keys[0]), from, (from + 1) % 3)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moved_is_followed_once_and_its_entries_are_there() {
    // Nobody who listens to the slot is told of it before a request is.
    let cluster = Cluster::with_options(&["--rename-command", "SSUBSCRIBE", "OLD"]).await;
    let handler = Handler::open();
    let caches = [cache(cluster.config()), cache(cluster.config())];
    let [one, other] = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), text));
    assert_eq!(one.get("/report").await.text(), "build 1");
    settled(&caches[0]).await;
    let (slot, from, to) = whereabouts(&cluster, "*:e*");
    // Both know where everything lies, or rather lay.
    other.get("/other").await;
    settled(&caches[1]).await;
    cluster.reshard(slot, from, to);
    cluster.reset_counts();

    assert_eq!(other.get("/report").await.text(), "build 1");
    assert_eq!(refusals(&cluster, "MOVED"), 1);

    caches[0]
        .purge(tower_stampede::Target::all())
        .await
        .unwrap();
    cluster.reset_counts();
    assert_eq!(other.get("/report").await.text(), "build 3");
    settled(&caches[1]).await;
    assert_eq!(one.get("/report").await.text(), "build 3");
    assert_eq!(refusals(&cluster, "MOVED"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_waits_for_a_build_gets_it_though_its_slot_moves_meanwhile() {
    let cluster = Cluster::start().await;
    let handler = Handler::held();
    let caches = [cache(cluster.config()), cache(cluster.config())];
    let [one, other] = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), text));
    let built = one.herd("/report", 1);
    handler.has_begun(1).await;
    let waits = other.herd("/report", 5);
    waiting(&caches, 6).await;
    let (slot, from, to) = whereabouts(&cluster, "*:l");

    cluster.begin_to_move(slot, from, to);
    // It asks while some of what it asks for is here, and nothing there.
    until(|| refusals(&cluster, "TRYAGAIN") > 0).await;
    cluster.move_keys(slot, from, to);
    cluster.end_move(slot, to);
    handler.let_go();

    for answer in built.and(waits).answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    settled(&caches[0]).await;
    assert_eq!(handler.builds(), 1);
    let entries = cluster.keys("*:e*");
    assert_eq!(cluster.owner(&entries[0]), to);
}

#[tokio::test]
async fn slots_on_their_way_keep_no_other_slots_from_being_shared() {
    let (log, _guard) = Log::start();
    let cluster = Cluster::start().await;
    // Long enough for a machine under load.
    let budget = Duration::from_secs(2);
    let cache = builder(cluster.config()).redis_budget(budget);
    let cache = cache.build().unwrap();
    let worker = Handler::open().worker(&layer(&cache), text);
    let ask = async |round: usize| {
        let mut herds = Vec::new();
        for at in 0..200 {
            herds.push(worker.herd(&format!("/{round}/{at}"), 1));
        }
        for herd in herds {
            herd.answers().await;
        }
        settled(&cache).await;
    };
    ask(0).await;
    // Two thirds of all shards.
    for tags in cluster.keys("*:tags") {
        let (slot, owner) = (cluster.slot(&tags), cluster.owner(&tags));
        if owner < 2 {
            cluster.begin_to_move(slot, owner, owner + 1);
        }
    }
    let stored = || {
        cluster.nodes[2]
            .command::<Vec<String>>(&["KEYS", "*:e*"])
            .len()
    };

    ask(1).await;
    assert!(refusals(&cluster, "TRYAGAIN") > 50, "{}", log.text());
    let before = stored();
    ask(2).await;

    assert_eq!(log.lines("WARN", "opened"), [""; 0], "{}", log.text());
    assert!(stored() >= before + 40, "{before}, then {}", stored());
}

#[tokio::test]
async fn a_slot_on_its_way_is_asked_for_at_its_new_node_which_learns_the_script() {
    let cluster = Cluster::start().await;
    let locks = locks(&cluster.config());
    let guard = take(&locks.lock("job")).await;
    let key = guard.keys().next().unwrap().to_owned();
    let (slot, from, to) = (cluster.slot(&key), cluster.owner(&key), 0);
    let to = if from == to { 1 } else { to };
    cluster.begin_to_move(slot, from, to);
    cluster.move_keys(slot, from, to);
    cluster.reset_counts();

    assert!(locks.lock("job").is_held().await.unwrap());
    assert_eq!(guard.release().await.unwrap(), Released::Released);

    assert!(refusals(&cluster, "ASK") >= 2);
    assert!(
        refusals(&cluster, "NOSCRIPT") >= 2,
        "nobody knew the scripts"
    );
    assert_eq!(cluster.nodes[to].command::<usize>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn a_lock_whose_slot_is_on_its_way_is_acquired_once_it_has_arrived() {
    let cluster = Cluster::start().await;
    let locks = locks(&cluster.config());
    let guard = take(&locks.lock("job")).await;
    let key = guard.keys().next().unwrap().to_owned();
    let (slot, from) = (cluster.slot(&key), cluster.owner(&key));
    let to = (from + 1) % 3;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    cluster.begin_to_move(slot, from, to);

    let lock = locks.lock("job");
    let acquiring = tokio::spawn(async move { lock.try_acquire().await });
    until(|| refusals(&cluster, "TRYAGAIN") > 1).await;
    cluster.end_move(slot, to);

    let guard = acquiring.await.unwrap().unwrap().guard().unwrap();
    assert_eq!(cluster.nodes[to].command::<usize>(&["EXISTS", &key]), 1);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_lock_whose_slot_never_arrives_is_refused_within_the_time_of_a_command() {
    let cluster = Cluster::start().await;
    let locks = LockManager::builder()
        .redis(cluster.config())
        .build()
        .unwrap();
    let guard = take(&locks.lock("job")).await;
    let key = guard.keys().next().unwrap().to_owned();
    let (slot, from) = (cluster.slot(&key), cluster.owner(&key));
    cluster.begin_to_move(slot, from, (from + 1) % 3);

    let start = tokio::time::Instant::now();
    let refused = locks.lock("job").try_acquire().await.unwrap_err();

    assert_eq!(refused.code(), Some("TRYAGAIN"));
    assert!(start.elapsed() < Duration::from_secs(3));
    // A wait goes on, until its own end.
    let wait = locks.lock("job").wait(AMPLE);
    let waiting = tokio::spawn(async move { wait.acquire().await.map(drop) });
    cluster.move_keys(slot, from, (from + 1) % 3);
    cluster.end_move(slot, (from + 1) % 3);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    waiting.await.unwrap().unwrap();
}
