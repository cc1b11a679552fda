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
    let mut bare = Subject::new(bare());
    let mut hit = Subject::new(layer().layer(bare.service.clone()))
        .warmed()
        .await;
    // The caches' own housekeeping, once in a while, is no call's.
    let fewest =
        |answer: &mut dyn FnMut()| (0..100).map(|_| measure(&mut *answer).count_total).min();
    let made = fewest(&mut || drop(request())).unwrap_or_default();
    let of_bare = fewest(&mut || drop(bare.answer_now(request()))).unwrap_or_default() - made;
    let of_hit = fewest(&mut || drop(hit.answer_now(request()))).unwrap_or_default() - made;
    println!("allocations of a hit: {of_hit} (goal: at most {GOAL})");
    println!("allocations of a bare service: {of_bare}");
    assert!(of_hit <= GOAL, "a hit makes more than {GOAL} allocations");
}
