//! How many allocations a hit makes: `cargo bench --bench allocations`.
//!
//! Apart from the timing, since counting has its own cost.
#![expect(clippy::print_stdout, reason = "the report is what it is for")]

mod parts;

use allocation_counter::measure;
use parts::{Subject, bare, layer, request};
use tower::Layer as _;

const GOAL: u64 = 8;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let bare = Subject::new("bare service", bare());
    let hit = Subject::new("hit", layer().layer(bare.service.clone()))
        .warmed()
        .await;
    // The caches' own housekeeping, once in a while, is no call's.
    let fewest = |answer: &dyn Fn()| (0..100).map(|_| measure(answer).count_total).min();
    let made = fewest(&|| drop(request())).unwrap_or_default();
    let of_bare = fewest(&|| drop(bare.answer_now(request()))).unwrap_or_default() - made;
    let of_hit = fewest(&|| drop(hit.answer_now(request()))).unwrap_or_default() - made;
    println!("allocations of a hit: {of_hit} (goal: at most {GOAL}; bare service: {of_bare})");
    assert!(of_hit <= GOAL, "a hit makes more than {GOAL} allocations");
}
