//! Messages between the processes: what forged and garbled ones can do, with and without a secret.

use http::{Request, Uri};
use tower_stampede::{Cache, Target};

use crate::support::{
    log::Log,
    redis::RedisServer,
    worker::{Handler, Worker, builder, cache, layer, settled, text, until, waiting},
};

const SECRET: &str = "a secret of the fleet";
const OTHER: &str = "the secret from before";

/// Of the process that a forger says he is.
const ORIGIN: &str = "00000000000000000000000000000000";

fn signing(redis: &RedisServer, secret: &str) -> Cache {
    let builder = builder(redis.url()).event_secret(secret);
    builder.build().unwrap()
}

fn report() -> Uri {
    "http://shop.example/report".parse().unwrap()
}

/// A worker that has `/report` in its local tier, and whatever it needs to ask for more.
async fn stocked(cache: &Cache, handler: &Handler) -> Worker {
    let worker = handler.worker(&layer(cache), text);
    worker.get("/report").await;
    settled(cache).await;
    assert!(worker.get("/report").await.outcome.contains("hit"));
    worker
}

/// A Redis that knows what time it is: another process has asked it before.
async fn in_use() -> RedisServer {
    let redis = RedisServer::start();
    let cache = cache(redis.url());
    Handler::open()
        .worker(&layer(&cache), text)
        .get("/another")
        .await;
    settled(&cache).await;
    redis
}

fn publish(redis: &RedisServer, message: &str) {
    redis.command::<i64>(&["PUBLISH", "stampede:events", message]);
}

fn forge(redis: &RedisServer, words: &str) {
    publish(redis, &format!("1:{ORIGIN}:{words}"));
}

fn trips(redis: &RedisServer) -> u64 {
    redis.count("evalsha") + redis.count("eval")
}

/// How often the server was asked what has been purged.
fn questions(redis: &RedisServer) -> u64 {
    redis.count("zrangebyscore")
}

/// Returns once `cache` has not believed so many messages, and has heeded what the server said to that.
async fn has_doubted(cache: &Cache, redis: &RedisServer, messages: u64) {
    until(|| cache.stats().doubtful_events == messages).await;
    until(|| questions(redis) > 0).await;
    // What was asked is heeded in the order of the answers: this purge comes after it.
    cache.purge_tag("nobody carries it").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_purge_without_a_secret_costs_every_process_one_look_at_redis() {
    for words in ["p:!", "p:~!"] {
        let redis = RedisServer::start();
        let handler = Handler::open();
        let caches = [0; 2].map(|_| cache(redis.url()));
        let workers = [
            stocked(&caches[0], &handler).await,
            stocked(&caches[1], &handler).await,
        ];
        redis.reset_counts();

        forge(&redis, words);

        for worker in &workers {
            let before = trips(&redis);
            while trips(&redis) == before {
                assert_eq!(worker.get("/report").await.text(), "build 1");
            }
        }
        for cache in &caches {
            settled(cache).await;
        }
        let read = trips(&redis);
        for worker in &workers {
            assert!(worker.get("/report").await.outcome.contains("hit"));
        }
        assert_eq!((handler.builds(), trips(&redis)), (1, read), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_word_that_a_build_has_ended_costs_one_look_at_redis() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let caches = [0; 2].map(|_| cache(redis.url()));
    let workers = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), text));
    let building = workers[0].herd("/report", 5);
    handler.has_begun(1).await;
    let waiters = workers[1].herd("/report", 5);
    waiting(&caches, 10).await;
    let lease: Vec<String> = redis.command(&["KEYS", "*:l"]);
    let resource = lease[0].split(['{', '}']).nth(1).unwrap().to_owned();

    for _ in 0..20 {
        forge(&redis, &format!("w:{resource}"));
    }
    handler.let_go();

    for answer in building.and(waiters).answers().await {
        assert_eq!(answer.text(), "build 1");
    }
    assert_eq!(handler.builds(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_an_unknown_form_has_the_process_ask_what_was_purged() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let cache = cache(redis.url());
    let worker = stocked(&cache, &handler).await;

    for (number, message) in (1..).zip(["", "garbage", "2:x:y:z", "1:p:!"]) {
        publish(&redis, message);
        until(|| cache.stats().doubtful_events == number).await;
    }

    assert_eq!(worker.get("/report").await.text(), "build 1");
    cache.purge(&report()).await.unwrap();
    assert_eq!(worker.get("/report").await.text(), "build 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_shares_a_secret_purges_and_is_answered_as_if_there_were_none() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let caches = [0; 3].map(|_| signing(&redis, SECRET));
    let mut workers = Vec::new();
    for cache in &caches {
        workers.push(stocked(cache, &handler).await);
    }
    assert_eq!(handler.builds(), 1);

    let purged = caches[0].purge(&report()).await.unwrap();

    assert!(
        purged.is_complete() && purged.acknowledged == 3,
        "{purged:?}"
    );
    for worker in workers.iter().rev() {
        assert_eq!(worker.get("/report").await.text(), "build 2");
    }
    assert!(
        caches
            .iter()
            .all(|cache| cache.stats().doubtful_events == 0)
    );
    assert_eq!(questions(&redis), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_message_takes_nothing_from_a_process_with_a_secret() {
    let redis = in_use().await;
    let handler = Handler::open();
    let cache = signing(&redis, SECRET);
    let worker = stocked(&cache, &handler).await;
    let signature = "0".repeat(64);
    let words = [
        "p:!".to_owned(),
        "p:~!".to_owned(),
        format!("p:!#{signature}"),
    ];
    redis.reset_counts();

    for words in &words {
        forge(&redis, words);
    }
    publish(&redis, "garbage");
    has_doubted(&cache, &redis, 4).await;

    let before = trips(&redis);
    let local = worker.get("/report").await;
    assert_eq!((local.text(), trips(&redis)), ("build 1", before));
    assert!(local.outcome.contains("hit"), "{local:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_forged_messages_costs_a_few_questions() {
    const MESSAGES: u64 = 3000;
    let redis = in_use().await;
    let handler = Handler::open();
    let cache = signing(&redis, SECRET);
    let worker = stocked(&cache, &handler).await;
    redis.reset_counts();
    let start = tokio::time::Instant::now();

    let forged = format!("1:{ORIGIN}:p:!:{ORIGIN}");
    let mut connection = redis.client().get_connection().unwrap();
    let mut flood = redis::pipe();
    for _ in 0..MESSAGES {
        flood.cmd("PUBLISH").arg("stampede:events").arg(&forged);
    }
    flood.exec(&mut connection).unwrap();
    until(|| cache.stats().doubtful_events == MESSAGES).await;

    let in_time = start.elapsed().as_millis() / 50;
    let asked = u128::from(questions(&redis));
    assert!(asked <= in_time + 2, "{asked} questions");
    let local = worker.get("/report").await;
    assert!(
        local.outcome.contains("hit") && handler.builds() == 1,
        "{local:?}"
    );
    cache.purge(&report()).await.unwrap();
    assert_eq!(worker.get("/report").await.text(), "build 2");
}

/// In a fleet of which only a part signs, or part of it otherwise.
async fn a_purge_reaches_every_process(purger: Cache, other: Cache) {
    let handler = Handler::open();
    stocked(&purger, &handler).await;
    let worker = stocked(&other, &handler).await;
    let (request, ()) = Request::get(report()).body(()).unwrap().into_parts();
    let targets = [
        Target::uri(&report()),
        layer(&purger).target_of(&request).unwrap(),
        Target::all(),
    ];

    for (build, target) in (1..).zip(targets) {
        assert_eq!(worker.get("/report").await.text(), format!("build {build}"));
        settled(&other).await;

        let purged = purger.purge(target).await.unwrap();

        assert_eq!(purged.processes, Some(2));
        // It has heard of it, and asked; the answer may be one that is not believed in its turn.
        let next = format!("build {}", build + 1);
        let heeded = async {
            while worker.get("/report").await.text() != next {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(crate::support::worker::AMPLE, heeded)
            .await
            .expect("no process serves for ever what has been purged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_is_not_signed_reaches_those_who_have_a_secret() {
    let redis = RedisServer::start();
    a_purge_reaches_every_process(cache(redis.url()), signing(&redis, SECRET)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_purge_reaches_those_who_have_no_secret() {
    let redis = RedisServer::start();
    a_purge_reaches_every_process(signing(&redis, SECRET), cache(redis.url())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_reaches_those_who_have_another_secret() {
    let redis = RedisServer::start();
    a_purge_reaches_every_process(signing(&redis, OTHER), signing(&redis, SECRET)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_is_not_signed_is_acknowledged_when_it_has_been_heeded() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (plain, signing) = (cache(redis.url()), signing(&redis, SECRET));
    stocked(&plain, &handler).await;
    let worker = stocked(&signing, &handler).await;

    let purged = plain.purge(&report()).await.unwrap();

    assert!(purged.is_complete(), "{purged:?}");
    assert_eq!(worker.get("/report").await.text(), "build 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_signed_does_not_count() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (plain, signing) = (cache(redis.url()), signing(&redis, SECRET));
    stocked(&plain, &handler).await;
    stocked(&signing, &handler).await;

    let purged = signing.purge(&report()).await.unwrap();

    assert_eq!((purged.acknowledged, purged.processes), (1, Some(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_build_of_a_process_that_does_not_sign_gets_it_all_the_same() {
    let redis = RedisServer::start();
    let handler = Handler::held();
    let caches = [cache(redis.url()), signing(&redis, SECRET)];
    let workers = caches
        .each_ref()
        .map(|cache| handler.worker(&layer(cache), text));
    let building = workers[0].herd("/report", 5);
    handler.has_begun(1).await;
    let waiters = workers[1].herd("/report", 5);
    waiting(&caches, 10).await;

    handler.let_go();

    for answer in building.and(waiters).answers().await {
        assert_eq!(answer.text(), "build 1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_redis_has_forgotten_what_was_purged_a_doubt_has_all_read_anew() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let cache = signing(&redis, SECRET);
    let worker = stocked(&cache, &handler).await;
    redis.command::<()>(&["DEL", "stampede:tags"]);

    forge(&redis, "p:!");

    let doubted = async {
        while worker.get("/report").await.text() != "build 2" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::support::worker::AMPLE, doubted)
        .await
        .expect("nothing is known of the past");
}

#[tokio::test]
async fn doubtful_messages_are_told_of_once_and_never_shown() {
    let (log, _listening) = Log::start();
    let redis = RedisServer::start();
    let handler = Handler::open();
    let cache = signing(&redis, SECRET);
    stocked(&cache, &handler).await;

    for _ in 0..20 {
        forge(&redis, "p:!");
    }
    until(|| cache.stats().doubtful_events == 20).await;

    let warnings = log.lines("WARN", "not as they should be");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(!log.text().contains(SECRET));
}
