//! What a hostile or an odd response, and clients that stand still, may cost: neither memory without
//! bound nor the others their turn.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use tokio::task::JoinHandle;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_stampede::{Cache, body::Body};

use crate::support::{
    client::{
        Answer, Empties, Ended, ask, assert_nothing_is_left, behind, get, minute, same, settle,
        until, with,
    },
    origin::{Origin, fresh, head, reply},
};

/// Always has another frame without a byte in it, until it is told to end.
struct Hollow(Arc<AtomicUsize>);

impl http_body::Body for Hollow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let more = self.0.load(Ordering::SeqCst) == 0;
        Poll::Ready(more.then(|| Ok(Frame::data(Bytes::new()))))
    }
}

/// A request for one, under way, and what ends it.
fn hollow(cache: &Cache) -> (JoinHandle<Response<Body<Hollow>>>, Arc<AtomicUsize>) {
    let end = Arc::default();
    let told = Arc::clone(&end);
    let inner = service_fn(move |_: Request<Empties>| {
        let body = Hollow(Arc::clone(&told));
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let asking = minute(cache).layer(inner).oneshot(get("/report"));
    let asking = async { asking.await.expect("the service answers") };
    (tokio::spawn(asking), end)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_always_ready_and_never_comes_to_anything_leaves_others_their_turn() {
    let cache = Cache::in_memory();
    let (asking, end) = hollow(&cache);

    until(&cache, |stats| stats.builds == 1).await;
    assert_eq!(cache.stats().building_bytes, 0);
    end.store(1, Ordering::SeqCst);

    let answer = Answer::read(asking.await.unwrap()).await;
    assert_eq!((answer.body.len(), answer.end), (0, Ended::Whole));
    assert_nothing_is_left(&cache).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_always_ready_ends_its_build_when_the_time_is_up() {
    let cache = Cache::in_memory();
    let (asking, end) = hollow(&cache);
    until(&cache, |stats| stats.builds == 1).await;

    tokio::time::advance(Duration::from_secs(31)).await;
    until(&cache, |stats| stats.flights == 0).await;

    end.store(1, Ordering::SeqCst);
    let answer = Answer::read(asking.await.unwrap()).await;
    assert_eq!(answer.end, Ended::Whole);
}

/// Memory whose release is seen.
struct Seen(Arc<AtomicUsize>);

impl AsRef<[u8]> for Seen {
    fn as_ref(&self) -> &[u8] {
        &[b'x'; 10_000]
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_keeps_nothing_of_the_buffers_that_its_fields_and_its_body_are_parts_of() {
    let cache = Cache::in_memory();
    let released = Arc::default();
    let seen = Arc::clone(&released);
    let origin = Origin::new(move |_| {
        let buffer = || Bytes::from_owner(Seen(Arc::clone(&seen))).slice(..10);
        let mut response = fresh(buffer());
        let value = HeaderValue::from_maybe_shared(buffer()).unwrap();
        response.headers_mut().insert("x-part", value);
        async { response }
    });
    let service = behind(&minute(&cache), &origin);

    drop(ask(&service, get("/report")).await);

    assert_eq!(released.load(Ordering::SeqCst), 2);
    let hit = ask(&service, get("/report")).await;
    assert_eq!(
        (hit.text(), hit.header("x-part")),
        ("xxxxxxxxxx", "xxxxxxxxxx")
    );
    assert_eq!(origin.builds(), 1);
}

#[tokio::test(start_paused = true)]
async fn readers_that_stand_still_keep_nobody_from_building_together() {
    let cache = Cache::builder().building_capacity(1000).build().unwrap();
    let (origin, mut streams) = Origin::streaming(|_| head(StatusCode::OK, &[]));
    let service = behind(&minute(&cache), &origin);
    let mut unread = Vec::new();
    for page in 0..3 {
        let asking = service.clone().oneshot(get(&format!("/page/{page}")));
        let asking = tokio::spawn(asking);
        let frames = streams.recv().await.expect("the build has begun");
        settle().await;
        frames.data(vec![b'x'; 400]);
        frames.end();
        unread.push(asking.await.unwrap().unwrap());
        until(&cache, |stats| stats.flights == 0).await;
    }

    let herd = same(&service, 20, "/report");
    let frames = streams.recv().await.expect("the build has begun");
    until(&cache, |stats| stats.waiters == 19).await;
    frames.data(vec![b'x'; 400]);
    frames.end();

    assert_eq!(herd.answers().await.len(), 20);
    assert_eq!(origin.builds(), 4);
    for response in unread {
        assert_eq!(Answer::read(response).await.body.len(), 400);
    }
}

#[tokio::test(start_paused = true)]
async fn variants_with_long_keys_are_shared_and_not_kept() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|call| async move {
        let fields = [("cache-control", "max-age=60"), ("vary", "x-long")];
        reply(&fields, call.header("x-long"))
    });
    let service = behind(&minute(&cache), &origin);
    let [short, long] = [10, 9000].map(|length| "v".repeat(length));

    for (value, builds) in [(&short, 1), (&long, 2)] {
        let before = origin.builds();
        for _ in 0..2 {
            let answer = ask(&service, with("/report", &[("x-long", value)])).await;
            assert_eq!(answer.text(), value);
        }
        assert_eq!(origin.builds() - before, builds);
    }
}
