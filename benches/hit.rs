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

/// Caches made anew: where a cache's parts happen to lie in memory, and how its keys are scattered,
/// makes a difference of some percent.
const CACHES: usize = 40;
const ROUNDS: usize = 250;
const CALLS: u32 = 100;

const NAMES: [&str; 5] = [
    "bare service",
    "hit",
    "axum route",
    "hit before the router",
    "hit behind the routing",
];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut caches = Vec::new();
    for _ in 0..CACHES {
        caches.push(measured().await);
    }
    let [bare, hit, route, before, behind] = quantiles(caches, 2);
    let [of_bare, of_hit, of_route, of_before, of_behind] = NAMES;
    report((of_hit, hit), (of_bare, bare), ", goal: at most 1.3");
    report(
        (of_before, before),
        (of_route, route),
        ", goal: at most 0.7",
    );
    report((of_behind, behind), (of_route, route), "");
}

/// How long a call of each subject takes, in nanoseconds.
///
/// The lower quartile: a round in which another process had the core is not what is asked for.
async fn measured() -> [f64; NAMES.len()] {
    let mut bare = Subject::new(bare());
    let hit = layer().layer(bare.service.clone());
    let mut hit = Subject::new(hit).warmed().await;
    let route = get(async || (fields(), Bytes::from_static(&BODY)));
    let mut route = Subject::new(Router::new().route("/report", route));
    let before = layer().layer(route.service.clone());
    let mut before = Subject::new(before).warmed().await;
    let behind = route.service.clone().layer(layer());
    let mut behind = Subject::new(behind).warmed().await;

    let rounds = (0..ROUNDS).map(|_| {
        [
            time(&mut bare),
            time(&mut hit),
            time(&mut route),
            time(&mut before),
            time(&mut behind),
        ]
    });
    quantiles(rounds, 4)
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

/// Of each column the value below which one `part`th of its values are.
fn quantiles<const N: usize>(rows: impl IntoIterator<Item = [f64; N]>, part: usize) -> [f64; N] {
    let mut columns = [const { Vec::new() }; N];
    for row in rows {
        let cells = columns.iter_mut().zip(row);
        cells.for_each(|(column, cell)| column.push(cell));
    }
    columns.map(|mut column| {
        column.sort_by(f64::total_cmp);
        column.get(column.len() / part).copied().unwrap_or_default()
    })
}
