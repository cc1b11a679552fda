use super::*;

static COUNT: Script = Script::new("return redis.call('INCR', KEYS[1]) + ARGV[1]");

async fn count(link: &Link) -> Result<u64, Error> {
    link.invoke(&COUNT, Call::new().key("counter").arg(10))
        .await
}

#[tokio::test]
async fn a_script_the_server_knows_takes_one_round_trip() {
    let (link, _proxy, server) = connected().await;
    assert_eq!(count(&link).await.unwrap(), 11);
    server.reset_counts();

    assert_eq!(count(&link).await.unwrap(), 12);

    assert_eq!((server.count("evalsha"), server.count("eval")), (1, 0));
}

#[tokio::test]
async fn a_script_the_server_forgot_runs_once_all_the_same() {
    let (link, _proxy, server) = connected().await;
    assert_eq!(count(&link).await.unwrap(), 11);
    server.command::<()>(&["SCRIPT", "FLUSH"]);

    assert_eq!(count(&link).await.unwrap(), 12);

    assert_eq!(server.command::<u64>(&["GET", "counter"]), 2);
}

#[tokio::test]
async fn a_script_whose_reply_is_lost_is_not_called_again() {
    let (link, proxy, server) = connected().await;
    assert_eq!(count(&link).await.unwrap(), 11);
    proxy.lose_next_reply();

    let error = count(&link).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Lost);
    becomes(&link, Phase::Connected).await;
    assert_eq!(server.command::<u64>(&["GET", "counter"]), 2);
}

#[tokio::test]
async fn an_error_in_a_script_is_a_refusal_that_quotes_nothing() {
    static BAD: Script = Script::new("return redis.error_reply('MINE ' .. ARGV[1])");
    let (link, _proxy, _server) = connected().await;

    let error = link
        .invoke::<()>(&BAD, Call::new().arg("secret"))
        .await
        .unwrap_err();

    assert_eq!((error.kind(), error.code()), (Kind::Refused, Some("MINE")));
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[test]
fn what_a_call_carries_is_not_shown() {
    let call = Call::new().key("secret").arg("secret").arg(1);

    assert_eq!(format!("{call:?}"), "Call { keys: 1, args: 2 }");
}
