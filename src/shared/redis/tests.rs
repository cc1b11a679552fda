//! The scripts on a real server: each is idempotent for its token.

#[cfg(feature = "compression")]
mod mixed;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::*;
use crate::{
    entry::{self, Built, Entry, Head, Lifetime, Origin},
    key::Digest,
    link::support::redis::RedisServer,
    purges::{Moment, Reach},
    shared::{Marker, Place, Purpose, Slot},
    time::TierTime,
    token::Token,
};

const AMPLE: Duration = Duration::from_secs(20);

fn tier(server: &RedisServer) -> RedisTier {
    tier_with(server, Compression::NONE)
}

fn tier_with(server: &RedisServer, compression: Compression) -> RedisTier {
    let settings = Settings {
        namespace: "test".to_owned(),
        lease_ttl: AMPLE,
        command_timeout: AMPLE,
        compression,
        event_secret: None,
    };
    RedisTier::new(&server.client(), settings)
}

fn head(status: StatusCode) -> Head {
    Head {
        status,
        headers: HeaderMap::new(),
        variant: None,
        age: 0,
    }
}

/// The tag that only the entry names.
fn tag() -> Reach {
    Reach::Tag(Digest::of(b"tag"))
}

async fn purge(tier: &RedisTier, purge: Purge) {
    tier.purge(purge, Answers::Unwanted).await.unwrap();
}

fn uri() -> Digest {
    Digest::of(b"uri")
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
        awaited: None,
        lease_ttl: AMPLE,
        began: Moment::default(),
        tags: Arc::new([uri()]),
        deadline: Instant::now() + AMPLE,
    }
}

fn entry(body: &'static str) -> Entry {
    lasting(Duration::from_secs(60), body)
}

/// An entry that is stale at once, and may stand in for failures.
fn stale_entry(body: &'static str) -> Entry {
    lasting(Duration::ZERO, body)
}

fn lasting(fresh: Duration, body: &'static str) -> Entry {
    tagged(fresh, body, Box::from([Digest::of(b"tag")]))
}

fn tagged(fresh: Duration, body: &'static str, tags: Box<[Digest]>) -> Entry {
    let head = head(StatusCode::OK);
    let window = Duration::from_secs(60);
    let lifetime = Lifetime::starting(Instant::now(), fresh, Duration::ZERO, window);
    let origin = Origin {
        lifetime,
        tags,
        began: Moment::default(),
        built: Built::here(Instant::now()),
        build_time: Duration::from_millis(5),
    };
    Entry::new(head, Bytes::from(body), None, origin)
}

async fn leased(tier: &RedisTier, claim: &Claim) -> Lease {
    match tier.claim(claim).await.unwrap() {
        Claimed::Leased { lease, .. } => lease,
        other => panic!("{other:?}"),
    }
}

/// A claim after having waited for the lease that was held since then.
async fn waited(tier: &RedisTier, slot: Slot, since: TierTime) -> Claimed {
    let claim = Claim {
        awaited: Some(since),
        ..claim(slot)
    };
    tier.claim(&claim).await.unwrap()
}

/// Since when the lease is held that somebody else has.
async fn busy(tier: &RedisTier) -> TierTime {
    match tier.claim(&claim(Slot::Build)).await.unwrap() {
        Claimed::Busy { since, .. } => since,
        other => panic!("{other:?}"),
    }
}

/// Ends a build with a failure, which lasts for `memo`.
async fn fail(tier: &RedisTier, lease: &Lease, memo: Duration) -> Held {
    let head = head(StatusCode::BAD_GATEWAY);
    let failure = entry::unstored(head, Bytes::from("why"), None, Moment::default());
    let release = Release::Failed(memo, &failure);
    tier.release(lease, release).await.unwrap()
}

fn is_failure(claimed: &Claimed) -> bool {
    matches!(claimed, Claimed::Failed { failure, .. } if failure.body == "why")
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
        renews: None,
        began: TierTime::default(),
        ttl: AMPLE,
        hold: None,
    };

    tier.release(&lease, Release::Undo).await.unwrap();
    let ran = tier.claim(&late).await.unwrap();

    assert!(matches!(ran, Claimed::Absent { stale: None }), "{ran:?}");
    leased(&tier, &claim(Slot::Build)).await;
}

#[tokio::test]
async fn a_purge_that_runs_twice_fences_what_began_before_and_nothing_later() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let early = leased(&tier, &claim(Slot::Build)).await;

    purge(&tier, Purge::hard(tag())).await;
    purge(&tier, Purge::hard(tag())).await;

    assert_eq!(fill(&tier, &early, &entry("old")).await, Filled::FencedOff);
    let late = leased(&tier, &claim(Slot::Build)).await;
    assert_eq!(fill(&tier, &late, &entry("new")).await, Filled::Stored);
}

#[tokio::test]
async fn a_build_that_began_before_the_stored_one_is_not_stored_over_it() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let early = leased(&tier, &claim(Slot::Build)).await;
    let late = leased(&tier, &claim(Slot::Extra(1))).await;

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

#[tokio::test]
async fn a_failure_is_told_to_those_who_waited_for_its_build_and_to_nobody_else() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let lease = leased(&tier, &claim(Slot::Build)).await;
    let since = busy(&tier).await;

    assert_eq!(since, lease.began);
    assert_eq!(fail(&tier, &lease, AMPLE).await, Held::Ours);

    let told = waited(&tier, Slot::Build, since).await;
    assert!(is_failure(&told), "{told:?}");
    leased(&tier, &claim(Slot::Build)).await;
}

#[tokio::test]
async fn a_failure_from_before_the_awaited_build_is_not_told() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let failed = leased(&tier, &claim(Slot::Build)).await;
    fail(&tier, &failed, AMPLE).await;
    leased(&tier, &claim(Slot::Build)).await;

    let since = busy(&tier).await;

    let still = waited(&tier, Slot::Build, since).await;
    assert!(matches!(still, Claimed::Busy { .. }), "{still:?}");
}

#[tokio::test]
async fn a_failure_of_the_extra_build_is_not_told_to_those_who_wait_for_the_other() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let lease = leased(&tier, &claim(Slot::Build)).await;
    let extra = leased(&tier, &claim(Slot::Extra(1))).await;

    fail(&tier, &extra, AMPLE).await;

    let still = waited(&tier, Slot::Build, lease.began).await;
    assert!(matches!(still, Claimed::Busy { .. }), "{still:?}");
    let told = waited(&tier, Slot::Extra(1), extra.began).await;
    assert!(is_failure(&told), "{told:?}");
}

#[tokio::test]
async fn a_failure_from_before_a_purge_is_not_told_after_it() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let lease = leased(&tier, &claim(Slot::Build)).await;
    fail(&tier, &lease, AMPLE).await;

    purge(&tier, Purge::hard(Reach::Tag(uri()))).await;

    let after = waited(&tier, Slot::Build, lease.began).await;
    assert!(matches!(after, Claimed::Leased { .. }), "{after:?}");
}

#[tokio::test]
async fn a_failure_comes_with_the_stale_entry_that_may_stand_in_for_it() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let first = leased(&tier, &claim(Slot::Build)).await;
    fill(&tier, &first, &stale_entry("stale")).await;
    let lease = leased(&tier, &claim(Slot::Build)).await;
    fail(&tier, &lease, AMPLE).await;

    let told = waited(&tier, Slot::Build, lease.began).await;

    let Claimed::Failed { stale, .. } = told else {
        panic!("{told:?}");
    };
    assert_eq!(stale.unwrap().body, "stale");
}

#[tokio::test]
async fn nothing_is_marked_beside_a_fresh_entry() {
    let server = RedisServer::start();
    let tier = tier(&server);
    for slot in [Slot::Build, Slot::Extra(1)] {
        server.command::<()>(&["FLUSHALL"]);
        let lease = leased(&tier, &claim(Slot::Build)).await;
        let better = leased(&tier, &claim(Slot::Extra(1))).await;
        assert_eq!(fill(&tier, &better, &entry("entry")).await, Filled::Stored);

        let held = match slot {
            Slot::Build => fail(&tier, &lease, AMPLE).await,
            Slot::Extra(_) => {
                let release = Release::HitForMiss(AMPLE);
                tier.release(&lease, release).await.unwrap()
            }
        };

        assert_eq!(held, Held::Outdone);
        let left: Vec<String> = server.command(&["KEYS", "*:[lmf]"]);
        assert_eq!(
            left, [""; 0],
            "the lease is free, and nothing is beside the entry"
        );
    }
}

#[tokio::test]
async fn beside_the_entry_that_was_to_be_renewed_it_is_marked_what_came_of_that() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let first = leased(&tier, &claim(Slot::Build)).await;
    let known = Arc::new(entry("entry"));
    assert_eq!(fill(&tier, &first, &known).await, Filled::Stored);
    let renewing = |awaited| Claim {
        purpose: Purpose::Refresh,
        have: Some(Arc::clone(&known)),
        awaited,
        ..claim(Slot::Build)
    };

    let lease = leased(&tier, &renewing(None)).await;
    let busy = tier.claim(&renewing(None)).await.unwrap();
    assert!(matches!(busy, Claimed::Busy { .. }), "{busy:?}");
    assert_eq!(fail(&tier, &lease, AMPLE).await, Held::Ours);

    let told = tier.claim(&renewing(Some(lease.began))).await.unwrap();
    assert!(is_failure(&told), "{told:?}");
    let others = tier.claim(&claim(Slot::Build)).await.unwrap();
    assert!(matches!(others, Claimed::Fresh(_)), "{others:?}");
}

#[tokio::test]
async fn a_failure_leaves_the_hit_for_miss_marker_alone() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let first = leased(&tier, &claim(Slot::Build)).await;
    tier.release(&first, Release::HitForMiss(AMPLE))
        .await
        .unwrap();

    let probe = leased(&tier, &claim(Slot::Build)).await;
    fail(&tier, &probe, Duration::from_millis(1)).await;

    let next = tier.claim(&claim(Slot::Build)).await.unwrap();
    let Claimed::Leased { marker, .. } = next else {
        panic!("{next:?}");
    };
    assert!(
        matches!(marker, Marker::HitForMiss(left) if left > AMPLE / 2),
        "{marker:?}"
    );
}

#[tokio::test]
async fn what_is_stored_clears_all_that_is_marked_beside_it() {
    let server = RedisServer::start();
    let tier = tier(&server);
    for slot in [Slot::Build, Slot::Extra(1)] {
        let lease = leased(&tier, &claim(slot)).await;
        fail(&tier, &lease, AMPLE).await;
        let lease = leased(&tier, &claim(slot)).await;
        tier.release(&lease, Release::HitForMiss(AMPLE))
            .await
            .unwrap();
    }
    let lease = leased(&tier, &claim(Slot::Build)).await;

    fill(&tier, &lease, &entry("entry")).await;

    let left: Vec<String> = server.command(&["KEYS", "*:[mf]*"]);
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn nobody_waits_for_a_build_that_a_purge_has_overtaken() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let early = leased(&tier, &claim(Slot::Build)).await;

    purge(&tier, Purge::hard(Reach::Tag(uri()))).await;
    let late = leased(&tier, &claim(Slot::Build)).await;

    assert_eq!(tier.renew(&early).await.unwrap(), Held::Lost);
    assert_eq!(fill(&tier, &early, &entry("old")).await, Filled::FencedOff);
    assert_eq!(fill(&tier, &late, &entry("new")).await, Filled::Stored);
}

#[tokio::test]
async fn what_is_no_lease_of_ours_is_taken_over() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let name = tier.names.lease(&place(), Slot::Build);
    for garbage in [
        "",
        "garbage",
        "#32:0:x:",
        "0123456789abcdef0123456789abcdef",
    ] {
        server.command::<()>(&["SET", &name, garbage, "PX", "60000"]);
        let lease = leased(&tier, &claim(Slot::Build)).await;
        assert_eq!(tier.renew(&lease).await.unwrap(), Held::Ours);
        server.command::<()>(&["DEL", &name]);
    }
}

#[tokio::test]
async fn purging_all_reaches_what_began_before_and_nothing_later() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let lease = leased(&tier, &claim(Slot::Build)).await;
    let under_way = leased(&tier, &claim(Slot::Extra(1))).await;
    fill(&tier, &lease, &entry("old")).await;

    purge(&tier, Purge::hard(Reach::All)).await;

    let lease = leased(&tier, &claim(Slot::Build)).await;
    assert_eq!(
        fill(&tier, &under_way, &entry("old")).await,
        Filled::FencedOff
    );
    assert_eq!(fill(&tier, &lease, &entry("new")).await, Filled::Stored);
    let found = tier.claim(&claim(Slot::Build)).await.unwrap();
    assert!(matches!(found, Claimed::Fresh(found) if found.body == "new"));
}

#[tokio::test]
async fn a_soft_purge_makes_stale_and_fences_whatever_it_is_of() {
    for reach in [tag(), Reach::Tag(uri()), Reach::All] {
        let server = RedisServer::start();
        let tier = tier(&server);
        let lease = leased(&tier, &claim(Slot::Build)).await;
        let under_way = leased(&tier, &claim(Slot::Extra(1))).await;
        let tags = Box::from([Digest::of(b"tag"), uri()]);
        fill(&tier, &lease, &tagged(Duration::from_secs(60), "old", tags)).await;

        purge(&tier, Purge::soft(reach)).await;

        let next = tier.claim(&claim(Slot::Build)).await.unwrap();
        let Claimed::Leased { stale, lease, .. } = next else {
            panic!("{next:?}");
        };
        let stale = stale.unwrap();
        let now = Instant::now();
        assert_eq!(stale.body, "old");
        assert_eq!(stale.worth(now), entry::Worth::StaleIfError);
        assert!(
            stale.age(now) < 10,
            "no older than before: {}",
            stale.age(now)
        );
        let old = tagged(AMPLE, "old", Box::from([Digest::of(b"tag"), uri()]));
        assert_eq!(fill(&tier, &under_way, &old).await, Filled::FencedOff);
        assert_eq!(fill(&tier, &lease, &entry("new")).await, Filled::Stored);
        let found = tier.claim(&claim(Slot::Build)).await.unwrap();
        assert!(matches!(found, Claimed::Fresh(found) if found.body == "new"));
    }
}

#[tokio::test]
async fn what_has_no_stale_window_is_gone_after_a_soft_purge() {
    let server = RedisServer::start();
    let tier = tier(&server);
    let lease = leased(&tier, &claim(Slot::Build)).await;
    let none = Duration::ZERO;
    let mut brief = entry("old");
    brief.lifetime = Lifetime::starting(Instant::now(), AMPLE, none, none);
    fill(&tier, &lease, &brief).await;

    purge(&tier, Purge::soft(tag())).await;

    let next = tier.claim(&claim(Slot::Build)).await.unwrap();
    assert!(
        matches!(next, Claimed::Leased { stale: None, .. }),
        "{next:?}"
    );
}

/// Lets the server's clock appear to have gone back by an hour, as after a fail-over to a host whose clock
/// is late: all that it remembers of time is an hour ahead of it.
fn turn_back_the_clock(server: &RedisServer, tier: &RedisTier) {
    let (seconds, _micros): (u64, u64) = server.command(&["TIME"]);
    let ahead = ((seconds + 3600) * 1_000_000).to_string();
    server.command::<()>(&["ZADD", &tier.names.tags(&place()), &ahead, "#"]);
}

#[tokio::test]
async fn a_clock_that_goes_back_neither_hides_entries_from_purges_nor_fences_what_comes_later() {
    let server = RedisServer::start();
    let tier = tier(&server);
    leased(&tier, &claim(Slot::Extra(1))).await;
    turn_back_the_clock(&server, &tier);
    let lease = leased(&tier, &claim(Slot::Build)).await;
    assert_eq!(fill(&tier, &lease, &entry("old")).await, Filled::Stored);

    purge(&tier, Purge::hard(tag())).await;
    let after = leased(&tier, &claim(Slot::Build)).await;
    assert!(after.began > lease.began);
    assert_eq!(fill(&tier, &after, &entry("new")).await, Filled::Stored);

    let found = tier.claim(&claim(Slot::Build)).await.unwrap();
    assert!(matches!(found, Claimed::Fresh(found) if found.body == "new"));
}
