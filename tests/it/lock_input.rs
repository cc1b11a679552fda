//! What is refused when a manager is built and when a lock is asked for.

use std::{sync::Arc, time::Duration};

use tower_stampede::lock::{
    Acquire, ErrorKind, Lock, LockManager, MAX_DURATION, MAX_NAME, MemoryLock, Naming, Operation,
};

use crate::lock_ground::{Ground, MINUTE, is_busy, take};

async fn refusal(request: &Acquire) -> ErrorKind {
    request.acquire().await.unwrap_err().kind()
}

#[tokio::test]
async fn times_out_of_their_limits_are_refused_and_the_limits_accepted() {
    let ground = Ground::in_memory();
    let lock = ground.locks.lock("job");
    let beyond = MAX_DURATION + Duration::from_micros(1);

    for request in [
        lock.clone().ttl(Duration::ZERO),
        lock.clone().ttl(beyond),
        lock.clone().ttl(Duration::MAX),
        lock.clone().wait(beyond),
        lock.clone().wait(Duration::MAX),
        ground.locks.read("job").ttl(Duration::ZERO),
        ground.locks.write("job").wait(beyond),
    ] {
        assert_eq!(refusal(&request).await, ErrorKind::InvalidInput);
    }
    for error in [
        lock.clone().wait(beyond).force_release().await.map(drop),
        lock.clone().wait(beyond).is_held().await.map(drop),
    ] {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(ground.spy.acquires(), 0);
    assert!(!is_busy(&lock.clone().ttl(MAX_DURATION)).await);
    assert!(lock.wait(MAX_DURATION).acquire().await.is_ok());
}

#[tokio::test]
async fn an_overlong_name_is_refused_by_every_call() {
    let ground = Ground::in_memory();
    let lock = ground.locks.lock(vec![b'x'; MAX_NAME + 1]);

    assert_eq!(refusal(&lock).await, ErrorKind::InvalidInput);
    assert_eq!(
        lock.is_held().await.unwrap_err().operation(),
        Some(Operation::Inspect)
    );
    assert_eq!(
        lock.force_release().await.unwrap_err().to_string(),
        "force release failed: a name must not exceed 8192 bytes"
    );
    assert_eq!(lock.keys().count(), 0);
    assert!(!is_busy(&ground.locks.lock(vec![b'x'; MAX_NAME])).await);
}

#[test]
fn a_manager_refuses_settings_out_of_their_limits_and_names_them() {
    let message = |builder: tower_stampede::lock::Builder| {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.operation(), Some(Operation::Build));
        error.to_string()
    };
    let builder = LockManager::builder;
    let memory = || -> Arc<dyn Lock> { Arc::new(MemoryLock::new()) };

    assert!(message(builder().namespace("")).contains("namespace"));
    assert!(message(builder().namespace("a{b")).contains("braces"));
    assert!(message(builder().namespace("{a}").naming(Naming::OneSlot)).contains("braces"));
    assert!(message(builder().ttl(Duration::ZERO)).contains("ttl"));
    assert!(message(builder().ttl(Duration::MAX)).contains("ttl"));
    assert!(message(builder().backend(memory()).backend(memory())).contains("backend"));
    assert!(builder().namespace("{shop}:").build().is_ok());
}

#[cfg(feature = "redis")]
#[test]
fn a_manager_on_redis_refuses_bad_urls_and_timeouts_and_does_not_connect() {
    use crate::lock_ground::ms;

    let builder = || LockManager::builder().redis("redis://127.0.0.1:1/");
    let kind = |builder: tower_stampede::lock::Builder| builder.build().unwrap_err();

    let error = LockManager::redis("memcached://x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("URL"));
    assert!(std::error::Error::source(&error).is_some());
    assert!(
        kind(builder().ttl(ms(250)))
            .to_string()
            .contains("command timeout")
    );
    assert!(
        kind(builder().command_timeout(Duration::ZERO))
            .to_string()
            .contains("timeouts")
    );
    assert!(
        kind(builder().connect_timeout(Duration::ZERO))
            .to_string()
            .contains("timeouts")
    );
    assert!(
        kind(builder().redis("redis://127.0.0.1:2/"))
            .to_string()
            .contains("backend")
    );
    let locks = builder().build().unwrap();
    assert!(locks.is_shared());
}

#[tokio::test]
async fn a_key_function_of_ones_own_names_the_keys() {
    let ground = Ground::in_memory();
    let naming =
        Naming::custom(|namespace, name| format!("{namespace}{}", String::from_utf8_lossy(name)));
    let locks = ground.manager(|builder| builder.namespace("rr:lock:").naming(naming));

    let guard = take(&locks.lock("resource")).await;

    assert_eq!(guard.keys().next(), Some("rr:lock:resource"));
    assert_eq!(refusal(&locks.lock("a{b")).await, ErrorKind::InvalidInput);
    assert_eq!(refusal(&locks.lock("a:~f")).await, ErrorKind::InvalidInput);
}

#[tokio::test]
async fn keys_of_one_slot_have_the_namespace_as_their_hash_tag() {
    let locks = LockManager::builder()
        .naming(Naming::OneSlot)
        .build()
        .unwrap();

    let guard = take(&locks.lock("nightly-report")).await;

    assert_eq!(
        guard.keys().next(),
        Some("{buffer:lock:}c38a6c3afb95f1be3791bd1270b31743")
    );
}

#[tokio::test]
async fn errors_tell_neither_the_name_nor_the_token() {
    let ground = Ground::in_memory();
    let _held = take(
        &ground
            .locks
            .lock("secret-name")
            .token("secret-token")
            .ttl(MINUTE),
    )
    .await;

    let error = ground
        .elsewhere
        .lock("secret-name")
        .acquire()
        .await
        .unwrap_err();

    for text in [error.to_string(), format!("{error:?}")] {
        assert!(
            text.contains("buffer:lock:") && !text.contains("secret"),
            "{text}"
        );
    }
}

/// Futures and guards can move between threads, and backends can be chosen at start-up.
#[test]
fn the_types_are_send_and_backends_are_objects() {
    fn send<T: Send>(_: T) {}
    fn shared<T: Send + Sync + 'static>() {}
    shared::<LockManager>();
    shared::<Acquire>();
    shared::<tower_stampede::lock::Guard>();
    shared::<tower_stampede::lock::Error>();
    shared::<Arc<dyn Lock>>();

    let locks = LockManager::in_memory();
    let lock = locks.lock("job");
    send(lock.acquire());
    send(lock.run(async {}));
    send(lock.force_release());
}
