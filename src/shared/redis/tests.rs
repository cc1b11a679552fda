//! The scripts on a real server: each is idempotent for its token.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::*;
use crate::{
    entry::{Head, Lifetime, Origin},
    link::support::redis::RedisServer,
    purges::Moment,
    shared::{Place, Slot},
};

const AMPLE: Duration = Duration::from_secs(20);

fn tier(server: &RedisServer) -> RedisTier {
    let settings = Settings {
        namespace: "test".to_owned(),
        lease_ttl: AMPLE,
        command_timeout: AMPLE,
    };
    RedisTier::new(&server.client(), settings)
}

fn place() -> Place {
    Place {
        resource: Digest::of(b"resource"),
        resource_proof: [7; 32],
        variant: None,
        proof: [7; 32],
    }
}

fn claim(slot: Slot) -> Claim {
    Claim {
        place: place(),
        slot,
        token: Token::random().unwrap(),
        have: None,
        purpose: Purpose::Serve,
        began: Moment::default(),
        deadline: Instant::now() + AMPLE,
    }
}

fn entry(body: &'static str) -> Entry {
    let head = Head {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        variant: None,
        age: 0,
    };
    let none = Duration::ZERO;
    let lifetime = Lifetime::starting(Instant::now(), Duration::from_secs(60), none, none);
    let origin = Origin {
        lifetime,
        tags: Box::from([Digest::of(b"tag")]),
        began: Moment::default(),
    };
    Entry::new(head, Bytes::from(body), None, origin)
}

async fn leased(tier: &RedisTier, claim: &Claim) -> Lease {
    match tier.claim(claim).await.unwrap() {
        Claimed::Leased { lease, .. } => lease,
        other => panic!("{other:?}"),
    }
}

async fn fill(tier: &RedisTier, lease: &Lease, entry: &Entry) -> Filled {
    let place = lease.place;
    tier.fill(Fill {
        lease,
        place,
        entry,
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_claim_that_is_sent_twice_has_one_lease() {
    let server = RedisServer::start();
    let (tier, ours, theirs) = (tier(&server), claim(Slot::Build), claim(Slot::Build));

    leased(&tier, &ours).await;
    leased(&tier, &ours).await;

    let other = tier.claim(&theirs).await.unwrap();
    assert!(matches!(other, Claimed::Busy { .. }), "{other:?}");
}

#[tokio::test]
async fn a_fill_that_is_sent_twice_stores_once_and_says_so_twice() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let lease = leased(&tier, &claim(Slot::Build)).await;
    let entry = entry("body");

    assert_eq!(fill(&tier, &lease, &entry).await, Filled::Stored);
    assert_eq!(fill(&tier, &lease, &entry).await, Filled::Stored);

    let found = tier.claim(&claim(Slot::Build)).await.unwrap();
    assert!(matches!(found, Claimed::Fresh(found) if found.body == "body"));
}

#[tokio::test]
async fn a_release_that_is_sent_twice_touches_no_later_lease() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let first = leased(&tier, &claim(Slot::Build)).await;

    assert_eq!(
        tier.release(&first, Release::Nothing).await.unwrap(),
        Held::Ours
    );
    let second = leased(&tier, &claim(Slot::Build)).await;
    assert_eq!(
        tier.release(&first, Release::Nothing).await.unwrap(),
        Held::Lost
    );

    assert_eq!(tier.renew(&first).await.unwrap(), Held::Lost);
    assert_eq!(tier.renew(&second).await.unwrap(), Held::Ours);
}

#[tokio::test]
async fn a_claim_that_runs_after_it_was_undone_takes_no_lease() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let late = claim(Slot::Build);
    let lease = Lease {
        place: late.place,
        slot: late.slot,
        token: late.token.clone(),
        began: 0,
    };

    tier.release(&lease, Release::Undo).await.unwrap();
    let ran = tier.claim(&late).await.unwrap();

    assert!(matches!(ran, Claimed::Absent), "{ran:?}");
    leased(&tier, &claim(Slot::Build)).await;
}

#[tokio::test]
async fn a_purge_that_runs_twice_fences_what_began_before_and_nothing_later() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let early = leased(&tier, &claim(Slot::Build)).await;
    let tag = Digest::of(b"tag");

    tier.purge(tag).await.unwrap();
    tier.purge(tag).await.unwrap();

    assert_eq!(fill(&tier, &early, &entry("old")).await, Filled::FencedOff);
    let late = leased(&tier, &claim(Slot::Build)).await;
    assert_eq!(fill(&tier, &late, &entry("new")).await, Filled::Stored);
}

#[tokio::test]
async fn a_build_that_began_before_the_stored_one_is_not_stored_over_it() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let early = leased(&tier, &claim(Slot::Build)).await;
    let late = leased(&tier, &claim(Slot::Extra)).await;

    assert_eq!(fill(&tier, &late, &entry("late")).await, Filled::Stored);

    assert_eq!(
        fill(&tier, &early, &entry("early")).await,
        Filled::FencedOff
    );
    let found = tier.claim(&claim(Slot::Build)).await.unwrap();
    assert!(matches!(found, Claimed::Fresh(found) if found.body == "late"));
}

#[tokio::test]
async fn a_body_that_the_caller_has_is_not_sent_again() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let lease = leased(&tier, &claim(Slot::Build)).await;
    let held = Arc::new(entry("body"));
    fill(&tier, &lease, &held).await;
    server.reset_counts();

    let asking = Claim {
        have: Some(Arc::clone(&held)),
        ..claim(Slot::Build)
    };
    let found = tier.claim(&asking).await.unwrap();

    assert!(matches!(found, Claimed::Fresh(found) if found.body == "body"));
    assert_eq!(server.count("get"), 0, "the marker is not even looked at");
}
