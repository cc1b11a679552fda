//! The herd: one connection for each request, all open before the first request is sent, so that
//! what is timed is the answer and not the handshake.

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

use crate::{Failed, worker::WAITED};

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

/// A connection that has sent nothing yet.
struct Line {
    sender: SendRequest<Empty<Bytes>>,
    connection: Connection<TokioIo<TcpStream>, Empty<Bytes>>,
}

/// Sends `requests` requests, each for the path of its number, in turn to each of `workers`. What a
/// client that leaves early would have got is in no shot.
pub(crate) async fn stampede(
    workers: &[SocketAddr],
    path_of: impl Fn(usize) -> String,
    requests: usize,
    pattern: Pattern,
) -> Result<Vec<Shot>, Failed> {
    let mut lines = Vec::with_capacity(requests);
    for &address in workers.iter().cycle().take(requests) {
        lines.push(Line::open(address).await?);
    }
    let mut lines = (0..).zip(lines);
    let mut herd = JoinSet::new();
    if let Pattern::FirstLeaves {
        others_after,
        leaves_after,
    } = pattern
    {
        let first = lines.next();
        let path = path_of(0);
        herd.spawn(async move {
            if let Some((_, first)) = first {
                drop(timeout(leaves_after, first.ask(path)).await);
            }
            None
        });
        sleep(others_after).await;
    }
    let start = Instant::now();
    for (number, line) in lines {
        let (path, time) = (path_of(number), pattern.time_of(number, requests));
        herd.spawn(async move {
            sleep_until(start + time).await;
            Some(line.ask(path).await)
        });
    }
    // The lines come back with the shots: no connection closes before the last answer is there.
    let shots = herd.join_all().await.into_iter().flatten();
    Ok(shots.map(|(shot, _line)| shot).collect())
}

/// One answer, read whole.
pub(crate) async fn fetch(address: SocketAddr, path: &str) -> Result<Bytes, Failed> {
    let Line {
        mut sender,
        connection,
    } = Line::open(address).await?;
    let answer = async {
        let answer = sender.send_request(request(path)).await?;
        Ok(answer.into_body().collect().await?.to_bytes())
    };
    match select(pin!(answer), pin!(connection)).await {
        Either::Left((body, _)) => body,
        Either::Right((_, answer)) => answer.await,
    }
}

impl Line {
    async fn open(address: SocketAddr) -> Result<Self, Failed> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, connection })
    }

    /// Asks once. The connection is driven by the same task, which is cheaper than one of its own.
    async fn ask(self, path: String) -> (Shot, impl Send) {
        let Self {
            mut sender,
            mut connection,
        } = self;
        let sent = Instant::now();
        let answer = {
            let answer = pin!(timeout(PATIENCE, read(&mut sender, request(&path))));
            match select(answer, &mut connection).await {
                Either::Left((answer, _)) => answer,
                Either::Right((_, answer)) => answer.await,
            }
        };
        let latency = sent.elapsed();
        let end = match answer {
            Ok(Ok((status, wait))) => End::Answered(status, wait),
            Ok(Err(_)) | Err(_) => End::Failed,
        };
        let shot = Shot { sent, latency, end };
        (shot, (sender, connection))
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
