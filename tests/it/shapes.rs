//! Every kind of body, of error and of readiness.

use std::{
    cell::Cell,
    convert::Infallible,
    future::{Ready, ready},
    marker::PhantomData,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body as AxumBody;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use tokio::time::sleep;
use tower::{BoxError, Layer as _, Service, service_fn};
use tower_stampede::{BufferLayer, Cache};

use crate::support::{
    client::{Answer, Empties, ask, attempt, behind, get, herd, minute, same, with},
    origin::{Origin, OriginError, fresh},
};

// ===== bodies =====

async fn answers_twice<R, B>(
    respond: impl Fn() -> B + Clone + Send + Sync + 'static,
    request: impl Fn() -> R,
) -> [Answer; 2]
where
    R: http_body::Body + Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let inner =
        service_fn(move |_: Request<R>| ready(Ok::<_, Infallible>(Response::new(respond()))));
    let service = minute(&Cache::in_memory()).layer(inner);
    let request = || {
        Request::get("http://shop.example/")
            .body(request())
            .unwrap()
    };
    [
        ask(&service, request()).await,
        ask(&service, request()).await,
    ]
}

#[tokio::test(start_paused = true)]
async fn any_body_goes_in_and_out() {
    let stream = || {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", HeaderValue::from_static("abc"));
        let frames = [
            Frame::data(Bytes::from("a re")),
            Frame::data(Bytes::from("port")),
            Frame::trailers(trailers),
        ];
        StreamBody::new(futures_util::stream::iter(
            frames.map(Ok::<_, std::io::Error>),
        ))
    };
    let boxed = move || -> UnsyncBoxBody<Bytes, std::io::Error> { stream().boxed_unsync() };

    let all = [
        answers_twice(|| Full::new(Bytes::from("a report")), Empty::<Bytes>::new).await,
        answers_twice(|| AxumBody::from("a report"), AxumBody::empty).await,
        answers_twice(
            || {
                "a report"
                    .to_owned()
                    .map_frame(|frame| frame.map_data(Bytes::from))
            },
            String::new,
        )
        .await,
        answers_twice(stream, Full::<Bytes>::default).await,
        answers_twice(boxed, Empty::<Bytes>::new).await,
    ];

    for [miss, hit] in all {
        assert_eq!((miss.text(), hit.text()), ("a report", "a report"));
        assert!(hit.status_line().contains("hit"));
        assert_eq!(miss.trailers, hit.trailers);
    }
}

/// Compiles: a proxy has hyper's own body on both sides, which is neither `Default` nor `Clone`.
#[expect(dead_code, reason = "it only has to compile")]
fn a_proxy_with_hypers_own_body(cache: &Cache) {
    fn takes<S>(_: S)
    where
        S: Service<Request<hyper::body::Incoming>> + Clone + Send + 'static,
        S::Future: Send + 'static,
    {
    }
    let inner = service_fn(|request: Request<hyper::body::Incoming>| {
        ready(Ok::<_, hyper::Error>(Response::new(request.into_body())))
    });
    takes(minute(cache).layer(inner));
}

// ===== errors and readiness =====

#[tokio::test(start_paused = true)]
async fn the_inner_error_is_kept_though_it_is_neither_clone_nor_sync() {
    let origin = Origin::fallible(|_| async {
        sleep(Duration::from_millis(10)).await;
        Err(OriginError::new("the very error"))
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let outcomes = same(&service, 20, "/report").outcomes().await;

    let errors: Vec<_> = outcomes
        .iter()
        .filter(|outcome| outcome.is_error())
        .collect();
    assert_eq!(errors.len(), 1);
    assert!(format!("{:?}", errors[0]).contains("the very error"));
}

/// Is ready only after some polls, fails then if it is told to, and panics if it is called unready.
struct Probe {
    polls_left: usize,
    fails: Option<&'static str>,
    _not_sync: PhantomData<Cell<()>>,
}

impl Probe {
    fn new(fails: Option<&'static str>) -> Self {
        Self {
            polls_left: 3,
            fails,
            _not_sync: PhantomData,
        }
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        Self::new(self.fails)
    }
}

impl<B> Service<Request<B>> for Probe {
    type Response = Response<Full<Bytes>>;
    type Error = OriginError;
    type Future = Ready<Result<Self::Response, OriginError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), OriginError>> {
        if self.polls_left > 0 {
            self.polls_left -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(
            self.fails
                .map_or(Ok(()), |text| Err(OriginError::new(text))),
        )
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        assert_eq!(self.polls_left, 0, "called before it was ready");
        self.polls_left = 3;
        ready(Ok(Response::new(Full::new(Bytes::from("ready")))))
    }
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_is_never_called_before_it_is_ready() {
    let cache = Cache::in_memory();
    let service = minute(&cache).layer(Probe::new(None));

    let build = ask(&service, get("/report")).await;
    let bypass = ask(&service, with("/report", &[("cookie", "a=b")])).await;
    let uncacheable = BufferLayer::new(cache)
        .cache_if(|_| false)
        .layer(Probe::new(None));
    let alone = herd(&uncacheable, (0..10).map(|_| get("/alone")))
        .answers()
        .await;

    assert_eq!((build.text(), bypass.text()), ("ready", "ready"));
    assert!(alone.iter().all(|answer| answer.text() == "ready"));
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_fails_to_become_ready_fails_the_request() {
    let service = minute(&Cache::in_memory()).layer(Probe::new(Some("never ready")));

    let build = attempt(service.clone(), get("/report")).await;
    let bypass = attempt(service, with("/report", &[("cookie", "a=b")])).await;

    assert!(build.is_error() && bypass.is_error());
}

#[tokio::test(start_paused = true)]
async fn the_layer_is_always_ready() {
    let mut service = minute(&Cache::in_memory()).layer(Probe::new(Some("never ready")));
    let mut readiness =
        tokio_test::task::spawn(tower::ServiceExt::<Request<Empties>>::ready(&mut service));

    assert!(readiness.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_response_with_as_many_fields_as_can_be_is_passed_on_as_it_is() {
    for count in [10_001, 24_570, 24_576] {
        let cache = Cache::in_memory();
        let origin = Origin::new(move |_| async move {
            let mut response = fresh("crowded");
            for number in response.headers().len()..count {
                let name = HeaderName::try_from(format!("x-{number}")).unwrap();
                response
                    .headers_mut()
                    .insert(name, HeaderValue::from_static("x"));
            }
            response
        });
        let service = behind(&minute(&cache), &origin);

        for _ in 0..2 {
            let answer = ask(&service, get("/report")).await;
            assert_eq!(answer.text(), "crowded");
            assert!(answer.headers.len() >= count, "{}", answer.headers.len());
        }
        assert_eq!(origin.builds(), 2);
    }
}
