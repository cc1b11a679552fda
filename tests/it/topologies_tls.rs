//! Redis through TLS: who is trusted, who is let in, and certificates that are renewed.

use std::{fs, time::Duration};

use tower_stampede::{BuildErrorKind, Cache, RedisConfig, lock::LockManager};

use crate::{
    support::{
        log::Log,
        tls::{Authority, TlsServer},
        worker::{Handler, cache, layer, settled, text, until},
    },
    topologies::{locks, serves},
};

const HERE: &str = "127.0.0.1";

/// A server of `authority` that asks for no certificate.
fn server(authority: &Authority, options: &[&str]) -> TlsServer {
    TlsServer::start(&authority.sign(HERE, "server"), None, options)
}

/// Asks once, so that the connection is tried; the answer comes without it all the same.
async fn served_alone(config: RedisConfig, cause: &str) {
    let (log, _guard) = Log::start();
    // On a machine under load a handshake takes its time, and it is the cause of its end that counts.
    let budget = Duration::from_secs(5);
    let cache = Cache::builder()
        .redis(config)
        .redis_budget(budget)
        .build()
        .unwrap();
    let worker = Handler::open().worker(&layer(&cache), text);

    assert_eq!(worker.get("/report").await.text(), "build 1");

    until(|| !log.lines("WARN", "").is_empty()).await;
    assert!(!log.lines("WARN", cause).is_empty(), "{}", log.text());
}

#[tokio::test]
async fn a_private_authority_serves_under_both_schemes() {
    let authority = Authority::new();
    let redis = server(&authority, &[]);

    for scheme in ["rediss", "valkeys"] {
        let url = format!("{scheme}://{HERE}:{}/2", redis.port);
        serves(&RedisConfig::url(url).tls_ca(authority.file())).await;
        redis.redis.command::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn tls_1_2_is_enough_and_1_1_is_not() {
    let authority = Authority::new();
    let enough = server(&authority, &["--tls-protocols", "TLSv1.2"]);
    let ciphers = ["--tls-ciphers", "DEFAULT@SECLEVEL=0"];
    let old = ["--tls-protocols", "TLSv1.1", ciphers[0], ciphers[1]];
    let too_old = server(&authority, &old);

    serves(&RedisConfig::url(enough.url()).tls_ca(authority.file())).await;

    let config = RedisConfig::url(too_old.url()).tls_ca(authority.file());
    served_alone(config, "ProtocolVersion").await;
}

#[tokio::test]
async fn an_unknown_authority_and_another_hosts_certificate_are_not_talked_to() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let redis = server(&authority, &[]);
    let elsewhere = authority.sign("elsewhere.example", "elsewhere");
    let elsewhere = TlsServer::start(&elsewhere, None, &[]);

    let config = RedisConfig::url(redis.url()).tls_ca(stranger.file());
    served_alone(config, "UnknownIssuer").await;
    served_alone(redis.url().into(), "UnknownIssuer").await;
    let config = RedisConfig::url(elsewhere.url()).tls_ca(authority.file());
    served_alone(config, "not valid for name").await;
}

#[tokio::test]
async fn a_client_certificate_lets_in() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let own = authority.sign(HERE, "server");
    let redis = TlsServer::start(&own, Some(&clients), &[]);
    let client = clients.sign("worker", "client");

    let config = RedisConfig::url(redis.url())
        .tls_ca(authority.file())
        .tls_client(client.certificate, client.key);

    serves(&config).await;
}

#[tokio::test]
async fn renewed_certificates_are_read_at_the_next_connection() {
    let (log, _guard) = Log::start();
    let (authority, clients) = (Authority::new(), Authority::new());
    let own = authority.sign(HERE, "server");
    let redis = TlsServer::start(&own, Some(&clients), &[]);
    let current = authority.sign("worker", "client");
    let config = RedisConfig::url(redis.url())
        .tls_ca(authority.file())
        .tls_client(&current.certificate, &current.key);
    let cache = cache(config.clone());
    let worker = Handler::open().worker(&layer(&cache), text);
    assert_eq!(worker.get("/before").await.text(), "build 1");
    until(|| !log.lines("WARN", "not connected to Redis").is_empty()).await;
    let locks = locks(&config);
    assert!(locks.lock("job").acquire().await.is_err());

    clients.sign("worker", "renewed").replace(&current);

    until(|| log.lines("INFO", "connected to Redis again").len() >= 3).await;
    let minute = Duration::from_secs(60);
    drop(locks.lock("job").wait(minute).acquire().await.unwrap());
    serves(&config).await;
    settled(&cache).await;
}

#[tokio::test]
async fn a_missing_file_is_told_by_its_option_and_read_once_it_is_there() {
    let authority = Authority::new();
    let redis = server(&authority, &[]);
    let late = authority.file().with_file_name("late.pem");
    let config = RedisConfig::url(redis.url()).tls_ca(&late);

    served_alone(config.clone(), "tls_ca").await;
    fs::copy(authority.file(), &late).unwrap();

    serves(&config).await;
}

#[test]
fn what_would_stay_plaintext_or_unchecked_is_refused() {
    for (config, text) in [
        (
            RedisConfig::url("redis://127.0.0.1/").tls_ca("ca.pem"),
            "tls_ca, tls_client: need a `rediss` or `valkeys` URL",
        ),
        (
            RedisConfig::url("rediss://127.0.0.1/").tls_client("worker.pem", ""),
            "tls_ca, tls_client: a path must not be empty",
        ),
        (
            "rediss://127.0.0.1/#insecure".into(),
            "redis: `#insecure` is not supported; name the authority with `tls_ca`",
        ),
    ] {
        let cache = Cache::builder().redis(config.clone()).build().unwrap_err();
        let locks = LockManager::builder().redis(config).build().unwrap_err();

        assert_eq!(cache.kind(), BuildErrorKind::RedisConfig);
        assert_eq!(cache.to_string(), text);
        assert_eq!(locks.to_string(), format!("build failed: {text}"));
    }
}
