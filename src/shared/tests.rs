//! What a tier that fails costs those who ask it, on a paused clock.

use std::{
    future::{pending, ready},
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::future::join_all;
use tokio::time::advance;

use super::{tier::Told, *};
use crate::{
    purges::{Moment, Purges},
    time::TierTime,
    token::Token,
};

const BUDGET: Duration = Duration::from_millis(250);

/// A tier that is in a mood, and counts how often it is asked.
#[derive(Debug)]
struct Moody {
    mood: Mutex<Mood>,
    claims: AtomicUsize,
    releases: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
enum Mood {
    Answers,
    Hangs,
    Fails(Fault),
}

impl Moody {
    fn becomes(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn claims(&self) -> usize {
        self.claims.load(Ordering::SeqCst)
    }

    fn releases(&self) -> usize {
        self.releases.load(Ordering::SeqCst)
    }

    async fn answer<T>(&self, answer: T) -> Result<T, Outage> {
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::Answers => Ok(answer),
            Mood::Hangs => pending().await,
            Mood::Fails(fault) => Err(Outage {
                effect: Effect::None,
                fault,
                source: "a bad mood".into(),
            }),
        }
    }
}

impl Tier for Moody {
    fn claim<'a>(&'a self, _: &'a Claim) -> tier::Answer<'a, Claimed> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        Box::pin(self.answer(Claimed::Absent { stale: None }))
    }

    fn fill<'a>(&'a self, _: Fill<'a>) -> tier::Answer<'a, Filled> {
        Box::pin(self.answer(Filled::Stored))
    }

    fn renew<'a>(&'a self, _: &'a Lease) -> tier::Answer<'a, Held> {
        Box::pin(self.answer(Held::Ours))
    }

    fn release<'a>(&'a self, _: &'a Lease, _: Release<'a>) -> tier::Answer<'a, Held> {
        self.releases.fetch_add(1, Ordering::SeqCst);
        Box::pin(self.answer(Held::Ours))
    }

    fn purge(&self, _: Purge, _: Answers) -> tier::Answer<'_, Told> {
        let told = Told {
            processes: None,
            heeded: None,
        };
        Box::pin(self.answer(told))
    }

    fn prepare(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(ready(true))
    }

    fn follow(&self, _: &Arc<Coherence>) {}

    fn health(&self) -> Vec<LinkHealth> {
        Vec::new()
    }

    fn lease_ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn realm(&self) -> String {
        String::new()
    }
}

/// A tier in this mood, whose events flow.
fn in_mood(mood: Mood) -> (Arc<Moody>, Arc<Shared>) {
    let tier = Arc::new(Moody {
        mood: Mutex::new(mood),
        claims: AtomicUsize::default(),
        releases: AtomicUsize::default(),
    });
    let coherence = Coherence::new(Arc::new(Purges::new(10)));
    coherence.resumed();
    let shared: Arc<dyn Tier> = Arc::<Moody>::clone(&tier);
    (tier, Arc::new(Shared::new(shared, coherence, BUDGET)))
}

fn place() -> Place {
    Place {
        resource: Digest::of(b"resource"),
        resource_proof: [7; 32],
        variant: None,
        proof: [7; 32],
    }
}

fn lease() -> Arc<Lease> {
    Arc::new(Lease {
        place: place(),
        slot: Slot::Build,
        token: Token::random().unwrap(),
        renews: None,
        began: TierTime::default(),
        ttl: Duration::from_secs(3),
        hold: None,
    })
}

fn claim(purpose: Purpose) -> Claim {
    Claim {
        place: place(),
        slot: Slot::Build,
        token: Token::random().unwrap(),
        have: None,
        purpose,
        awaited: None,
        lease_ttl: Duration::from_secs(3),
        began: Moment::default(),
        tags: Arc::default(),
        deadline: Instant::now(),
    }
}

/// One request's look; whether the tier answered it.
async fn asks(shared: &Arc<Shared>) -> bool {
    let mut budget = shared.budget();
    let answer = shared.claim(claim(Purpose::Look), &mut budget);
    answer.await.is_some()
}

async fn ask_in_turn(shared: &Arc<Shared>, times: usize) {
    for _ in 0..times {
        asks(shared).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_budget_and_once_the_breaker_is_open_not_at_all() {
    let (tier, shared) = in_mood(Mood::Hangs);
    let start = Instant::now();

    assert!(!asks(&shared).await);
    assert_eq!(start.elapsed(), BUDGET);

    ask_in_turn(&shared, 4).await;
    let (open, asked) = (Instant::now(), tier.claims());
    ask_in_turn(&shared, 1000).await;
    assert_eq!((open.elapsed(), tier.claims()), (Duration::ZERO, asked));
    assert_eq!(shared.stats(Stats::default()).shared_skipped, 1000);
}

#[tokio::test(start_paused = true)]
async fn of_a_crowd_one_probes_and_nobody_else_waits_for_that() {
    let (tier, shared) = in_mood(Mood::Hangs);
    ask_in_turn(&shared, 5).await;
    let before = tier.claims();

    advance(2 * BUDGET).await;
    let start = Instant::now();
    let crowd = join_all((0..100).map(|_| async {
        asks(&shared).await;
        start.elapsed()
    }));
    let waited = crowd.await;

    assert_eq!(tier.claims() - before, 1);
    let patient = waited.iter().filter(|waited| !waited.is_zero()).count();
    assert_eq!(patient, 1, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn within_a_second_of_its_return_everybody_asks_again() {
    let (tier, shared) = in_mood(Mood::Hangs);
    ask_in_turn(&shared, 5).await;
    for _ in 0..20 {
        advance(2 * BUDGET).await;
        assert!(!asks(&shared).await, "it is still away");
    }
    tier.becomes(Mood::Answers);
    let back = Instant::now();

    while !asks(&shared).await {
        advance(Duration::from_millis(10)).await;
    }

    assert!(back.elapsed() <= Duration::from_secs(1));
    assert!(
        join_all((0..100).map(|_| asks(&shared)))
            .await
            .iter()
            .all(|answered| *answered)
    );
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_is_there_is_asked_on_whatever_it_says_and_a_crowd_is_no_outage() {
    for fault in [
        Fault::Partial,
        Fault::Refused,
        Fault::OutOfMemory,
        Fault::Garbled,
        Fault::Overloaded,
    ] {
        let (tier, shared) = in_mood(Mood::Fails(fault));

        ask_in_turn(&shared, 50).await;

        assert_eq!(tier.claims(), 50, "{fault:?}");
    }
}

type Count = fn(&Stats) -> u64;

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_their_kind() {
    let kinds: [(Fault, Count); 7] = [
        (Fault::Unreachable, |stats| {
            stats.shared_failures.unreachable
        }),
        (Fault::TimedOut, |stats| stats.shared_failures.timed_out),
        (Fault::Lost, |stats| stats.shared_failures.lost),
        (Fault::Overloaded, |stats| stats.shared_failures.overloaded),
        (Fault::Refused, |stats| stats.shared_failures.refused),
        (Fault::OutOfMemory, |stats| {
            stats.shared_failures.out_of_memory
        }),
        (Fault::Garbled, |stats| stats.shared_failures.garbled),
    ];
    for (fault, count) in kinds {
        let (_tier, shared) = in_mood(Mood::Fails(fault));

        ask_in_turn(&shared, 3).await;

        let stats = shared.stats(Stats::default());
        assert_eq!(
            (count(&stats), stats.shared_failures.total()),
            (3, 3),
            "{fault:?}"
        );
    }
    let (_tier, shared) = in_mood(Mood::Hangs);
    ask_in_turn(&shared, 2).await;
    assert_eq!(shared.stats(Stats::default()).shared_failures.timed_out, 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_given_back_as_soon_as_the_tier_is_there_again() {
    for fault in [
        Fault::Unreachable,
        Fault::Partial,
        Fault::Lost,
        Fault::TimedOut,
    ] {
        let (tier, shared) = in_mood(Mood::Fails(fault));
        shared.give_back(lease());
        while tier.releases() < 3 {
            advance(Duration::from_millis(10)).await;
        }

        tier.becomes(Mood::Answers);
        let before = tier.releases();
        let start = Instant::now();
        shared.gave_all_back().await;

        assert_eq!(tier.releases() - before, 1, "{fault:?}");
        assert!(start.elapsed() <= Duration::from_millis(500));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_over_or_may_not_be_given_back_is_let_go() {
    let (tier, shared) = in_mood(Mood::Fails(Fault::Refused));
    shared.give_back(lease());
    shared.gave_all_back().await;
    assert_eq!(tier.releases(), 1);

    tier.becomes(Mood::Fails(Fault::Unreachable));
    let start = Instant::now();
    shared.give_back(lease());
    shared.gave_all_back().await;
    assert!(
        start.elapsed() <= Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_waits_for_any_more_is_undone() {
    let (tier, shared) = in_mood(Mood::Hangs);
    let mut budget = shared.budget();
    let asking = shared.claim(claim(Purpose::Serve), &mut budget);
    assert!(timeout(BUDGET / 2, asking).await.is_err());
    tier.becomes(Mood::Answers);

    shared.gave_all_back().await;

    assert_eq!(tier.releases(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_undone_however_long_the_tier_has_stood_still() {
    let (tier, shared) = in_mood(Mood::Hangs);
    let mut budget = shared.budget();
    assert!(
        shared
            .claim(claim(Purpose::Serve), &mut budget)
            .await
            .is_none()
    );

    tier.becomes(Mood::Fails(Fault::Unreachable));
    for _ in 0..3000 {
        advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
    let before = tier.releases();
    tier.becomes(Mood::Answers);
    let back = Instant::now();
    shared.gave_all_back().await;

    assert_eq!(tier.releases() - before, 1);
    assert!(back.elapsed() <= Duration::from_secs(1));
}
