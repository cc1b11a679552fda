use std::error::Error as _;

use futures_util::future::join_all;

use super::*;

#[tokio::test]
async fn making_a_link_does_not_connect() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());

    let link = link(&proxy.client());

    assert_eq!(link.health().phase, Phase::Idle);
    assert_eq!(proxy.counts().accepted, 0);
}

#[tokio::test]
async fn all_commands_share_one_connection() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let link = link(&proxy.client());

    let replies = join_all((0..100).map(|_| read(&link))).await;

    assert!(replies.iter().all(Result::is_ok));
    assert_eq!(proxy.counts().accepted, 1);
    assert_eq!(server.count("get"), 100);
}

#[tokio::test]
async fn a_unix_socket_will_do() {
    let server = RedisServer::with_unix_socket();
    let url = format!("redis+unix://{}", server.unix_socket().display());
    let link = link(&Client::open(url).unwrap());

    assert_eq!(read(&link).await.unwrap(), None);
}

#[tokio::test]
async fn a_slow_path_is_no_fault() {
    let (link, proxy, _server) = connected().await;
    proxy.delay(Duration::from_millis(30));

    for _ in 0..5 {
        read(&link).await.unwrap();
    }

    let health = link.health();
    assert_eq!(health.phase, Phase::Connected);
    assert_eq!(health.failures, Failures::default());
    assert!(health.latency.unwrap() >= Duration::from_millis(60));
}

#[tokio::test]
async fn a_refused_command_names_its_code_and_leaves_the_connection_alone() {
    let (link, proxy, server) = connected().await;
    server.command::<()>(&["SET", "secret-key", "secret-value"]);

    let error = link
        .query::<()>(&command(&["LPUSH", "secret-key", "secret-value"]))
        .await
        .unwrap_err();

    assert_eq!(
        (error.kind(), error.code()),
        (Kind::Refused, Some("WRONGTYPE"))
    );
    assert!(!error.outcome_unknown());
    assert_eq!(error.to_string(), "Redis refused the command: WRONGTYPE");
    assert_eq!(link.health().failures.refused, 1);
    read(&link).await.unwrap();
    assert_eq!(proxy.counts().accepted, 1);
}

#[tokio::test]
async fn no_error_quotes_a_key_or_a_value() {
    let (link, _proxy, server) = connected().await;
    server.command::<()>(&["SET", "secret-key", "secret-value"]);

    let refused = link
        .query::<()>(&command(&["NONSENSE", "secret-key", "secret-value"]))
        .await
        .unwrap_err();
    let garbled = link
        .query::<u64>(&command(&["GET", "secret-key"]))
        .await
        .unwrap_err();

    assert_eq!(refused.code(), Some("ERR"));
    assert_eq!(garbled.kind(), Kind::Garbled);
    for error in [refused, garbled] {
        assert!(error.source().is_none());
        let told = format!("{error} {error:?}");
        assert!(!told.contains("secret"), "{told}");
    }
}

#[tokio::test]
async fn what_does_not_fit_the_queue_is_turned_away_at_once() {
    let (link, proxy, _server) = connected().await;
    proxy.freeze_replies();

    let pressing = join_all((0..QUEUE + 10).map(|_| read(&link)));
    let release = async {
        becomes_overloaded(&link, 10).await;
        proxy.heal();
    };
    let (replies, ()) = tokio::join!(pressing, release);

    let turned_away = replies.iter().filter(|reply| reply.is_err()).count();
    assert_eq!(turned_away, 10);
    assert!(
        replies
            .iter()
            .filter_map(|reply| reply.as_ref().err())
            .all(|error| error.kind() == Kind::Unavailable)
    );
}

async fn becomes_overloaded(link: &Link, times: u64) {
    eventually(|| link.health().failures.unavailable == times).await;
}

#[tokio::test]
async fn replies_stay_matched_when_others_are_dropped() {
    let (link, proxy, server) = connected().await;
    for number in 0..50 {
        server.command::<()>(&["SET", &format!("key-{number}"), &number.to_string()]);
    }
    proxy.delay(Duration::from_millis(5));

    for number in 0_u64..50 {
        let other = command(&["GET", "key-0"]);
        let dropped = timeout(Duration::from_millis(1), link.query::<u64>(&other)).await;
        assert!(dropped.is_err(), "the delay is longer");

        let own = command(&["GET", &format!("key-{number}")]);
        assert_eq!(link.query::<u64>(&own).await.unwrap(), number);
    }
}
