//! New entries that are wanted while another worker builds one: on request, and ahead of time.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tokio::task::JoinHandle;
use tower_stampede::{BufferLayer, Cache, Target};

use crate::support::{
    redis::RedisServer,
    tiers::Tier,
    worker::{
        AMPLE, Answer, Handler, Incoming, Outgoing, Worker, builder, caching, failing, get, layer,
        settled, text, uncacheable, waiting,
    },
};

/// What makes a worker want a new entry.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wish {
    /// A request that renews.
    OnRequest,
    /// A hit, on which nobody waits for the new one.
    AheadOfTime,
}

impl Wish {
    fn on(self, layer: BufferLayer) -> BufferLayer {
        match self {
            Self::OnRequest => layer.refresh_if(|request| request.headers.contains_key("x-renew")),
            Self::AheadOfTime => layer.refresh_after(0.0),
        }
    }
}

/// A worker, by the layer that wants new entries and by one that takes what there is.
struct Site {
    cache: Cache,
    wishing: Worker,
    plain: Worker,
}

impl Site {
    /// Holds the first build.
    async fn warm(cache: Cache, wish: Wish, handler: &Handler, respond: Respond) -> Self {
        let site = Self::cold(cache, wish, handler, respond);
        Handler::open()
            .worker(&layer(&site.cache), text)
            .get("/a")
            .await;
        settled(&site.cache).await;
        site
    }

    fn cold(cache: Cache, wish: Wish, handler: &Handler, respond: Respond) -> Self {
        Self {
            wishing: handler.worker(&wish.on(layer(&cache)), respond),
            plain: handler.worker(&layer(&cache), respond),
            cache,
        }
    }

    fn renew(&self) -> JoinHandle<Answer> {
        let worker = self.wishing.clone();
        tokio::spawn(async move {
            let mut request = get("/a");
            let fields = request.headers_mut();
            fields.insert("x-renew", HeaderValue::from_static("1"));
            worker.send(request).await
        })
    }
}

type Respond = fn(usize, &Incoming) -> Outgoing;

/// It may answer while it is refreshed.
fn renewed(build: usize, request: &Incoming) -> Outgoing {
    let directives = "max-age=600, stale-while-revalidate=600";
    let response = caching(build, request, directives);
    response.map(|_| format!("renewed by {build}").into())
}

fn unstored(build: usize, request: &Incoming) -> Outgoing {
    let mut response = text(build, request);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// Two workers that hold the first build.
async fn two(tier: &Tier, wish: Wish, handler: &Handler, respond: Respond) -> [Site; 2] {
    let at_once = || tier.builder().shutdown_grace(Duration::ZERO);
    let caches = [(); 2].map(|()| at_once().build().unwrap());
    let [one, other] = caches;
    [
        Site::warm(one, wish, handler, respond).await,
        Site::warm(other, wish, handler, respond).await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_renews_gets_what_another_worker_is_building_however_long_that_takes() {
    for tier in Tier::all() {
        let (wish, handler) = (Wish::OnRequest, Handler::held());
        let [one, other] = two(&tier, wish, &handler, renewed).await;
        let cold = tier.builder().build().unwrap();
        let cold = Site::cold(cold, wish, &handler, renewed);
        let small = tier.builder().capacity(64).build().unwrap();
        let small = Site::cold(small, wish, &handler, renewed);

        let first = one.renew();
        handler.has_begun(1).await;
        let others = [&other, &cold, &small].map(Site::renew);
        for site in [&other, &cold, &small] {
            waiting(std::slice::from_ref(&site.cache), 1).await;
        }
        tier.is_polled().await;
        tier.is_polled().await;
        handler.let_go();

        assert_eq!(first.await.unwrap().text(), "renewed by 1");
        for answer in others {
            assert_eq!(answer.await.unwrap().text(), "renewed by 1");
        }
        assert_eq!(handler.builds(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_worker_refreshes_ahead_of_time_reaches_those_who_wanted_to_however_long_it_takes()
{
    for tier in Tier::all() {
        let (wish, handler) = (Wish::AheadOfTime, Handler::held());
        let [one, other] = two(&tier, wish, &handler, renewed).await;

        one.renew().await.unwrap();
        handler.has_begun(1).await;
        assert_eq!(other.renew().await.unwrap().text(), "build 1");
        tier.is_polled().await;
        handler.let_go();

        let arrived = async { while other.plain.get("/a").await.text() != "renewed by 1" {} };
        tokio::time::timeout(AMPLE, arrived).await.unwrap();
        settled(&other.cache).await;
        assert_eq!(handler.builds(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_comes_to_nothing_is_not_tried_by_each_worker_in_turn() {
    let ways: [(&str, Respond); 3] = [
        ("fails", failing),
        ("uncacheable", uncacheable),
        ("not stored", unstored),
    ];
    for (way, respond) in ways {
        for tier in Tier::all() {
            let (wish, handler) = (Wish::AheadOfTime, Handler::held());
            let [one, other] = two(&tier, wish, &handler, respond).await;

            one.renew().await.unwrap();
            handler.has_begun(1).await;
            assert_eq!(other.renew().await.unwrap().text(), "build 1");
            tier.is_polled().await;
            handler.let_go();

            for site in [&one, &other] {
                settled(&site.cache).await;
                let kept = site.plain.get("/a").await;
                assert_eq!((kept.status, kept.text()), (StatusCode::OK, "build 1"));
            }
            assert_eq!(handler.builds(), 1, "{way}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_renew_share_a_failure_among_all_workers_and_build_what_is_theirs_alone() {
    for tier in Tier::all() {
        let wish = Wish::OnRequest;
        let ways: [(Respond, usize); 2] = [(failing, 1), (uncacheable, 2)];
        for (respond, builds) in ways {
            let handler = Handler::held();
            let [one, other] = two(&tier, wish, &handler, respond).await;
            let first = one.renew();
            handler.has_begun(1).await;
            let second = other.renew();
            waiting(std::slice::from_ref(&other.cache), 1).await;
            tier.is_polled().await;
            handler.let_go();

            let (first, second) = (first.await.unwrap(), second.await.unwrap());
            assert_eq!(handler.builds(), builds);
            if builds > 1 {
                assert_ne!(first.body, second.body);
            } else {
                // What was to be renewed stands in.
                assert_eq!((first.text(), second.text()), ("build 1", "build 1"));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_renews_takes_over_from_a_worker_that_stops() {
    for tier in Tier::all() {
        let handler = Handler::held();
        let [one, other] = two(&tier, Wish::OnRequest, &handler, renewed).await;
        let first = one.renew();
        handler.has_begun(1).await;
        let second = other.renew();
        waiting(std::slice::from_ref(&other.cache), 1).await;
        tier.is_polled().await;

        one.cache.shutdown().await;
        handler.has_begun(2).await;
        handler.let_go();

        assert_eq!(second.await.unwrap().text(), "renewed by 2");
        drop(first);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_renews_takes_nothing_that_was_there_before_it() {
    for tier in Tier::all() {
        let (wish, handler) = (Wish::OnRequest, Handler::open());
        let [one, other] = two(&tier, wish, &handler, renewed).await;

        // What the other worker holds is older than what the shared tier has by then.
        assert_eq!(one.renew().await.unwrap().text(), "renewed by 1");
        settled(&one.cache).await;
        assert_eq!(other.renew().await.unwrap().text(), "renewed by 2");
        settled(&other.cache).await;

        // It is stale, and would answer those who renew nothing while it is refreshed.
        one.cache.soft_purge(Target::all()).await.unwrap();
        assert_eq!(one.renew().await.unwrap().text(), "renewed by 3");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_renews_is_not_content_with_what_those_find_whom_it_joins() {
    for tier in Tier::all() {
        let (wish, handler) = (Wish::OnRequest, Handler::open());
        let [one, _other] = two(&tier, wish, &handler, renewed).await;
        for round in 1..=50 {
            // It holds nothing, and looks for what the shared tier has.
            let cold = tier.builder().build().unwrap();
            let cold = Site::cold(cold, wish, &handler, renewed);
            let looking = cold.plain.herd("/a", 5);
            let renewing = cold.renew();

            assert_eq!(
                renewing.await.unwrap().text(),
                format!("renewed by {round}")
            );
            for answer in looking.answers().await {
                assert!(answer.text().contains("build 1") || answer.text().contains("renewed"));
            }
            settled(&cold.cache).await;
        }
        settled(&one.cache).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_shared_tier_each_worker_renews_for_itself() {
    for wish in [Wish::OnRequest, Wish::AheadOfTime] {
        let mut redis = RedisServer::start();
        let cache = builder(redis.url()).redis_budget(Duration::from_millis(50));
        let handler = Handler::open();
        let site = Site::warm(cache.build().unwrap(), wish, &handler, renewed).await;
        redis.kill();

        if wish == Wish::OnRequest {
            assert_eq!(site.renew().await.unwrap().text(), "renewed by 1");
            assert_eq!(handler.builds(), 1);
        } else {
            let arrived =
                async { while !site.renew().await.unwrap().text().starts_with("renewed") {} };
            tokio::time::timeout(AMPLE, arrived).await.unwrap();
        }
    }
}
