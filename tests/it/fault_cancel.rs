//! Clients that go away while Redis is asked for them: nobody gets another one's page, and nothing is left.

use std::{collections::HashMap, time::Duration};

use fastrand::Rng;
use http::StatusCode;
use tokio::{task::JoinSet, time::timeout};

use crate::support::{
    proxy::FaultProxy,
    redis::RedisServer,
    worker::{Handler, Incoming, Outgoing, builder, settled, until},
};

/// What is built says what it is of.
fn own(_: usize, request: &Incoming) -> Outgoing {
    Outgoing::new(request.uri().path().to_owned().into())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_at_any_point_mix_up_no_answers_and_leave_no_lease() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let caches = [0; 2].map(|_| {
        let builder = builder(proxy.url()).lease_ttl(Duration::from_secs(600));
        builder.build().unwrap()
    });
    let handler = Handler::open();
    let workers = handler.workers(&caches, own);
    for (worker, cache) in workers.iter().zip(&caches) {
        worker.get("/warm").await;
        settled(cache).await;
    }
    proxy.delay(Duration::from_millis(2));

    let mut clients = JoinSet::new();
    for number in 0..2000_u64 {
        let worker = workers[usize::from(number % 2 == 0)].clone();
        clients.spawn(async move {
            let mut rng = Rng::with_seed(number);
            let path = format!("/{}", rng.u32(0..500));
            let patience = Duration::from_micros(rng.u64(0..20_000));
            let answer = timeout(patience, worker.get(&path)).await.ok();
            answer.map(|answer| (path, answer))
        });
    }
    let mut answered = HashMap::<bool, usize>::new();
    for asked in clients.join_all().await {
        *answered.entry(asked.is_some()).or_default() += 1;
        if let Some((path, answer)) = asked {
            assert_eq!((answer.status, answer.text()), (StatusCode::OK, &*path));
        }
    }

    assert_eq!(answered.len(), 2, "some stay and some leave: {answered:?}");
    for cache in &caches {
        settled(cache).await;
        until(|| cache.stats().waiters == 0).await;
    }
    until(|| redis.command::<Vec<String>>(&["KEYS", "*:l*"]).is_empty()).await;
    for page in 0..100 {
        let path = format!("/{page}");
        for worker in &workers {
            assert_eq!(worker.get(&path).await.text(), path);
        }
    }
}
