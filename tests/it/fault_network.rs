//! What may happen on the way to a server, each in the middle of a herd over real HTTP on two worker
//! processes.

use std::time::Duration;

use crate::{
    fault_events::{Ground, nothing_fails},
    support::proxy::FaultProxy,
};

async fn nothing_fails_under(fault: fn(&FaultProxy)) {
    let ground = Ground::behind_proxy().await;
    nothing_fails(
        ground,
        move |ground| fault(&ground.proxy),
        |ground| ground.proxy.heal(),
    )
    .await;
}

#[tokio::test]
async fn nothing_fails_when_a_reply_is_lost_after_the_command_ran() {
    nothing_fails_under(FaultProxy::lose_next_reply).await;
}

#[tokio::test]
async fn nothing_fails_when_a_command_is_lost() {
    nothing_fails_under(FaultProxy::lose_next_request).await;
}

#[tokio::test]
async fn nothing_fails_when_a_reply_is_cut_in_the_middle() {
    nothing_fails_under(|proxy| proxy.cut_in_next_reply(3)).await;
}

#[tokio::test]
async fn nothing_fails_when_a_reply_is_not_of_the_protocol() {
    nothing_fails_under(FaultProxy::garble_next_reply).await;
}

#[tokio::test]
async fn nothing_fails_when_all_connections_are_cut() {
    nothing_fails_under(FaultProxy::cut).await;
}

#[tokio::test]
async fn nothing_fails_when_the_way_is_slow() {
    nothing_fails_under(|proxy| proxy.delay(Duration::from_millis(10))).await;
}

#[tokio::test]
async fn nothing_fails_when_the_way_is_slower_than_the_budget() {
    nothing_fails_under(|proxy| proxy.delay(Duration::from_millis(400))).await;
}

#[tokio::test]
async fn nothing_fails_when_nothing_passes_any_more() {
    nothing_fails_under(FaultProxy::freeze).await;
}

#[tokio::test]
async fn nothing_fails_when_only_replies_do_not_pass_any_more() {
    nothing_fails_under(FaultProxy::freeze_replies).await;
}
