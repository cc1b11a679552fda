//! Workers side by side of which some cannot read what others have compressed.

use super::*;

fn compressing(server: &RedisServer) -> RedisTier {
    tier_with(server, Compression::new(Some(0), 1024 * 1024))
}

/// One of an older version, or without the feature.
fn unable(server: &RedisServer) -> RedisTier {
    tier_with(server, Compression::NONE)
}

const BODY: &str = "the same, again and again, again and again, again and again, again and again";

async fn fresh(tier: &RedisTier) -> String {
    match tier.claim(&claim(Slot::Build)).await.unwrap() {
        Claimed::Fresh(found) => String::from_utf8(found.body.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn who_cannot_read_a_compressed_entry_builds_once_and_then_all_read_what_is_there() {
    let server = RedisServer::start();
    let (able, unable) = (compressing(&server), unable(&server));
    let lease = leased(&able, &claim(Slot::Build)).await;
    assert_eq!(fill(&able, &lease, &entry(BODY)).await, Filled::Stored);
    assert_eq!(fresh(&able).await, BODY);

    let again = leased(&unable, &claim(Slot::Build)).await;
    let second = unable.claim(&claim(Slot::Build)).await.unwrap();
    assert!(
        matches!(second, Claimed::Busy { stale: None, .. }),
        "one builds, the others wait: {second:?}"
    );
    assert_eq!(fresh(&able).await, BODY, "meanwhile it is still there");
    assert_eq!(fill(&unable, &again, &entry("plain")).await, Filled::Stored);

    for tier in [&able, &unable, &able] {
        assert_eq!(fresh(tier).await, "plain");
    }
}

#[tokio::test]
async fn a_body_that_the_caller_has_is_not_unpacked_again() {
    let server = RedisServer::start();
    let tier = compressing(&server);
    let lease = leased(&tier, &claim(Slot::Build)).await;
    let held = Arc::new(entry(BODY));
    fill(&tier, &lease, &held).await;

    let asking = Claim {
        have: Some(Arc::clone(&held)),
        ..claim(Slot::Build)
    };
    let found = tier.claim(&asking).await.unwrap();

    let Claimed::Fresh(found) = found else {
        panic!("{found:?}");
    };
    assert_eq!(found.body.as_ptr(), held.body.as_ptr());
}
