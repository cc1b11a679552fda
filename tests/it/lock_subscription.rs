//! What a bad network does to the one subscription of a process.
#![cfg(feature = "redis")]

use std::time::Duration;

use tower_stampede::lock::{ErrorKind, LockManager, Released};

use crate::{
    lock_ground::{MINUTE, eventually, is_busy, ms, spawn, take},
    support::{proxy::FaultProxy, redis::RedisServer},
};

fn locks(url: &str) -> LockManager {
    LockManager::redis(url).unwrap()
}

#[tokio::test]
async fn an_idle_subscription_is_kept_alive_and_a_message_in_pieces_wakes() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let (far, near) = (locks(&proxy.url()), locks(&server.url()));
    let guard = take(&near.lock("job")).await;
    let waiting = spawn({
        let request = far.lock("job").wait(MINUTE);
        async move { request.acquire().await.map(drop) }
    });
    let listeners = || -> Vec<String> {
        let list: String = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.lines().map(str::to_owned).collect()
    };
    let id = |line: &str| line.split(' ').next().unwrap().to_owned();
    eventually(async || listeners().len() == 1).await;
    let before = id(&listeners()[0]);

    eventually(async || listeners().iter().any(|line| line.contains("cmd=ping"))).await;
    let connections = proxy.counts().accepted;
    proxy.split_next_reply(7, ms(150));
    assert_eq!(guard.release().await.unwrap(), Released::Released);

    assert!(waiting.await.unwrap().is_ok());
    assert_eq!(
        proxy.counts().accepted,
        connections,
        "nothing was connected anew"
    );
    assert!(listeners().is_empty() || id(&listeners()[0]) == before);
}

#[tokio::test]
async fn a_message_that_stands_still_half_way_costs_the_subscription_and_not_the_waiter() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let (far, near) = (locks(&proxy.url()), locks(&server.url()));
    let guard = take(&near.lock("job")).await;
    let waiting = spawn({
        let request = far.lock("job").wait(MINUTE);
        async move { request.acquire().await.map(drop) }
    });
    eventually(async || server.clients("pubsub") == 1).await;

    proxy.split_next_reply(7, Duration::from_secs(30));
    assert_eq!(guard.release().await.unwrap(), Released::Released);

    let woken = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert!(woken.unwrap().unwrap().is_ok());
}

#[tokio::test]
async fn a_subscribe_that_is_stuck_keeps_neither_other_waits_nor_the_end_waiting() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let (far, near) = (locks(&proxy.url()), locks(&server.url()));
    take(&near.lock("job")).await.keep();
    assert!(!is_busy(&far.lock("warm")).await);
    proxy.delay(ms(200));
    let wait = |name: &str| {
        let request = far.lock(name).wait(MINUTE);
        spawn(async move { request.acquire().await.map(drop) })
    };

    let stuck = wait("job");
    tokio::time::sleep(ms(20)).await;
    let others: Vec<_> = (0..10).map(|number| wait(&number.to_string())).collect();
    proxy.heal();
    for other in others {
        let came_in = tokio::time::timeout(Duration::from_secs(2), other).await;
        assert!(came_in.unwrap().unwrap().is_ok());
    }
    far.close();

    let ended = tokio::time::timeout(Duration::from_secs(1), stuck).await;
    assert_eq!(
        ended.unwrap().unwrap().unwrap_err().kind(),
        ErrorKind::Closed
    );
}
