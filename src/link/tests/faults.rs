use super::*;

#[tokio::test]
async fn a_frozen_server_costs_one_command_its_time_and_the_next_nothing() {
    let (link, _proxy, server) = connected_with(hasty()).await;

    server.pause();
    let start = Instant::now();
    let error = read(&link).await.unwrap_err();
    assert_eq!(error.kind(), Kind::TimedOut);
    assert!(error.outcome_unknown());
    // Nobody sends anything more: pings find out.
    becomes(&link, Phase::Broken).await;
    assert!(start.elapsed() >= hasty().command_timeout);

    for _ in 0..1000 {
        let error = read(&link).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(!error.outcome_unknown());
    }
    assert_eq!(link.health().failures.unavailable, 1000);

    server.resume();
    heals(&link).await;
}

#[tokio::test]
async fn the_socket_of_a_black_hole_is_replaced() {
    let (link, proxy, _server) = connected_with(hasty()).await;

    proxy.freeze();
    read(&link).await.unwrap_err();
    becomes(&link, Phase::Broken).await;
    proxy.heal();

    heals(&link).await;
    assert!(proxy.counts().accepted >= 2);
}

#[tokio::test]
async fn three_commands_that_time_out_together_break_it() {
    let (link, proxy, _server) = connected_with(hasty()).await;
    proxy.freeze();

    let replies = tokio::join!(read(&link), read(&link), read(&link));

    for reply in [replies.0, replies.1, replies.2] {
        assert_eq!(reply.unwrap_err().kind(), Kind::TimedOut);
    }
    assert_ne!(link.health().phase, Phase::Connected);
}

#[tokio::test]
async fn commands_that_their_callers_gave_up_betray_a_black_hole_too() {
    let (link, proxy, _server) = connected_with(hasty()).await;
    proxy.freeze();

    let given_up = timeout(Duration::from_millis(100), read(&link)).await;

    assert!(given_up.is_err());
    becomes(&link, Phase::Broken).await;
}

#[tokio::test]
async fn a_short_deadline_that_passes_does_not_break_a_sound_connection() {
    let (link, proxy, _server) = connected().await;
    proxy.delay(Duration::from_millis(20));
    let get = command(&["GET", "absent"]);

    for _ in 0..10 {
        let deadline = Instant::now() + Duration::from_millis(5);
        let error = link
            .query_by::<Option<String>>(&get, deadline)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::TimedOut);
    }

    read(&link).await.unwrap();
    assert_eq!(link.health().phase, Phase::Connected);
    assert_eq!(proxy.counts().accepted, 1);
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again_when_it_is_back() {
    let (link, _proxy, mut server) = connected().await;

    server.kill();
    let error = read(&link).await.unwrap_err();
    assert!(
        matches!(error.kind(), Kind::Lost | Kind::Unavailable),
        "{error}"
    );
    becomes(&link, Phase::Broken).await;
    assert_eq!(read(&link).await.unwrap_err().kind(), Kind::Unavailable);

    server.restart();
    heals(&link).await;
}

#[tokio::test]
async fn an_idle_link_notices_that_the_server_is_gone() {
    let (link, _proxy, mut server) = connected().await;

    server.kill();

    becomes(&link, Phase::Broken).await;
    assert_eq!(link.health().failures.lost, 0);
}

#[tokio::test]
async fn a_connection_cut_while_a_command_waits_leaves_its_outcome_unknown() {
    let (link, proxy, _server) = connected().await;
    proxy.freeze_replies();

    let cut = async { proxy.cut() };
    let (reply, ()) = tokio::join!(read(&link), cut);

    let error = reply.unwrap_err();
    assert_eq!(error.kind(), Kind::Lost);
    assert!(error.outcome_unknown());
    proxy.heal();
    becomes(&link, Phase::Connected).await;
}

#[tokio::test]
async fn a_command_whose_reply_is_lost_is_not_sent_again() {
    let (link, proxy, server) = connected().await;
    proxy.lose_next_reply();

    let error = link
        .query::<u64>(&command(&["INCR", "counter"]))
        .await
        .unwrap_err();

    assert_eq!(error.kind(), Kind::Lost);
    becomes(&link, Phase::Connected).await;
    assert_eq!(server.command::<u64>(&["GET", "counter"]), 1);
    assert_eq!(server.count("incr"), 1);
}

#[tokio::test]
async fn a_command_that_never_arrived_is_not_sent_again() {
    let (link, proxy, server) = connected().await;
    proxy.lose_next_request();

    let error = link
        .query::<u64>(&command(&["INCR", "counter"]))
        .await
        .unwrap_err();

    assert_eq!(error.kind(), Kind::Lost);
    becomes(&link, Phase::Connected).await;
    assert_eq!(server.count("incr"), 0);
}

#[tokio::test]
async fn half_a_reply_is_no_reply() {
    let (link, proxy, server) = connected().await;
    server.command::<()>(&["SET", "large", &"x".repeat(10_000)]);
    proxy.cut_in_next_reply(5_000);

    let error = link
        .query::<String>(&command(&["GET", "large"]))
        .await
        .unwrap_err();

    assert_eq!(error.kind(), Kind::Lost);
    becomes(&link, Phase::Connected).await;
    let whole: String = link.query(&command(&["GET", "large"])).await.unwrap();
    assert_eq!(whole.len(), 10_000);
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_the_connection() {
    let (link, proxy, _server) = connected().await;
    proxy.garble_next_reply();

    let error = read(&link).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Lost);
    heals(&link).await;
    assert!(proxy.counts().accepted >= 2);
}

#[tokio::test]
async fn a_wrong_password_fails_at_once_until_it_is_right() {
    let server = RedisServer::start();
    server.command::<()>(&["ACL", "SETUSER", "app", "on", ">other", "~*", "&*", "+@all"]);
    let link = link(&server.client_as("app", "right"));

    let error = read(&link).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    let cause = link.health().last_error.unwrap();
    assert_eq!(cause.to_string(), "connecting to Redis failed");

    server.command::<()>(&["ACL", "SETUSER", "app", ">right"]);
    heals(&link).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_found_when_it_comes() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    proxy.refuse();
    let link = link(&proxy.client());

    let error = read(&link).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_ne!(link.health().phase, Phase::Connected);

    proxy.heal();
    heals(&link).await;
}

#[tokio::test]
async fn a_black_hole_at_the_start_costs_no_more_than_the_time_of_one_command() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    proxy.freeze();
    let link = Link::new(&proxy.client(), hasty());

    let start = Instant::now();
    let error = read(&link).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(start.elapsed() < Duration::from_secs(2));
    becomes(&link, Phase::Broken).await;

    proxy.heal();
    becomes(&link, Phase::Connected).await;
}

#[tokio::test]
async fn an_unknown_host_is_unavailable() {
    let link = link(&Client::open("redis://no-such-host.invalid/").unwrap());

    let error = read(&link).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unavailable);
}

#[tokio::test]
async fn a_server_that_turned_read_only_is_connected_to_anew() {
    let (link, proxy, server) = connected().await;
    let set = command(&["SET", "key", "value"]);
    server.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]);

    let error = link.query::<()>(&set).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (Kind::Refused, Some("READONLY"))
    );

    server.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    becomes(&link, Phase::Connected).await;
    link.query::<()>(&set).await.unwrap();
    assert!(proxy.counts().accepted >= 2);
}

#[tokio::test]
async fn a_client_killed_by_the_server_comes_back() {
    let (link, proxy, server) = connected().await;

    server.command::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);

    heals(&link).await;
    assert_eq!(proxy.counts().accepted, 2);
}

#[tokio::test]
async fn an_open_end_of_memory_is_the_commands_fault_not_the_links() {
    let (link, proxy, server) = connected().await;
    server.config("maxmemory", "1");

    let error = link
        .query::<()>(&command(&["SET", "key", "value"]))
        .await
        .unwrap_err();

    assert_eq!((error.kind(), error.code()), (Kind::Refused, Some("OOM")));
    read(&link).await.unwrap();
    assert_eq!(proxy.counts().accepted, 1);
}
