use std::{sync::mpsc, thread};

use tokio::runtime::{Builder, Runtime};

use super::*;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_link_outlives_the_runtime_it_was_first_used_on() {
    let server = RedisServer::start();
    let link = link(&server.client());

    for _ in 0..3 {
        runtime().block_on(async { read(&link).await }).unwrap();
    }
}

#[test]
fn a_link_dropped_after_its_runtime_is_no_trouble() {
    let server = RedisServer::start();
    let link = link(&server.client());
    runtime().block_on(async { read(&link).await }).unwrap();

    drop(link);
}

#[test]
fn a_supervisor_lost_in_mid_outage_is_replaced_by_the_next_command() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    proxy.refuse();
    let link = link(&proxy.client());
    runtime().block_on(async { read(&link).await }).unwrap_err();
    proxy.heal();

    runtime().block_on(async { read(&link).await }).unwrap();
}

#[test]
fn two_runtimes_share_one_connection() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let link = link(&proxy.client());
    let (done, wait) = mpsc::channel::<()>();
    let (connected, first) = mpsc::channel();

    let driver = thread::spawn({
        let link = link.clone();
        move || {
            runtime().block_on(async {
                read(&link).await.unwrap();
                connected.send(()).unwrap();
                // Driven until the other is done.
                tokio::task::spawn_blocking(move || wait.recv())
                    .await
                    .unwrap()
            })
        }
    });
    first.recv().unwrap();
    runtime().block_on(async { read(&link).await }).unwrap();
    drop(done);
    driver.join().unwrap().unwrap_err();

    assert_eq!(proxy.counts().accepted, 1);
}

#[test]
fn a_runtime_that_stands_still_does_not_hold_the_link_for_ever() {
    let server = RedisServer::start();
    let link = Link::new(&server.client(), hasty());
    let still = runtime();
    still.block_on(async { heals(&link).await });

    runtime().block_on(async {
        timeout(AMPLE, async {
            while read(&link).await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("another supervisor takes over");
    });
    drop(still);
}

#[tokio::test]
async fn the_connection_closes_with_the_last_link() {
    let server = RedisServer::start();
    let link = link(&server.client());
    let clone = link.clone();
    read(&link).await.unwrap();
    drop(link);
    read(&clone).await.unwrap();

    drop(clone);

    eventually(|| server.clients("normal") == 0).await;
}
