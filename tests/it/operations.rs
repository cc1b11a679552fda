//! What an operator sees: the response's own account, numbers, logs, and memory that is bounded.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, StatusCode};
use tokio::time::sleep;
use tower::Layer as _;
use tower_stampede::{BufferLayer, Cache, Fallback, Switch, Target};
use tracing::{Subscriber, span};
use tracing_subscriber::{
    Layer, fmt::format::FmtSpan, layer::Context, layer::SubscriberExt as _, registry::LookupSpan,
};

use crate::support::{
    client::{Answer, ask, attempt, behind, get, herd, same, settle, until, with},
    log::Log,
    origin::{Gate, Origin, OriginError, failure, fresh, held, held_if, no_store, reply},
};

// ===== Cache-Status =====

#[tokio::test(start_paused = true)]
async fn every_answer_says_where_it_comes_from() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        sleep(Duration::from_millis(10)).await;
        reply(
            &[("cache-control", "max-age=60, stale-while-revalidate=60")],
            "body",
        )
    });
    let service = behind(&BufferLayer::new(cache.clone()), &origin);

    let herd = same(&service, 2, "/").answers().await;
    sleep(Duration::from_secs(10)).await;
    let hit = ask(&service, get("/")).await;
    sleep(Duration::from_secs(55)).await;
    let stale = ask(&service, get("/")).await;
    let mut post = get("/");
    *post.method_mut() = Method::POST;
    let post = ask(&service, post).await;
    let bypass = ask(&service, with("/", &[("cookie", "a=b")])).await;

    assert_eq!(
        herd[0].status_line(),
        "stampede; fwd=uri-miss; stored; ttl=60"
    );
    assert_eq!(herd[1].status_line(), "stampede; fwd=uri-miss; collapsed");
    assert_eq!(hit.status_line(), "stampede; hit; ttl=50");
    assert_eq!(hit.header("age"), "10");
    assert!(
        stale.status_line().starts_with("stampede; hit; ttl=-"),
        "{}",
        stale.status_line()
    );
    assert_eq!(post.status_line(), "stampede; fwd=method");
    assert_eq!(bypass.status_line(), "stampede; fwd=bypass; detail=cookie");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_not_stored_says_why() {
    let responses: [(&str, &str, &str); 5] = [
        ("cache-control", "no-store", "no-store"),
        ("cache-control", "private", "private"),
        ("set-cookie", "a=b", "set-cookie"),
        ("vary", "*", "vary-star"),
        ("x-nothing", "of note", "no-freshness"),
    ];
    for (name, value, detail) in responses {
        let origin = Origin::new(move |_| async move { reply(&[(name, value)], "body") });
        let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);

        let answer = ask(&service, get("/")).await;

        assert_eq!(
            answer.status_line(),
            format!("stampede; fwd=uri-miss; detail={detail}")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_and_a_failure_say_so() {
    let cache = Cache::in_memory();
    let gate = Gate::closed();
    let origin = Origin::new(move |call| {
        let gate = gate.clone();
        async move {
            if call.parts.uri.path() == "/stuck" {
                gate.pass().await;
            }
            failure(500, "broken")
        }
    });
    let layer = BufferLayer::new(cache.clone())
        .wait_timeout(Duration::from_millis(10))
        .build_timeout(Duration::from_millis(50));
    let rejecting = behind(&layer.clone().fallback(Fallback::Reject), &origin);
    let patient = behind(&layer, &origin);

    let rejected = ask(&rejecting, get("/stuck")).await;
    let failed = ask(&patient, get("/broken")).await;
    let remembered = ask(&patient, get("/broken")).await;
    let timed_out = ask(&patient, get("/stuck?again")).await;

    assert_eq!(
        rejected.status_line(),
        "stampede; fwd=uri-miss; detail=wait-timeout"
    );
    assert_eq!(
        failed.status_line(),
        "stampede; fwd=uri-miss; detail=failed"
    );
    assert_eq!(
        remembered.status_line(),
        "stampede; fwd=uri-miss; collapsed; detail=failed"
    );
    assert_eq!(timed_out.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        timed_out.status_line(),
        "stampede; fwd=uri-miss; detail=build-timeout"
    );
}

#[tokio::test(start_paused = true)]
async fn one_variant_too_many_is_not_said_to_be_stored() {
    let origin = Origin::new(|call| async move {
        let fields = [("cache-control", "max-age=60"), ("vary", "x-kind")];
        reply(&fields, call.header("x-kind"))
    });
    let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);

    for kind in 0..18 {
        let kind = kind.to_string();
        let answer = ask(&service, with("/", &[("x-kind", &kind)])).await;
        let said = match kind.parse::<u32>() {
            Ok(0..16) => "stampede; fwd=uri-miss; stored; ttl=60",
            _ => "stampede; fwd=uri-miss; detail=variants",
        };
        let line = answer.status_line().replace("vary-miss", "uri-miss");
        assert_eq!(line, said, "{kind}");
    }
    let kept = ask(&service, with("/", &[("x-kind", "7")])).await;
    assert!(kept.status_line().contains("hit"));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_the_cache_is_not_said_to_be_stored() {
    for declared in [None, Some("900000")] {
        let cache = Cache::builder().capacity(1024 * 1024).build().unwrap();
        let (origin, mut streams) = Origin::streaming(move |_| {
            let mut response =
                crate::support::origin::head(StatusCode::OK, &[("cache-control", "max-age=60")]);
            if let Some(length) = declared {
                let length = length.parse().unwrap();
                response.headers_mut().insert("content-length", length);
            }
            response
        });
        let layer = BufferLayer::new(cache.clone()).max_body(1_000_000);
        let service = behind(&layer, &origin);
        let asked = same(&service, 1, "/");
        let frames = streams.recv().await.unwrap();
        frames.data(vec![b'x'; 900_000]);
        if declared.is_some() {
            // The head goes first.
            settle().await;
        }
        frames.end();
        let answer = asked.answers().await.remove(0);

        assert_eq!(
            answer.status_line(),
            "stampede; fwd=uri-miss; detail=capacity"
        );
        let again = same(&service, 1, "/");
        drop(streams.recv().await.expect("it is built again"));
        again.answers().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_purge_has_overtaken_is_not_said_to_be_stored() {
    let cache = Cache::in_memory();
    let (origin, gate) = held();
    let service = behind(&BufferLayer::new(cache.clone()), &origin);
    let herd = same(&service, 2, "/");
    origin.called(1).await;

    cache.purge(Target::all()).await.unwrap();
    gate.open();

    let answers = herd.answers().await;
    let lines = answers.iter().map(Answer::status_line);
    assert_eq!(
        lines.collect::<Vec<_>>(),
        [
            "stampede; fwd=uri-miss; detail=overtaken",
            "stampede; fwd=uri-miss; collapsed"
        ]
    );
}

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

/// Notes how each flight's span is related to others.
#[derive(Clone, Default)]
struct Relations(Arc<Mutex<Vec<String>>>);

impl<S> Layer<S> for Relations
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        if attributes.metadata().name() == "flight" {
            let root = if attributes.is_root() {
                "root"
            } else {
                "child"
            };
            self.0.lock().unwrap().push(root.to_owned());
        }
    }

    fn on_follows_from(&self, span: &span::Id, follows: &span::Id, context: Context<'_, S>) {
        let name = |id| context.span(id).map_or("", |span| span.name());
        self.0
            .lock()
            .unwrap()
            .push(format!("{} follows {}", name(span), name(follows)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_flight_follows_from_its_starter_and_is_nobodys_child() {
    let relations = Relations::default();
    let subscriber = tracing_subscriber::registry().with(relations.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let origin = Origin::new(|_| async { fresh("body") });
    let service = behind(&BufferLayer::new(Cache::in_memory()), &origin);

    let span = tracing::info_span!("client");
    tracing::Instrument::instrument(ask(&service, get("/")), span).await;
    settle().await;

    assert_eq!(
        *relations.0.lock().unwrap(),
        ["root", "flight follows client"]
    );
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
