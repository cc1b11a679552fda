use std::time::Duration;

use super::{get, settings};
use crate::link::{
    Call, Kind, Link, Listener, Phase, Script, Signal, Subscription,
    support::{proxy::FaultProxy, redis::RedisServer},
};

#[tokio::test]
async fn the_first_command_connects() {
    let server = RedisServer::start();
    let link = Link::new(&server.client(), settings());
    assert_eq!(link.health().phase, Phase::Idle);

    let value: Option<String> = link.query(&get("absent")).await.unwrap();

    assert_eq!(value, None);
    assert_eq!(link.health().phase, Phase::Connected);
    assert_eq!(server.count("get"), 1);
}

#[tokio::test]
async fn a_listener_hears_messages() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let subscription = Subscription::new(&proxy.client(), settings());
    let mut listener: Listener = subscription.listen("events");
    assert!(matches!(listener.next().await, Signal::Subscribed));

    server.command::<()>(&["PUBLISH", "events", "hello"]);

    assert!(matches!(listener.next().await, Signal::Message(text) if text == "hello"));
}

#[tokio::test]
async fn a_script_is_loaded_when_the_server_does_not_know_it() {
    static ECHO: Script = Script::new("return ARGV[1] .. KEYS[1]");
    let server = RedisServer::start();
    let link = Link::new(&server.client(), settings());

    for _ in 0..2 {
        let reply: String = link
            .invoke(&ECHO, Call::new().key("k").arg("a"))
            .await
            .unwrap();
        assert_eq!(reply, "ak");
    }

    assert_eq!((server.count("eval"), server.count("evalsha")), (1, 2));
}

#[tokio::test]
async fn commands_fail_at_once_while_the_server_is_frozen_and_heal_after() {
    let server = RedisServer::start();
    let link = Link::new(&server.client(), settings());
    link.query::<Option<String>>(&get("k")).await.unwrap();

    server.pause();
    let error = link.query::<Option<String>>(&get("k")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::TimedOut);
    while link.health().phase == Phase::Connected {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let error = link.query::<Option<String>>(&get("k")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);

    server.resume();
    while link.health().phase != Phase::Connected {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    link.query::<Option<String>>(&get("k")).await.unwrap();
}
