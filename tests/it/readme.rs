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

    let app = Router::new().route("/report", get(report)).layer(
        BufferLayer::new(cache.clone())
            .ttl(Duration::from_secs(60))
            .stale_while_revalidate(Duration::from_secs(30)),
    );

    // After a write:
    cache.purge(&"http://shop.example/report".parse()?).await?;
    // README
    Ok(app)
}

fn unindented(lines: &str) -> Vec<&str> {
    lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn the_readme_shows_the_program_that_is_tested_here() {
    let readme = include_str!("../../README.md");
    let shown = readme
        .split("```rust\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let tested = include_str!("readme.rs")
        .split("    // README\n")
        .nth(1)
        .unwrap();
    let tested = tested.replace("(server)", "(\"redis://127.0.0.1/\")");

    assert_eq!(unindented(shown), unindented(&tested));
}

#[tokio::test]
async fn the_readmes_program_serves_from_what_it_has_built() -> Result<(), Box<dyn Error>> {
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
