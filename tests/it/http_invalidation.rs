//! What a request that may have changed something does to the entries it makes void.

use std::time::Duration;

use http::{Method, Request};
use tokio::time::sleep;
use tower::ServiceExt as _;
use tower_stampede::Cache;

use crate::support::{
    client::{Empties, Layered, ask, attempt, behind, get, herd, minute, settle},
    origin::{Origin, OriginError, fresh, reply},
};

fn unsafe_to(path: &str) -> Request<Empties> {
    let mut request = get(path);
    *request.method_mut() = Method::POST;
    request
}

/// An origin whose writes end as `write` says.
fn writing<F>(write: F) -> Origin
where
    F: Fn() -> Result<(), OriginError> + Copy + Send + Sync + 'static,
{
    Origin::fallible(move |call| async move {
        if call.parts.method != Method::POST {
            return Ok(fresh(format!("build {}", call.number)));
        }
        sleep(Duration::from_millis(100)).await;
        write().map(|()| fresh("written"))
    })
}

async fn is_kept(service: &Layered) -> bool {
    ask(service, get("/page"))
        .await
        .status_line()
        .starts_with("stampede; hit")
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_client_has_gone_purges_as_if_it_had_been_answered() {
    let cache = Cache::in_memory();
    let origin = writing(|| Ok(()));
    let service = behind(&minute(&cache), &origin);
    ask(&service, get("/page")).await;
    ask(&service, get("/other")).await;

    let writer = herd(&service, [unsafe_to("/page")]);
    settle().await;
    assert_eq!(origin.builds(), 3, "the write has begun");
    assert!(is_kept(&service).await, "it has not been answered");
    writer.leave(0);
    settle().await;

    assert!(!is_kept(&service).await);
    let other = ask(&service, get("/other")).await;
    assert!(other.status_line().contains("hit"));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_or_panics_without_an_answer_purges() {
    let failing = writing(|| Err(OriginError::new("the connection broke")));
    let panicking = writing(|| panic!("after the write"));
    for origin in [failing, panicking] {
        let service = behind(&minute(&Cache::in_memory()), &origin);
        ask(&service, get("/page")).await;

        let outcome = attempt(service.clone(), unsafe_to("/page")).await;

        assert!(outcome.is_error() || outcome.is_panic(), "{outcome:?}");
        assert!(!is_kept(&service).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_never_sent_purges_nothing() {
    let origin = writing(|| Ok(()));
    let service = behind(&minute(&Cache::in_memory()), &origin);
    ask(&service, get("/page")).await;

    drop(service.clone().oneshot(unsafe_to("/page")));
    settle().await;

    assert_eq!(origin.builds(), 1);
    assert!(is_kept(&service).await);
}

#[tokio::test(start_paused = true)]
async fn every_answer_to_every_method_has_its_effect_and_no_other() {
    for (method, status, voids) in [
        ("POST", 200, true),
        ("PUT", 204, true),
        ("PATCH", 200, true),
        ("DELETE", 303, true),
        ("UNHEARD-OF", 200, true),
        ("POST", 400, false),
        ("PUT", 409, false),
        ("DELETE", 500, false),
        ("OPTIONS", 200, false),
        ("TRACE", 200, false),
        ("CONNECT", 200, false),
    ] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let origin = Origin::new(move |call| async move {
            let mut response = reply(&[("cache-control", "max-age=60")], "page");
            if call.parts.method != Method::GET {
                *response.status_mut() = status.try_into().unwrap();
            }
            response
        });
        let service = behind(&minute(&Cache::in_memory()), &origin);
        ask(&service, get("/page")).await;

        let mut request = get("/page");
        *request.method_mut() = method.clone();
        ask(&service, request).await;

        assert_eq!(!is_kept(&service).await, voids, "{method} {status}");
    }
}
