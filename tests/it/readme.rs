//! The README's program compiles, and does what the README says.

use std::error::Error;

use crate::support::redis::RedisServer;

async fn report() -> String {
    format!("report {}", fastrand::u64(..))
}

/// What the README shows, to the letter, but for the server's address.
async fn usage(server: &str) -> Result<axum::Router, Box<dyn Error>> {
    // README
    use std::time::Duration;

    use axum::{Router, routing::get};
    use tower_stampede::{BufferLayer, Cache};

    let cache = Cache::builder()
        .redis(server) // leave this out for one process
        .namespace("shop")
        .build()?; // never connects, never fails because Redis is down
    cache.connect().await; // optional: else the first request does, and waits for it

    let app = Router::new().route("/report", get(report)).layer(
        BufferLayer::new(cache.clone())
            .ttl(Duration::from_secs(60))
            .stale_while_revalidate(Duration::from_secs(30)),
    );

    // After a write; this, of all, is an error while Redis is down:
    cache.purge(&"http://shop.example/report".parse()?).await?;
    // README
    Ok(app)
}

/// The README's second program, as it is there, and routes to it.
fn control(cache: &tower_stampede::Cache) -> axum::Router {
    use std::time::Duration;

    use axum::{http::StatusCode, routing::get};
    use tower_stampede::{BufferLayer, Cache};

    // README
    use axum::extract::{Path, State};
    use tower_stampede::{CacheTags, CacheTtl, PurgeError};

    async fn show(Path(id): Path<u32>) -> (CacheTtl, CacheTags, String) {
        let ttl = CacheTtl::new(Duration::from_secs(300)); // or NoCache
        let tags = CacheTags::new(["products".to_owned(), format!("product-{id}")]);
        (ttl, tags, format!("product {id}"))
    }

    async fn change(State(cache): State<Cache>, Path(id): Path<u32>) -> Result<String, PurgeError> {
        // ... the write, and then:
        let purged = cache.purge_tag(format!("product-{id}")).await?;
        Ok(format!(
            "heeded by {} of {:?}",
            purged.acknowledged, purged.processes
        ))
    }
    // README
    let change = |state, path| async {
        let changed = change(state, path).await;
        changed.map_err(|error| (StatusCode::BAD_GATEWAY, error.to_string()))
    };
    axum::Router::new()
        .route("/products/{id}", get(show).put(change))
        .layer(BufferLayer::new(cache.clone()))
        .with_state(cache.clone())
}

fn unindented(lines: &str) -> Vec<&str> {
    lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn the_readme_shows_the_programs_that_are_tested_here() {
    let readme = include_str!("../../README.md");
    let shown: Vec<_> = readme
        .split("```rust\n")
        .skip(1)
        .map(|rest| unindented(rest.split("```").next().unwrap()))
        .collect();
    let tested = include_str!("readme.rs").replace("(server)", "(\"redis://127.0.0.1/\")");
    let tested: Vec<_> = tested
        .split("    // README\n")
        .skip(1)
        .step_by(2)
        .map(unindented)
        .collect();

    assert_eq!(shown, tested);
}

#[tokio::test]
async fn the_readmes_first_program_serves_from_what_it_has_built() -> Result<(), Box<dyn Error>> {
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt as _;

    let redis = RedisServer::start();
    let app = usage(&redis.url()).await?;
    let ask = async || -> Result<_, Box<dyn Error>> {
        let request = http::Request::get("http://shop.example/report").body(Body::empty())?;
        let response = app.clone().oneshot(request).await?;
        Ok(to_bytes(response.into_body(), 1000).await?)
    };

    assert_eq!(ask().await?, ask().await?);
    Ok(())
}

#[tokio::test]
async fn the_readmes_second_program_purges_what_it_changes() -> Result<(), Box<dyn Error>> {
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt as _;

    let cache = tower_stampede::Cache::in_memory();
    let app = control(&cache);
    let ask = async |method: &str, path: &str| -> Result<_, Box<dyn Error>> {
        let uri = format!("http://shop.example/products/{path}");
        let request = http::Request::builder().method(method).uri(uri);
        let response = app.clone().oneshot(request.body(Body::empty())?).await?;
        let outcome = response.headers()["cache-status"].to_str()?.to_owned();
        Ok((outcome, to_bytes(response.into_body(), 1000).await?))
    };
    for id in ["1", "2"] {
        assert_eq!(ask("GET", id).await?.1, format!("product {id}"));
        assert!(ask("GET", id).await?.0.contains("hit; ttl=2"));
    }

    assert_eq!(ask("PUT", "1").await?.1, "heeded by 1 of Some(1)");

    assert!(!ask("GET", "1").await?.0.contains("hit"));
    assert!(ask("GET", "2").await?.0.contains("hit"));
    cache.purge_tag("products").await?;
    assert!(!ask("GET", "2").await?.0.contains("hit"));
    Ok(())
}
