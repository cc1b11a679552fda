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
    let hit = layer().layer(bare.service.clone());
    let mut hit = Subject::new("hit", hit).warmed().await;
    let route = get(async || (fields(), Bytes::from_static(&BODY)));
    let mut route = Subject::new("axum route", Router::new().route("/report", route));
    let around = layer().layer(route.service.clone());
    let mut around = Subject::new("hit before the router", around).warmed().await;
    let inside = route.service.clone().layer(layer());
    let mut inside = Subject::new("hit behind the routing", inside)
        .warmed()
        .await;

    let mut times = [const { Vec::new() }; 5];
    for _ in 0..ROUNDS {
        let round = [
            time(&mut bare),
            time(&mut hit),
            time(&mut route),
            time(&mut around),
            time(&mut inside),
        ];
        times
            .iter_mut()
            .zip(round)
            .for_each(|(times, time)| times.push(time));
    }
    let [of_bare, of_hit, of_route, of_around, of_inside] = times.map(quartile);
    report(
        (hit.name, of_hit),
        (bare.name, of_bare),
        ", goal: at most 1.3",
    );
    report(
        (around.name, of_around),
        (route.name, of_route),
        ", goal: at most 0.7",
    );
    report((inside.name, of_inside), (route.name, of_route), "");
}

fn report((name, time): (&str, f64), (base, of_base): (&str, f64), goal: &str) {
    let ratio = format!("{name} / {base}");
    println!(
        "{ratio:>40} {:>5.2} ({time:.0} ns / {of_base:.0} ns{goal})",
        time / of_base
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

/// The lower quartile: a round in which another process had the core is not what is asked for.
fn quartile(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 4).copied().unwrap_or_default()
}
