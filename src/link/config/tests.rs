//! What can be said, and what is refused.

use super::{check::LAST_DATABASE, *};

fn fault(config: impl Into<RedisConfig>) -> Option<ConfigFault> {
    config.into().server().err().map(|error| error.fault())
}

fn behind(urls: &[&str]) -> RedisConfig {
    RedisConfig::sentinel(urls.iter().copied(), "shop")
}

#[test]
fn what_the_methods_say_stands_in_place_of_what_the_url_says() {
    let config = RedisConfig::url("valkey://ann:one@127.0.0.1/3")
        .user("bob")
        .password("t/w@o")
        .database(4);

    let server = config.server().unwrap();

    let login = server.template().redis_settings();
    assert_eq!(login.username(), Some("bob"));
    assert_eq!(login.password(), Some("t/w@o"));
    assert_eq!(login.db(), 4);
}

#[test]
fn a_unix_socket_takes_its_login_and_database_from_the_query() {
    for scheme in ["unix", "redis+unix", "valkey+unix"] {
        let url = format!("{scheme}:///run/redis.sock?db=2&user=ann&pass=one");

        let server = RedisConfig::url(url).server().unwrap();

        let login = server.template().redis_settings();
        assert_eq!((login.username(), login.db()), (Some("ann"), 2));
    }
}

#[test]
fn impossible_settings_are_told_apart() {
    for url in [
        "",
        "127.0.0.1",
        "http://127.0.0.1/",
        "redis://a/x",
        "unix://",
    ] {
        assert_eq!(fault(url), Some(ConfigFault::Url), "{url}");
    }
    assert_eq!(fault("redis://127.0.0.1/-1"), Some(ConfigFault::Database));
    let far = RedisConfig::url("redis://127.0.0.1").database(LAST_DATABASE + 1);
    assert_eq!(fault(far), Some(ConfigFault::Database));
    let last = RedisConfig::url("redis://127.0.0.1").database(LAST_DATABASE);
    assert_eq!(fault(last), None);
    assert_eq!(fault("redis://ann@127.0.0.1"), Some(ConfigFault::User));
}

#[test]
fn sentinels_are_as_many_as_one_to_sixty_four_and_all_alike() {
    let one = "redis://127.0.0.1:26379";
    assert_eq!(fault(behind(&[])), Some(ConfigFault::SentinelCount));
    assert_eq!(fault(behind(&[one; 65])), Some(ConfigFault::SentinelCount));
    assert_eq!(fault(behind(&[one; 64])), None);
    assert_eq!(
        fault(RedisConfig::sentinel([one], "")),
        Some(ConfigFault::Service)
    );
    for url in ["?", "unix:///run/redis.sock", "redis://127.0.0.1/1"] {
        assert_eq!(
            fault(behind(&[one, url])),
            Some(ConfigFault::SentinelUrl),
            "{url}"
        );
    }
}

#[test]
fn nodes_of_a_cluster_are_as_many_as_one_to_sixty_four_and_all_alike() {
    let one = "redis://ann:one@127.0.0.1:7000";
    let of = |urls: &[&str]| RedisConfig::cluster(urls.iter().copied());
    assert_eq!(fault(of(&[])), Some(ConfigFault::ClusterCount));
    assert_eq!(fault(of(&[one; 65])), Some(ConfigFault::ClusterCount));
    assert_eq!(fault(of(&[one; 64])), None);
    for url in ["?", "unix:///run/redis.sock"] {
        assert_eq!(fault(of(&[url])), Some(ConfigFault::ClusterUrl), "{url}");
    }
    let other = "redis://127.0.0.1:7000";
    assert_eq!(fault(of(&[one, other])), Some(ConfigFault::ClusterLogins));
    let said = of(&[one, other]).user("bob").password("two");
    let login = said.server().unwrap().template().clone();
    assert_eq!(login.redis_settings().username(), Some("bob"));
}

#[test]
fn a_cluster_has_one_database() {
    let of = |url: &str| RedisConfig::cluster([url]);
    let numbered = Some(ConfigFault::ClusterDatabase);

    assert_eq!(fault(of("redis://127.0.0.1/0").database(0)), None);
    assert_eq!(fault(of("redis://127.0.0.1/1")), numbered);
    assert_eq!(fault(of("redis://127.0.0.1/").database(1)), numbered);
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_without_its_feature_is_refused_by_name() {
    for url in ["rediss://127.0.0.1/", "valkeys://127.0.0.1/"] {
        assert_eq!(fault(url), Some(ConfigFault::Tls));
        assert_eq!(fault(behind(&[url])), Some(ConfigFault::Tls));
        assert_eq!(fault(RedisConfig::cluster([url])), Some(ConfigFault::Tls));
    }
}

#[cfg(feature = "tls")]
#[test]
fn tls_files_go_with_tls_alone() {
    let (plain, secure) = ("redis://127.0.0.1/", "rediss://127.0.0.1/");
    assert_eq!(fault(RedisConfig::url(secure).tls_ca("ca.pem")), None);
    let client = RedisConfig::url(secure).tls_client("a.pem", "a.key");
    assert_eq!(fault(client), None);
    let cluster = RedisConfig::cluster([plain]);
    for plain in [RedisConfig::url(plain), behind(&[plain]), cluster] {
        let ca = plain.clone().tls_ca("ca.pem");
        assert_eq!(fault(ca), Some(ConfigFault::TlsPlain));
        let client = plain.tls_client("a.pem", "a.key");
        assert_eq!(fault(client), Some(ConfigFault::TlsPlain));
    }
    let half = RedisConfig::url(secure).tls_client("a.pem", "");
    assert_eq!(fault(half), Some(ConfigFault::TlsPath));
    assert_eq!(
        fault("rediss://127.0.0.1/#insecure"),
        Some(ConfigFault::Insecure)
    );
    let mixed = behind(&[secure, plain]);
    assert_eq!(fault(mixed), Some(ConfigFault::SentinelSchemes));
    let mixed = RedisConfig::cluster([secure, plain]);
    assert_eq!(fault(mixed), Some(ConfigFault::ClusterSchemes));
}

#[test]
fn nothing_secret_is_in_the_debug_output() {
    let config = RedisConfig::url("redis://ann:secret@127.0.0.1/").password("hidden");

    let text = format!("{config:?}");

    assert_eq!(text, "RedisConfig { .. }");
}
