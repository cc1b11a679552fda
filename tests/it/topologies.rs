//! One Redis, reached in every way: as a user, by database, through a socket, by the names of its kin.

use std::{error::Error as _, time::Duration};

use http::Uri;
use tower_stampede::{
    BuildErrorKind, Cache, LinkHealth, RedisConfig,
    lock::{ErrorKind, LockManager, Released},
};

use crate::{
    lock_ground::{is_busy, take},
    support::{
        log::Log,
        redis::RedisServer,
        worker::{Handler, cache, layer, settled, text, until},
    },
};

/// Two workers share a build, a purge reaches them both, and a lock keeps the other one out and wakes it.
pub(crate) async fn serves(redis: &RedisConfig) {
    let handler = Handler::open();
    let caches = [cache(redis.clone()), cache(redis.clone())];
    let [one, other] = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), text));
    assert_eq!(one.get("/report").await.text(), "build 1");
    settled(&caches[0]).await;
    assert_eq!(other.get("/report").await.text(), "build 1");

    let report = Uri::from_static("http://shop.example/report");
    caches[0].purge(&report).await.unwrap();
    assert_eq!(other.get("/report").await.text(), "build 2");

    let [here, there] = [locks(redis), locks(redis)];
    let guard = take(&here.lock("job")).await;
    assert!(is_busy(&there.lock("job")).await);
    let minute = Duration::from_secs(60);
    let waits = there.lock("job").wait(minute);
    let waiting = tokio::spawn(async move { waits.acquire().await.map(drop) });
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    waiting.await.unwrap().unwrap();
}

pub(crate) fn locks(redis: &RedisConfig) -> LockManager {
    let patience = Duration::from_secs(10);
    LockManager::builder()
        .redis(redis.clone())
        .connect_timeout(patience)
        .command_timeout(patience)
        .build()
        .unwrap()
}

fn keys(redis: &RedisServer, database: &str) -> usize {
    let script = "redis.call('SELECT', ARGV[1]) return redis.call('DBSIZE')";
    redis.command(&["EVAL", script, "0", database])
}

#[tokio::test]
async fn a_unix_socket_serves_whatever_its_scheme() {
    let redis = RedisServer::with_unix_socket();
    let path = redis.unix_socket();
    for scheme in ["unix", "redis+unix", "valkey+unix"] {
        serves(&format!("{scheme}://{}?db=3", path.display()).into()).await;
        redis.command::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn valkey_urls_and_both_protocols_serve() {
    let redis = RedisServer::start();
    let port = redis.port();

    for url in [
        format!("valkey://127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}/?protocol=resp3"),
        format!("redis://localhost:{port}/"),
    ] {
        serves(&(&url).into()).await;
        redis.command::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn everything_lies_in_the_database_that_was_named() {
    let redis = RedisServer::start();

    serves(&RedisConfig::url(redis.url()).database(7)).await;

    assert!(keys(&redis, "7") > 0);
    assert_eq!(keys(&redis, "0"), 0);
    serves(&format!("{}5", redis.url()).into()).await;
    assert!(keys(&redis, "5") > 0);
}

#[tokio::test]
async fn a_user_needs_no_more_than_the_keys_channels_and_commands_in_the_docs() {
    let redis = RedisServer::start();
    let rules = acl_rules();
    let words: Vec<_> = ["ACL", "SETUSER", "worker", "reset", "on", ">p@ss/w:rd"]
        .into_iter()
        .chain(rules.split_whitespace())
        .collect();
    redis.command::<()>(&words);
    let config = RedisConfig::url(redis.url())
        .user("worker")
        .password("p@ss/w:rd");

    serves(&config).await;

    let refused: redis::Value = redis.command(&["ACL", "LOG"]);
    assert_eq!(refused, redis::Value::Array(Vec::new()));
}

/// The rules that `docs/redis.md` gives.
pub(crate) fn acl_rules() -> String {
    let page = include_str!("../../docs/redis.md");
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("ACL SETUSER worker on >password "));
    line.expect("the page has the rules").to_owned()
}

#[tokio::test]
async fn a_wrong_password_lets_the_service_start_and_serve_and_is_told() {
    let (log, _guard) = Log::start();
    let redis = RedisServer::start();
    redis.config("requirepass", "right");
    let cache = cache(RedisConfig::url(redis.url()).password("mistaken"));
    let worker = Handler::open().worker(&layer(&cache), text);

    assert_eq!(worker.get("/report").await.text(), "build 1");
    assert_eq!(worker.get("/report").await.text(), "build 1");

    until(|| !log.lines("WARN", "authentication failed").is_empty()).await;
    assert!(!log.text().contains("mistaken"), "{}", log.text());
    let broken = |link: &LinkHealth| link.last_error.is_some();
    assert!(cache.health().links.iter().any(broken));
}

#[test]
fn impossible_settings_are_refused_by_both_builders_with_the_option_and_its_limit() {
    let url = || RedisConfig::url("redis://127.0.0.1/");
    let none: [&str; 0] = [];
    for (config, text) in [
        (
            url().database(2_147_483_648),
            "database: must be between 0 and 2147483647",
        ),
        (
            "redis://127.0.0.1/-1".into(),
            "database: must be between 0 and 2147483647",
        ),
        (url().user("worker"), "user: needs a password"),
        (
            RedisConfig::sentinel(none, "shop"),
            "sentinel: must be 1 to 64 URLs",
        ),
        (
            RedisConfig::sentinel(["redis://127.0.0.1/"], ""),
            "sentinel: the service's name must not be empty",
        ),
        (
            RedisConfig::sentinel(["redis://127.0.0.1/2"], "shop"),
            "sentinel: each URL must lead to a TCP port and name no database",
        ),
    ] {
        let cache = Cache::builder().redis(config.clone()).build().unwrap_err();
        let locks = LockManager::builder().redis(config).build().unwrap_err();

        assert_eq!(cache.kind(), BuildErrorKind::RedisConfig);
        assert_eq!(cache.to_string(), text);
        assert_eq!(locks.kind(), ErrorKind::InvalidInput);
        assert_eq!(locks.to_string(), format!("build failed: {text}"));
    }
}

#[test]
fn an_unreadable_url_keeps_its_cause_in_both_builders() {
    let cache = Cache::builder().redis("http://h/").build().unwrap_err();
    let locks = LockManager::redis("http://h/").unwrap_err();

    assert_eq!(cache.kind(), BuildErrorKind::RedisUrl);
    assert_eq!(cache.to_string(), "redis: the URL cannot be read");
    assert!(cache.source().is_some() && locks.source().is_some());
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_without_its_feature_is_refused_by_both_builders() {
    for url in ["rediss://127.0.0.1/", "valkeys://127.0.0.1/"] {
        let cache = Cache::builder().redis(url).build().unwrap_err();
        let locks = LockManager::redis(url).unwrap_err();

        let text = "redis: TLS needs this crate's feature `tls`";
        assert_eq!(cache.to_string(), text);
        assert_eq!(locks.to_string(), format!("build failed: {text}"));
    }
}
