//! The plain lock on the wire, as other implementations write and read it.
#![cfg(feature = "redis")]

use std::time::Duration;

use tower_stampede::lock::{Released, Token};

use crate::lock_ground::{Ground, MINUTE, is_busy, spawn, take};

/// What `md5("nightly-report")` makes of the default namespace.
const KEY: &str = "buffer:lock:c38a6c3afb95f1be3791bd1270b31743";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Deletes the key if it holds the token, and says whether it did.
const COMPARE_AND_DELETE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

#[tokio::test]
async fn a_lock_set_by_another_implementation_is_respected() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    let set: String = server.command(&["SET", KEY, TOKEN, "NX", "PX", "60000"]);
    assert_eq!(set, "OK");
    let lock = ground.locks.lock("nightly-report");

    assert!(is_busy(&lock).await);
    let holder = lock.holder().await.unwrap().unwrap();
    assert_eq!(holder.token().as_str(), Some(TOKEN));
    assert!(holder.metadata().is_empty());
    assert!(holder.remaining().duration().unwrap() <= MINUTE);

    let adopted = lock.adopt(&Token::new(TOKEN)).await.unwrap().unwrap();
    adopted.extend(Duration::from_secs(600)).await.unwrap();
    assert!(server.command::<i64>(&["PTTL", KEY]) > 500_000);
    assert_eq!(adopted.release().await.unwrap(), Released::Released);
    assert_eq!(server.command::<u64>(&["EXISTS", KEY]), 0);
}

#[tokio::test]
async fn another_implementation_understands_ours() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();

    let guard = take(&ground.locks.lock("nightly-report").ttl(MINUTE)).await;

    let value: String = server.command(&["GET", KEY]);
    assert_eq!(Some(value.as_str()), guard.token().as_str());
    assert_eq!(value.len(), 32);
    let ttl: i64 = server.command(&["PTTL", KEY]);
    assert!(ttl > 50_000 && ttl <= 60_000);
    let set: Option<String> = server.command(&["SET", KEY, TOKEN, "NX", "PX", "60000"]);
    assert_eq!(set, None);
    let foreign: u64 = server.command(&["EVAL", COMPARE_AND_DELETE, "1", KEY, TOKEN]);
    assert_eq!(foreign, 0);
    let own: u64 = server.command(&["EVAL", COMPARE_AND_DELETE, "1", KEY, &value]);
    assert_eq!(own, 1);
    assert_eq!(guard.release().await.unwrap(), Released::Expired);
}

#[tokio::test]
async fn a_waiter_gets_a_lock_that_another_implementation_deletes_without_a_word() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    server.command::<()>(&["SET", KEY, TOKEN, "PX", "60000"]);
    let waiting = spawn({
        let request = ground.locks.lock("nightly-report").wait(MINUTE);
        async move { request.acquire().await.map(drop) }
    });

    server.command::<()>(&["DEL", KEY]);

    let polled = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert!(polled.unwrap().unwrap().is_ok());
}

#[tokio::test]
async fn a_key_that_is_set_is_never_without_an_end() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();

    for request in [
        ground.locks.lock("plain"),
        ground.locks.lock("own").token("me").metadata("x"),
        ground.locks.lock_all(["a", "b"]).fencing(),
        ground.locks.read("r").fencing(),
    ] {
        take(&request).await.keep();
    }

    let keys: Vec<String> = server.command(&["KEYS", "*"]);
    assert!(keys.len() >= 9);
    for key in keys {
        assert!(server.command::<i64>(&["PTTL", &key]) > 0, "{key}");
    }
}

#[tokio::test]
async fn a_token_that_copies_the_value_of_another_is_another() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    let lock = ground.locks.lock("nightly-report");
    let guard = take(&lock.clone().token("foo").metadata("bar")).await;
    let value: Vec<u8> = server.command(&["GET", KEY]);

    assert!(is_busy(&lock.clone().token(&value)).await);
    let released = lock.release(&Token::new(&value)).await.unwrap();
    assert_eq!(released, Released::HeldByAnother);

    assert!(guard.is_still_held().await.unwrap());
}
