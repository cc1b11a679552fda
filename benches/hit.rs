//! What a hit costs, as ratios measured in one run: `cargo bench --bench hit`.
//!
//! A hit before a bare tower service is compared with that service, and a hit with an axum router
//! with the router's own route. Both of a pair are driven by the same loop, in turns, so that
//! whatever else the machine does touches both: make a request with the fields that a browser
//! sends, call, await, read the body to its end.
#![expect(clippy::print_stdout, reason = "the report is what it is for")]

mod parts;

use std::{fmt, hint::black_box};

use axum::{Router, body::Body as RequestBody, routing::get};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use parts::{BODY, Subject, bare, fields, layer, request};
use tokio::time::Instant;
use tower::{Layer as _, Service};

const ROUNDS: usize = 5_000;
const CALLS: u32 = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut bare = Subject::new("bare service", bare());
    let mut hit = Subject::new("hit", layer().layer(bare.service.clone()))
        .warmed()
        .await;
    compare(&mut bare, &mut hit, Some(1.3));

    let mut route = Subject::new(
        "axum route",
        Router::new().route(
            "/report",
            get(async || (fields(), Bytes::from_static(&BODY))),
        ),
    );
    let around = layer().layer(route.service.clone());
    let mut before = Subject::new("hit before the router", around).warmed().await;
    compare(&mut route, &mut before, Some(0.7));
    let inside = route.service.clone().layer(layer());
    let mut behind = Subject::new("hit behind the routing", inside)
        .warmed()
        .await;
    compare(&mut route, &mut behind, None);
}

/// Times both in turns, and prints the ratio of their lower quartiles: a round in which another
/// process had the core is not what is asked for.
fn compare<S, T, B, C>(base: &mut Subject<S, B>, subject: &mut Subject<T, C>, goal: Option<f64>)
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: fmt::Debug> + Clone,
    T: Service<Request<RequestBody>, Response = Response<C>, Error: fmt::Debug> + Clone,
    B: Body<Data = Bytes, Error: fmt::Debug>,
    C: Body<Data = Bytes, Error: fmt::Debug>,
{
    let (mut bases, mut subjects): (Vec<_>, Vec<_>) =
        (0..ROUNDS).map(|_| (time(base), time(subject))).unzip();
    let (bases, subjects) = (quartile(&mut bases), quartile(&mut subjects));
    let ratio = format!("{} / {}", subject.name, base.name);
    let goal = goal
        .map(|goal| format!(", goal: at most {goal}"))
        .unwrap_or_default();
    println!(
        "{ratio:>40} {:>5.2} ({subjects:.0} ns / {bases:.0} ns{goal})",
        subjects / bases
    );
}

/// How long one call takes, in nanoseconds.
fn time<S, B>(subject: &mut Subject<S, B>) -> f64
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: fmt::Debug> + Clone,
    B: Body<Data = Bytes, Error: fmt::Debug>,
{
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(subject.answer_now(request()));
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn quartile(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 4).copied().unwrap_or_default()
}
