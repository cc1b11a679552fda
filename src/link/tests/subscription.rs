use super::*;

fn subscription(client: &Client) -> Subscription {
    let name = "subscription";
    Subscription::new(client, Settings { name, ..hasty() })
}

async fn next(listener: &mut Listener) -> Signal {
    timeout(AMPLE, listener.next())
        .await
        .expect("a signal comes")
}

async fn subscribed(listener: &mut Listener) {
    let signal = next(listener).await;
    assert!(matches!(signal, Signal::Subscribed), "{signal:?}");
}

async fn lost(listener: &mut Listener) {
    let signal = next(listener).await;
    assert!(matches!(signal, Signal::Lost), "{signal:?}");
}

async fn hears(listener: &mut Listener, text: &str) {
    let signal = next(listener).await;
    assert!(
        matches!(&signal, Signal::Message(heard) if heard == text),
        "{signal:?}"
    );
}

fn publish(server: &RedisServer, channel: &str, text: &str) -> u64 {
    server.command(&["PUBLISH", channel, text])
}

/// A subscription with a listener to `events` whose channel is confirmed.
async fn listening() -> (Listener, Subscription, FaultProxy, RedisServer) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let subscription = subscription(&proxy.client());
    let mut listener = subscription.listen("events");
    subscribed(&mut listener).await;
    (listener, subscription, proxy, server)
}

#[tokio::test]
async fn one_connection_serves_a_hundred_listeners() {
    let server = RedisServer::start();
    let subscription = subscription(&server.client());
    let mut listeners: Vec<_> = (0..100)
        .map(|number| subscription.listen(&format!("channel-{}", number % 50)))
        .collect();
    for listener in &mut listeners {
        subscribed(listener).await;
    }

    publish(&server, "channel-7", "hello");
    publish(&server, "channel-8", "you");

    for (number, text) in [(7, "hello"), (57, "hello"), (8, "you"), (58, "you")] {
        hears(&mut listeners[number], text).await;
    }
    assert_eq!(server.clients("pubsub"), 1);
}

#[tokio::test]
async fn thousands_of_channels_are_confirmed_in_batches() {
    let server = RedisServer::start();
    let subscription = subscription(&server.client());

    let mut listeners: Vec<_> = (0..3000)
        .map(|number| subscription.listen(&format!("channel-{number}")))
        .collect();

    for listener in &mut listeners {
        subscribed(listener).await;
    }
    assert!(server.count("subscribe") < 100);
}

#[tokio::test]
async fn who_joins_a_confirmed_channel_hears_that_at_once() {
    let (mut first, subscription, _proxy, server) = listening().await;

    let mut second = subscription.listen("events");
    subscribed(&mut second).await;
    publish(&server, "events", "hello");

    hears(&mut first, "hello").await;
    hears(&mut second, "hello").await;
    assert_eq!(server.count("subscribe"), 1);
}

#[tokio::test]
async fn the_last_listener_unsubscribes_and_the_connection_closes_behind_it() {
    let (listener, subscription, _proxy, server) = listening().await;
    let other = subscription.listen("events");

    drop(listener);
    assert_eq!(publish(&server, "events", "still heard"), 1);
    drop(other);

    eventually(|| publish(&server, "events", "unheard") == 0).await;
    eventually(|| server.clients("pubsub") == 0 && server.clients("normal") == 0).await;
    assert_eq!(subscription.health().phase, Phase::Idle);
    let mut again = subscription.listen("events");
    subscribed(&mut again).await;
}

#[tokio::test]
async fn a_connection_killed_by_the_server_is_a_gap_that_ends() {
    let (mut listener, _subscription, _proxy, server) = listening().await;

    server.command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);

    lost(&mut listener).await;
    subscribed(&mut listener).await;
    publish(&server, "events", "hello");
    hears(&mut listener, "hello").await;
}

#[tokio::test]
async fn a_cut_connection_is_a_gap_for_every_channel() {
    let (mut listener, subscription, proxy, _server) = listening().await;
    let mut other = subscription.listen("other");
    subscribed(&mut other).await;

    proxy.cut();

    for listener in [&mut listener, &mut other] {
        lost(listener).await;
        subscribed(listener).await;
    }
}

#[tokio::test]
async fn a_restarted_server_is_subscribed_to_again() {
    let (mut listener, subscription, _proxy, mut server) = listening().await;

    server.kill();
    lost(&mut listener).await;
    let mut late = subscription.listen("late");
    server.restart();

    subscribed(&mut listener).await;
    subscribed(&mut late).await;
    publish(&server, "events", "hello");
    hears(&mut listener, "hello").await;
}

#[tokio::test]
async fn a_black_hole_is_found_by_the_ping() {
    let (mut listener, _subscription, proxy, _server) = listening().await;

    proxy.freeze();
    lost(&mut listener).await;
    proxy.heal();

    subscribed(&mut listener).await;
}

#[tokio::test]
async fn a_subscribe_that_is_never_confirmed_does_not_hang_the_others() {
    let (mut listener, subscription, proxy, _server) = listening().await;

    proxy.freeze_replies();
    let mut other = subscription.listen("other");
    lost(&mut listener).await;
    proxy.heal();

    subscribed(&mut listener).await;
    subscribed(&mut other).await;
}

#[tokio::test]
async fn a_forbidden_channel_is_refused_alone_and_asked_for_again() {
    let server = RedisServer::start();
    server.command::<()>(&[
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">pass",
        "~*",
        "+@all",
        "resetchannels",
        "&public*",
    ]);
    let subscription = subscription(&server.client_as("app", "pass"));

    let mut forbidden = subscription.listen("secret");
    let mut public = subscription.listen("public");
    let mut other = subscription.listen("public-other");
    subscribed(&mut public).await;
    subscribed(&mut other).await;
    let signal = next(&mut forbidden).await;
    assert!(
        matches!(&signal, Signal::Refused(error) if error.code() == Some("NOPERM")),
        "{signal:?}"
    );

    server.command::<()>(&["ACL", "SETUSER", "app", "&secret"]);
    while !matches!(next(&mut forbidden).await, Signal::Subscribed) {}
    publish(&server, "public", "hello");
    hears(&mut public, "hello").await;
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_subscribed_to_when_it_comes() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    proxy.refuse();
    let subscription = subscription(&proxy.client());
    let mut listener = subscription.listen("events");

    eventually(|| subscription.health().phase == Phase::Broken).await;
    proxy.heal();

    subscribed(&mut listener).await;
}

#[tokio::test]
async fn a_listener_that_does_not_listen_is_told_of_a_gap() {
    let (mut slow, subscription, _proxy, server) = listening().await;
    let mut quick = subscription.listen("events");
    subscribed(&mut quick).await;

    let many = "for number = 1, 5000 do redis.call('PUBLISH', 'events', number) end";
    server.command::<()>(&["EVAL", many, "0"]);
    let newest = |signal: &Signal| matches!(signal, Signal::Message(text) if text == "5000");
    while !newest(&next(&mut quick).await) {}

    lost(&mut slow).await;
    subscribed(&mut slow).await;
    for _ in 0..5000 {
        if newest(&next(&mut slow).await) {
            return;
        }
    }
    panic!("the newest message is not among those kept");
}

#[tokio::test]
async fn a_message_too_long_to_be_ours_is_a_gap() {
    let (mut listener, _subscription, _proxy, server) = listening().await;

    publish(&server, "events", &"x".repeat(100_000));

    lost(&mut listener).await;
    subscribed(&mut listener).await;
}

#[test]
fn a_subscription_outlives_the_runtime_it_was_first_used_on() {
    let server = RedisServer::start();
    let subscription = subscription(&server.client());
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let mut listener = runtime().block_on(async {
        let mut listener = subscription.listen("events");
        subscribed(&mut listener).await;
        listener
    });

    runtime().block_on(async {
        lost(&mut listener).await;
        subscribed(&mut listener).await;
        publish(&server, "events", "hello");
        hears(&mut listener, "hello").await;
    });
}
