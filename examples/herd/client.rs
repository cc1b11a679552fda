//! The herd: one connection for each request, kept open as a load balancer keeps those to its servers.
//! Each has answered something before the first request is sent, so that what is timed is the answer,
//! and not that connections are accepted and get their buffers.

use std::{net::SocketAddr, pin::pin, time::Duration};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{Request, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    Failed,
    worker::{READY, WAITED},
};

/// Nobody waits longer for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How one request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shot {
    pub(crate) sent: Instant,
    /// From sending the request to the last byte of its answer.
    pub(crate) latency: Duration,
    pub(crate) end: End,
}

/// Whether the answer was there when the request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    None,
    /// A build had to end first, its own or another's, or Redis was asked.
    Some,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered(u16, Wait),
    Failed,
}

/// How a herd comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    /// All at once.
    Together,
    /// One is there first, and hangs up after a while.
    FirstLeaves {
        others_after: Duration,
        leaves_after: Duration,
    },
    /// Evenly over a time.
    Steadily(Duration),
    /// So many at once, again and again, evenly over a time.
    InWaves(usize, Duration),
}

impl Pattern {
    /// When a request is sent, of so many.
    fn time_of(self, number: usize, requests: usize) -> Duration {
        match self {
            Self::Together | Self::FirstLeaves { .. } => Duration::ZERO,
            Self::Steadily(time) => part(time, number, requests),
            Self::InWaves(size, time) => part(time, number / size * size, requests),
        }
    }
}

fn part(time: Duration, number: usize, of: usize) -> Duration {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    time * number / u32::try_from(of).unwrap_or(u32::MAX)
}

/// A herd that has sent nothing yet.
pub(crate) struct Herd {
    lines: Vec<Line>,
}

impl Herd {
    /// As large as told, in turn at each of `workers`.
    pub(crate) async fn gather(workers: &[SocketAddr], requests: usize) -> Result<Self, Failed> {
        let mut lines = Vec::with_capacity(requests);
        for &address in workers.iter().cycle().take(requests) {
            let mut line = Line::open(address).await?;
            line.fetch(READY).await?;
            lines.push(line);
        }
        Ok(Self { lines })
    }

    /// Sends a request on each line, for the path of its number. What a client that leaves early
    /// would have got is in no shot.
    pub(crate) async fn stampede(
        self,
        path_of: impl Fn(usize) -> String,
        pattern: Pattern,
    ) -> Vec<Shot> {
        let requests = self.lines.len();
        let mut lines = (0..).zip(self.lines);
        let mut herd = JoinSet::new();
        if let Pattern::FirstLeaves {
            others_after,
            leaves_after,
        } = pattern
        {
            let first = lines.next();
            let path = path_of(0);
            herd.spawn(async move {
                if let Some((_, mut first)) = first {
                    drop(timeout(leaves_after, first.ask(path)).await);
                }
                None
            });
            sleep(others_after).await;
        }
        let start = Instant::now();
        for (number, mut line) in lines {
            let (path, time) = (path_of(number), pattern.time_of(number, requests));
            herd.spawn(async move {
                sleep_until(start + time).await;
                Some((line.ask(path).await, line))
            });
        }
        // The lines come back with the shots: no connection closes before the last answer is there.
        let shots = herd.join_all().await.into_iter().flatten();
        shots.map(|(shot, _line)| shot).collect()
    }
}

/// One answer, read whole.
pub(crate) async fn fetch(address: SocketAddr, path: &str) -> Result<Bytes, Failed> {
    Ok(Line::open(address).await?.fetch(path).await?)
}

/// One connection. It is driven by those who ask, which is cheaper than a task of its own.
struct Line {
    sender: SendRequest<Empty<Bytes>>,
    /// Boxed, since a line is moved about.
    connection: Box<Connection<TokioIo<TcpStream>, Empty<Bytes>>>,
}

impl Line {
    async fn open(address: SocketAddr) -> Result<Self, Failed> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = Box::new(connection);
        Ok(Self { sender, connection })
    }

    /// Leaves the line ready for another request.
    async fn fetch(&mut self, path: &str) -> hyper::Result<Bytes> {
        let Self { sender, connection } = self;
        let answer = async {
            let answer = sender.send_request(request(path)).await?;
            let body = answer.into_body().collect().await?.to_bytes();
            sender.ready().await?;
            Ok(body)
        };
        driven(connection, answer).await
    }

    async fn ask(&mut self, path: String) -> Shot {
        let Self { sender, connection } = self;
        let sent = Instant::now();
        let answer = timeout(PATIENCE, read(sender, request(&path)));
        let answer = driven(connection, answer).await;
        let latency = sent.elapsed();
        let end = match answer {
            Ok(Ok((status, wait))) => End::Answered(status, wait),
            Ok(Err(_)) | Err(_) => End::Failed,
        };
        Shot { sent, latency, end }
    }
}

async fn driven<T>(connection: impl Future + Unpin, answer: impl Future<Output = T>) -> T {
    match select(pin!(answer), connection).await {
        Either::Left((answer, _)) => answer,
        // What it had read is there all the same.
        Either::Right((_, answer)) => answer.await,
    }
}

async fn read(
    sender: &mut SendRequest<Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
) -> hyper::Result<(u16, Wait)> {
    let answer = sender.send_request(request).await?;
    let status = answer.status().as_u16();
    let wait = if answer.headers().contains_key(WAITED) {
        Wait::Some
    } else {
        Wait::None
    };
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok((status, wait))
}

/// All workers are the same site, whatever their addresses.
fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path)
        .header(header::HOST, "shop.example")
        .body(Empty::new())
        .expect("the request is well-formed")
}
