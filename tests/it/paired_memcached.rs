//! The store on a real Memcached, by itself.

use std::time::Duration;

use tokio::time::Instant;
use tower_stampede::store::{
    Condition, ErrorKind, MemcachedStore, Read, Store as _, Version, Write, Written,
};

use crate::support::{memcached::MemcachedServer, worker::AMPLE};

const LIFE: Duration = Duration::from_secs(60);

fn store(server: &MemcachedServer) -> MemcachedStore {
    let store = MemcachedStore::new(&server.address()).unwrap();
    store.timeout(AMPLE)
}

async fn stored(store: &MemcachedStore, write: Write) -> Version {
    match store.put(&write).await.unwrap() {
        Written::Stored(version) => version,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn conditions_hold_for_the_record_that_is_there() {
    let server = MemcachedServer::start();
    let store = store(&server);
    let write = |value: &'static str, condition| Write::new("key", value, LIFE).only_if(condition);

    let nothing = Condition::Unchanged(Version::new(1));
    assert_eq!(
        store.put(&write("a", nothing)).await.unwrap(),
        Written::Refused
    );
    let first = stored(&store, write("b", Condition::Absent)).await;
    let taken = store.put(&write("c", Condition::Absent)).await.unwrap();
    assert_eq!(taken, Written::Refused);
    let second = stored(&store, write("d", Condition::Unchanged(first))).await;
    let late = store.put(&write("e", Condition::Unchanged(first))).await;
    assert_eq!(late.unwrap(), Written::Refused);
    let found = store.get(&[Read::new("key")]).await.unwrap();

    let found = found[0].as_ref().unwrap();
    assert_eq!(found.value().unwrap(), "d");
    assert_eq!(found.version(), second);
    assert!(found.left() < LIFE && found.left() > LIFE / 2, "{found:?}");

    store.remove("key").await.unwrap();
    store.remove("key").await.unwrap();
    assert_eq!(store.get(&[Read::new("key")]).await.unwrap(), [None]);
}

#[tokio::test]
async fn records_come_in_the_order_they_are_asked_for_and_unchanged_ones_without_their_values() {
    let server = MemcachedServer::start();
    let store = store(&server);
    let one = stored(&store, Write::new("one", "1", LIFE)).await;
    let two = stored(&store, Write::new("two", "22", LIFE)).await;
    stored(&store, Write::new("empty", "", LIFE)).await;

    let reads = [
        Read::new("two").unless(two),
        Read::new("none"),
        Read::new("empty"),
        Read::new("one").unless(two),
        Read::new("nothing").unless(one),
    ];
    let found = store.get(&reads).await.unwrap();

    let value = |at: usize| found[at].as_ref().unwrap().value().cloned();
    assert_eq!(value(0), None);
    assert_eq!((found[1].as_ref(), found[4].as_ref()), (None, None));
    assert_eq!(value(2), Some("".into()));
    assert_eq!(value(3), Some("1".into()), "it is another version");
    assert!(store.get(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_us_or_by_the_server_and_nothing_is_left_of_it() {
    let server = MemcachedServer::start();
    let polite = store(&server);
    let blunt = store(&server).max_value(usize::MAX);
    let write = |size: usize| Write::new("key", vec![b'x'; size], LIFE);

    stored(&polite, write(1_000_000)).await;
    for store in [&polite, &blunt] {
        let large = store.put(&write(1_100_000)).await.unwrap();
        assert_eq!(large, Written::TooLarge);
    }

    // The connection is as good as before.
    stored(&blunt, write(10)).await;
    let server = MemcachedServer::with_options(&["-I", "2m"]);
    let roomy = store(&server).max_value(2 * 1024 * 1024 - 1024);
    stored(&roomy, write(1_900_000)).await;
    let found = roomy.get(&[Read::new("key")]).await.unwrap();
    assert_eq!(found[0].as_ref().unwrap().value().unwrap().len(), 1_900_000);
}

#[tokio::test]
async fn a_full_server_is_no_outage() {
    let server = MemcachedServer::with_options(&["-M", "-m", "4"]);
    let store = store(&server);
    let mut number = 0;
    let error = loop {
        number += 1;
        let write = Write::new(format!("key-{number}"), vec![b'x'; 900_000], LIFE);
        if let Err(error) = store.put(&write).await {
            break error;
        }
        assert!(number < 100, "it has 4 MB");
    };

    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert_eq!(error.to_string(), "the store refused it");
}

#[tokio::test]
async fn a_server_that_is_gone_fails_at_once_and_is_found_again_when_it_is_back() {
    let mut server = MemcachedServer::start();
    let store = store(&server);
    stored(&store, Write::new("key", "value", LIFE)).await;

    server.kill();
    let lost = store.get(&[Read::new("key")]).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::OutcomeUnknown);
    let refused = store.get(&[Read::new("key")]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    server.restart();

    assert_eq!(store.get(&[Read::new("key")]).await.unwrap(), [None]);
}

#[tokio::test]
async fn a_server_that_stands_still_costs_the_timeout_and_its_late_answers_are_nobody_s() {
    let server = MemcachedServer::start();
    let timeout = Duration::from_millis(100);
    let store = store(&server).timeout(timeout).connections(2);
    stored(&store, Write::new("a", "of a", LIFE)).await;

    server.pause();
    let asked = Instant::now();
    let error = store.get(&[Read::new("a")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert!(asked.elapsed() < AMPLE / 2, "{:?}", asked.elapsed());
    let (one, other, third) = (Read::new("a"), Read::new("b"), Read::new("c"));
    let (one, other, third) = tokio::join!(
        store.get(std::slice::from_ref(&one)),
        store.get(std::slice::from_ref(&other)),
        store.get(std::slice::from_ref(&third)),
    );
    assert!(one.is_err() && other.is_err() && third.is_err());
    server.resume();

    let store = store.timeout(AMPLE);
    let found = store.get(&[Read::new("b"), Read::new("a")]).await.unwrap();
    assert_eq!(found[0], None);
    assert_eq!(found[1].as_ref().unwrap().value().unwrap(), "of a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_shares_a_few_connections() {
    let server = MemcachedServer::start();
    let store = std::sync::Arc::new(store(&server).connections(4));
    let before = server.figure("total_connections");
    let mut crowd = Vec::new();
    for number in 0..500 {
        let store = std::sync::Arc::clone(&store);
        crowd.push(tokio::spawn(async move {
            let key = format!("key-{number}");
            let value = number.to_string();
            stored(&store, Write::new(key.as_str(), value.clone(), LIFE)).await;
            let found = store.get(&[Read::new(key)]).await.unwrap();
            assert_eq!(found[0].as_ref().unwrap().value().unwrap(), &value);
        }));
    }
    for member in crowd {
        member.await.unwrap();
    }

    let opened = server.figure("total_connections") - before;
    // One of them asks for the figure.
    assert!(opened <= 5, "{opened}");
}

#[tokio::test]
async fn an_operation_that_is_dropped_half_way_takes_its_connection_with_it() {
    let server = MemcachedServer::start();
    let store = store(&server).connections(1);
    stored(&store, Write::new("a", "of a", LIFE)).await;
    server.pause();
    let reads = [Read::new("a")];
    let dropped = tokio::time::timeout(Duration::from_millis(50), store.get(&reads)).await;
    assert!(dropped.is_err());
    server.resume();

    assert_eq!(store.get(&[Read::new("b")]).await.unwrap(), [None]);
}

#[tokio::test]
async fn a_server_is_reached_through_a_unix_socket() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("memcached.sock");
    let mut server = std::process::Command::new("memcached")
        .args(["-u", "root", "-s"])
        .arg(&path)
        .spawn()
        .unwrap();
    crate::support::worker::until(|| path.exists()).await;
    let store = MemcachedStore::new(&format!("unix://{}", path.display())).unwrap();

    let write = Write::new("key", "value", LIFE);
    let written = async {
        while store.put(&write).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AMPLE, written).await.unwrap();
    let found = store.get(&[Read::new("key")]).await.unwrap();

    assert_eq!(found[0].as_ref().unwrap().value().unwrap(), "value");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[tokio::test]
async fn however_long_an_operation_may_take_it_is_answered() {
    let server = MemcachedServer::start();
    let store = MemcachedStore::new(&server.address()).unwrap();
    let patient = store.timeout(Duration::MAX);

    let version = stored(&patient, Write::new("key", "value", LIFE)).await;

    let found = patient.get(&[Read::new("key")]).await.unwrap();
    assert_eq!(found[0].as_ref().unwrap().version(), version);
}
