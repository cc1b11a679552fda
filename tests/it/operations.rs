//! What an operator sees: the response's own account, numbers, logs, and memory that is bounded.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::sleep;
use tower::Layer as _;
use tower_stampede::{BufferLayer, Cache, Switch, Target};
use tracing::{Subscriber, field::Field, span};
use tracing_subscriber::{
    Layer, fmt::format::FmtSpan, layer::Context, layer::SubscriberExt as _, registry::LookupSpan,
};

use crate::support::{
    client::{ask, attempt, behind, get, herd, same, settle, until, with},
    log::Log,
    origin::{Origin, OriginError, failure, fresh, held_if, no_store, reply},
};

// ===== numbers =====

#[tokio::test(start_paused = true)]
async fn the_numbers_add_up() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(10)).await;
        match call.parts.uri.path() {
            "/broken" => failure(500, "broken"),
            "/mine" => no_store("mine"),
            _ => fresh("body"),
        }
    });
    let service = behind(&BufferLayer::new(cache.clone()), &origin);

    same(&service, 5, "/report").answers().await;
    same(&service, 3, "/report").answers().await;
    same(&service, 4, "/broken").answers().await;
    same(&service, 6, "/mine").answers().await;
    ask(&service, with("/report", &[("cookie", "a=b")])).await;

    let stats = cache.stats();
    assert_eq!(
        (stats.hits, stats.collapsed, stats.failed, stats.bypassed),
        (3, 4, 3, 1)
    );
    assert_eq!(stats.builds, 1 + 1 + 6);
    assert_eq!(origin.builds(), 1 + 1 + 6 + 1);
}

#[tokio::test(start_paused = true)]
async fn local_entries_are_bounded_by_bytes() {
    let capacity = 1024 * 1024;
    let cache = Cache::builder().capacity(capacity).build().unwrap();
    let origin = Origin::new(|_| async { fresh(vec![b'x'; 10_000]) });
    let service = behind(&BufferLayer::new(cache.clone()), &origin);

    for page in 0..2000 {
        ask(&service, get(&format!("/page/{page}"))).await;
    }

    assert!(cache.stats().bytes <= capacity, "{:?}", cache.stats());
    let before = origin.builds();
    for page in 0..2000 {
        ask(&service, get(&format!("/page/{page}"))).await;
    }
    assert!(
        origin.builds() - before > 1500,
        "most of it has been evicted"
    );
}

// ===== the switch =====

#[tokio::test(start_paused = true)]
async fn a_switch_that_is_turned_under_load_takes_effect_at_once_and_fails_nobody() {
    let cache = Cache::in_memory();
    let (origin, gate) = held_if(
        |call| call.number == 2,
        |call| fresh(format!("build {}", call.number)),
    );
    let switch = Switch::default();
    let layer = BufferLayer::new(cache.clone()).switch(&switch);
    let service = behind(&layer, &origin);
    assert_eq!(ask(&service, get("/stored")).await.text(), "build 1");
    let early = same(&service, 20, "/slow");
    until(&cache, |stats| stats.waiters == 20).await;

    switch.off();
    let late = same(&service, 5, "/slow").answers().await;
    gate.open();
    let early = early.answers().await;
    assert!(
        early.iter().all(|answer| answer.text() == "build 2"),
        "they end as they began"
    );
    assert!(
        late.iter()
            .all(|answer| answer.status_line() == "stampede; fwd=bypass; detail=off")
    );
    assert_eq!(origin.builds(), 2 + 5);

    cache.purge(Target::all()).await.unwrap();
    switch.on();
    let after = same(&service, 20, "/stored").answers().await;
    assert!(
        after.iter().all(|answer| answer.text() == "build 8"),
        "nothing old comes back"
    );
    assert_eq!(origin.builds(), 8);
}

// ===== logs =====

#[tokio::test(start_paused = true)]
async fn logs_hold_neither_keys_nor_fields_nor_bodies() {
    let (log, _guard) = Log::at(tracing::Level::TRACE, FmtSpan::FULL);
    let cache = Cache::in_memory();
    let origin = Origin::fallible(|call| async move {
        sleep(Duration::from_millis(10)).await;
        match call.parts.uri.path() {
            "/SECRET/error" => Err(OriginError::new("broken")),
            "/SECRET/broken" => Ok(failure(500, "SECRET body")),
            "/SECRET/mine" => Ok(reply(&[("set-cookie", "sid=SECRET")], "SECRET body")),
            _ => Ok(fresh("SECRET body")),
        }
    });
    let service = behind(
        &BufferLayer::new(cache.clone())
            .vary_by_cookie("session")
            .name("reports"),
        &origin,
    );

    for path in [
        "/SECRET/error",
        "/SECRET/broken",
        "/SECRET/mine",
        "/SECRET/fine",
        "/SECRET/fine",
    ] {
        let request = || {
            with(
                &format!("{path}?token=SECRET"),
                &[("cookie", "session=SECRET")],
            )
        };
        herd(&service, [request(), request()]).outcomes().await;
        attempt(
            service.clone(),
            with(path, &[("authorization", "Bearer SECRET")]),
        )
        .await;
    }
    until(&cache, |stats| stats.flights == 0).await;

    assert!(log.text().contains("flight"), "the log is at work");
    assert!(!log.text().contains("SECRET"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn ordinary_work_is_silent_at_info() {
    let (log, _guard) = Log::at(tracing::Level::INFO, FmtSpan::FULL);
    let origin = Origin::new(|call| async move {
        match call.number % 3 {
            0 => no_store("mine"),
            1 => failure(500, "broken"),
            _ => fresh("body"),
        }
    });
    let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);

    for page in 0..1000 {
        ask(&service, get(&format!("/page/{page}"))).await;
    }

    assert_eq!(log.text(), "");
}

#[tokio::test(start_paused = true)]
async fn a_layer_says_once_that_credentials_bypass_it() {
    let (log, _guard) = Log::at(tracing::Level::INFO, FmtSpan::FULL);
    let origin = Origin::new(|_| async { fresh("body") });
    let service = behind(
        &BufferLayer::new(Cache::in_memory()).name("reports"),
        &origin,
    );

    for _ in 0..100 {
        ask(&service, with("/", &[("cookie", "session=SECRET")])).await;
    }

    assert_eq!(log.text().lines().count(), 1, "{}", log.text());
    assert!(log.text().contains("reports") && !log.text().contains("SECRET"));
}

#[tokio::test]
async fn a_layer_says_that_its_bodies_are_too_large_for_the_cache() {
    let (log, _guard) = Log::at(tracing::Level::INFO, FmtSpan::NONE);
    let cache = Cache::builder().capacity(1024 * 1024).build().unwrap();
    let origin = Origin::new(|_| async { fresh("body") });

    behind(&BufferLayer::new(cache.clone()).max_body(500_000), &origin);
    let fitting = log.text();
    behind(&BufferLayer::new(cache).max_body(2_000_000), &origin);

    assert_eq!(fitting, "");
    assert!(log.text().contains("max_body=2000000"), "{}", log.text());
}

/// Notes how the spans of flights and waits are related to others, and what is recorded of waits.
#[derive(Clone, Debug, Default)]
struct Relations(Arc<Mutex<Vec<String>>>);

impl Relations {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn count(&self, line: &str) -> usize {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|known| *known == line).count()
    }
}

impl<S> Layer<S> for Relations
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        let name = attributes.metadata().name();
        if name == "flight" {
            let kin = if attributes.is_root() {
                "root"
            } else {
                "child"
            };
            self.note(format!("flight is a {kin}"));
        }
        attributes.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "role" {
                self.note(format!("{name} as {value:?}"));
            }
        });
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let name = context.span(id).map_or("", |span| span.name());
        values.record(&mut |field: &Field, value: &dyn Debug| {
            self.note(format!("{name} {} {value:?}", field.name()));
        });
    }

    fn on_follows_from(&self, span: &span::Id, follows: &span::Id, context: Context<'_, S>) {
        let name = |id| context.span(id).map_or("", |span| span.name());
        self.note(format!("{} follows {}", name(span), name(follows)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_flight_is_nobodys_child_and_each_wait_follows_from_it_and_says_its_role_and_time() {
    let relations = Relations::default();
    let subscriber = tracing_subscriber::registry().with(relations.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let origin = Origin::new(|_| async {
        sleep(Duration::from_millis(250)).await;
        fresh("body")
    });
    let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);

    let client = async { same(&service, 3, "/").answers().await };
    tracing::Instrument::instrument(client, tracing::info_span!("client")).await;
    ask(&service, get("/")).await;
    settle().await;

    for (line, count) in [
        ("flight is a root", 1),
        ("wait as \"starter\"", 1),
        ("wait as \"waiter\"", 2),
        ("wait follows flight", 3),
        ("wait ms 250.0", 3),
    ] {
        assert_eq!(relations.count(line), count, "{line}: {relations:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flight_follows_from_its_starter() {
    let relations = Relations::default();
    let subscriber = tracing_subscriber::registry().with(relations.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let origin = Origin::new(|_| async { fresh("body") });
    let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);

    let span = tracing::info_span!("client");
    tracing::Instrument::instrument(ask(&service, get("/")), span).await;

    assert_eq!(relations.count("flight follows client"), 1, "{relations:?}");
}

#[tokio::test(start_paused = true)]
async fn debugging_output_shows_no_secrets() {
    let cache = Cache::in_memory();
    let layer = BufferLayer::new(cache.clone())
        .name("reports")
        .vary_by_cookie("session");
    let mut service = layer.layer(tower::service_fn(|_: http::Request<String>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::from("SECRET")))
    }));
    let request = http::Request::get("/SECRET").body(String::new()).unwrap();
    let answer = tower::Service::call(&mut service, request);

    let shown = format!("{cache:?} {layer:?} {service:?} {answer:?}");
    let response = answer.await.expect("it is answered");
    let shown = format!("{shown} {:?}", response.body());

    assert!(!shown.contains("SECRET"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_url_that_is_too_long_for_a_key_is_passed_on() {
    let origin = Origin::new(|_| async { fresh("body") });
    let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);

    let short = ask(&service, get(&format!("/{}", "x".repeat(8000)))).await;
    let long = ask(&service, get(&format!("/{}", "x".repeat(9000)))).await;

    assert!(short.status_line().contains("stored"));
    assert_eq!(
        long.status_line(),
        "stampede; fwd=bypass; detail=key-length"
    );
}
