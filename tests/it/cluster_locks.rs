//! Locks on a Redis Cluster: each goes to the node of its key, and they exclude as they do on one server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::task::JoinSet;
use tower_stampede::lock::{ErrorKind, LockManager, Naming, Released};

use crate::{
    lock_ground::{MINUTE, is_busy, take},
    support::{
        cluster::Cluster,
        worker::{AMPLE, until},
    },
    topologies::locks,
};

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_exclude_each_other_wherever_the_locks_lie() {
    let cluster = Cluster::start().await;
    let managers = [locks(&cluster.config()), locks(&cluster.config())];
    let (inside, runs) = (
        Arc::<[AtomicUsize; 6]>::default(),
        Arc::<AtomicUsize>::default(),
    );
    let mut tasks = JoinSet::new();
    for at in 0..60 {
        let lock = managers[at % 2]
            .lock(format!("job {}", at % 6))
            .wait(MINUTE);
        let (inside, runs) = (Arc::clone(&inside), Arc::clone(&runs));
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            assert_eq!(inside[at % 6].fetch_add(1, SeqCst), 0, "alone");
            tokio::task::yield_now().await;
            inside[at % 6].fetch_sub(1, SeqCst);
            runs.fetch_add(1, SeqCst);
            assert_eq!(guard.release().await.unwrap(), Released::Released);
        });
    }

    tasks.join_all().await;

    assert_eq!(runs.load(SeqCst), 60);
    let busy = cluster
        .nodes
        .iter()
        .filter(|node| node.count("evalsha") > 0);
    assert!(busy.count() >= 2, "the locks lie on several nodes");
}

#[tokio::test]
async fn a_release_wakes_a_waiter_whatever_node_it_listens_to() {
    let cluster = Cluster::with_replicas().await;
    // Six managers, each of which listens to some node.
    let managers: Vec<_> = (0..6).map(|_| locks(&cluster.config())).collect();
    let mut guard = take(&managers[0].lock("job")).await;
    for manager in &managers {
        let wait = manager.lock("job").wait(MINUTE);
        let waiting = tokio::spawn(async move { wait.acquire().await });
        let subscribed = |channels: &Vec<String>| !channels.is_empty();
        until(|| {
            let channels = cluster.everywhere(&["PUBSUB", "CHANNELS"]);
            channels.iter().any(subscribed)
        })
        .await;
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        guard = waiting.await.unwrap().unwrap();
    }
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn keys_of_several_slots_are_refused_and_those_of_one_are_taken_together() {
    let cluster = Cluster::start().await;
    let refused = locks(&cluster.config())
        .lock_all(["a", "b"])
        .try_acquire()
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::CrossSlot);

    let together = LockManager::builder()
        .redis(cluster.config())
        .naming(Naming::OneSlot)
        .command_timeout(AMPLE)
        .build()
        .unwrap();
    let guard = together.lock_all(["a", "b"]).acquire().await.unwrap();
    assert!(is_busy(&together.lock("b")).await);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_lock_is_extended_and_released_where_its_slot_has_moved_to() {
    let cluster = Cluster::start().await;
    let [here, there] = [locks(&cluster.config()), locks(&cluster.config())];
    let guard = take(&here.lock("job")).await;
    let key = guard.keys().next().unwrap().to_owned();
    let (slot, from) = (cluster.slot(&key), cluster.owner(&key));
    let to = (from + 1) % 3;

    cluster.reshard(slot, from, to);

    assert!(is_busy(&there.lock("job")).await);
    guard.extend(MINUTE).await.unwrap();
    let left: u64 = cluster.nodes[to].command(&["PTTL", &key]);
    assert!((50_000..=60_000).contains(&left), "{left}");
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(take(&there.lock("job")).await);
}

#[tokio::test]
async fn readers_and_writers_exclude_each_other() {
    let cluster = Cluster::start().await;
    let [here, there] = [locks(&cluster.config()), locks(&cluster.config())];

    let one = here.read("page").acquire().await.unwrap();
    let other = there.read("page").acquire().await.unwrap();
    assert!(is_busy(&there.write("page")).await);
    for guard in [one, other] {
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }

    let guard = there.write("page").acquire().await.unwrap();
    assert!(is_busy(&here.read("page")).await);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn waiters_come_in_after_the_master_of_their_lock_was_killed() {
    let mut cluster = Cluster::with_replicas().await;
    let patient = locks(&cluster.config());
    let held = patient
        .lock("job")
        .ttl(Duration::from_secs(20))
        .acquire()
        .await
        .unwrap();
    let key = held.keys().next().unwrap().to_owned();
    let master = cluster.owner(&key);
    // Its replica has it too.
    cluster.nodes[master].command::<()>(&["WAIT", "1", "10000"]);
    let elsewhere = LockManager::builder()
        .redis(cluster.config())
        .build()
        .unwrap();
    let wait = elsewhere.lock("job").wait(MINUTE);
    let waiting = tokio::spawn(async move { wait.acquire().await });
    until(|| cluster.nodes.iter().any(|node| node.clients("pubsub") > 0)).await;

    cluster.expects_the_worst();
    cluster.nodes[master].kill();
    until(|| cluster.leads(master + 3)).await;

    // Nothing was written meanwhile: the replica has what the master had.
    until(|| cluster.nodes[master + 3].command::<usize>(&["EXISTS", &key]) == 1).await;
    while patient.lock("job").force_release().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(held);
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_failover_while_locks_are_taken_and_released_makes_no_two_holders() {
    let cluster = Cluster::with_replicas().await;
    let managers = [locks(&cluster.config()), locks(&cluster.config())];
    let (inside, runs) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let guard = take(&managers[0].lock("job")).await;
    let master = cluster.owner(guard.keys().next().unwrap());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let mut tasks = JoinSet::new();
    for at in 0..8 {
        let lock = managers[at % 2].lock("job").wait(MINUTE);
        let (inside, runs) = (Arc::clone(&inside), Arc::clone(&runs));
        tasks.spawn(async move {
            loop {
                let guard = lock.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "alone");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, SeqCst);
                runs.fetch_add(1, SeqCst);
                assert_eq!(guard.release().await.unwrap(), Released::Released);
            }
        });
    }
    let (before, done) = (20, |count| runs.load(SeqCst) >= count);
    until(|| done(before)).await;

    cluster.nodes[master + 3].command::<()>(&["CLUSTER", "FAILOVER"]);
    until(|| cluster.leads(master + 3) && !cluster.leads(master)).await;
    let after = runs.load(SeqCst) + 50;
    until(|| done(after) || tasks.is_empty()).await;

    tasks.abort_all();
    while let Some(ended) = tasks.join_next().await {
        assert!(ended.unwrap_err().is_cancelled());
    }
}
