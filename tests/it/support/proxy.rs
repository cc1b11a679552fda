//! A TCP proxy that fails on demand, on a thread and a runtime of its own.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use redis::Client;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream, tcp},
    runtime,
    sync::{mpsc as orders, watch},
    task::JoinSet,
    time::sleep,
};

use super::redis::PORTS;

/// Stands in front of a server: clients connect to [`url`](Self::url). Every fault takes effect before the
/// method returns and lasts until [`heal`](Self::heal). Ends when dropped.
pub struct FaultProxy {
    address: SocketAddr,
    orders: orders::UnboundedSender<Order>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What the next bytes in one direction meet, once.
#[derive(Clone, Copy, Debug)]
enum Ambush {
    /// They vanish and the connection is cut.
    Lose,
    /// Only so many of them pass before the connection is cut.
    CutAfter(usize),
    /// Something that is not the protocol comes in their place.
    Garble,
    /// Only so many of them pass at first, and the others so much later.
    Split(usize, Duration),
}

/// An ambush that lets so many pieces pass before it springs.
#[derive(Clone, Copy, Debug)]
struct Trap {
    spared: u32,
    ambush: Ambush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Flow {
    #[default]
    Open,
    Frozen,
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    requests: Flow,
    replies: Flow,
    request_delay: Duration,
    reply_delay: Duration,
    /// Connections made under an earlier number are cut.
    cuts: u64,
}

enum Order {
    Faults(Box<dyn FnOnce(&mut Faults) + Send>, mpsc::Sender<()>),
    Refuse(mpsc::Sender<()>),
    Accept(mpsc::Sender<()>),
    Ambush(Direction, Trap, mpsc::Sender<()>),
    Count(mpsc::Sender<Counts>),
}

/// What passed through the proxy so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Connections accepted since the start.
    pub accepted: usize,
}

impl FaultProxy {
    /// Starts in front of the server that listens on `port` of the loopback address.
    pub fn start(port: u16) -> Self {
        let (address, bound) = mpsc::channel();
        let (orders, inbox) = orders::unbounded_channel();
        let upstream = SocketAddr::from(([127, 0, 0, 1], port));
        let thread = thread::spawn(move || {
            runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime can be built")
                .block_on(async {
                    let listener = listen_anywhere();
                    let own = listener.local_addr().expect("it is bound");
                    address.send(own).expect("the starter waits");
                    Proxy::new(own, upstream).run(listener, inbox).await;
                });
        });
        Self {
            address: bound.recv().expect("the proxy binds"),
            orders,
            thread: Some(thread),
        }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    pub fn client(&self) -> Client {
        Client::open(self.url()).expect("the URL is valid")
    }

    /// Black hole both ways: connections stay open and new ones are accepted, but no byte passes.
    /// What was sent meanwhile passes after [`heal`](Self::heal).
    pub fn freeze(&self) {
        self.set(|faults| {
            faults.requests = Flow::Frozen;
            faults.replies = Flow::Frozen;
        });
    }

    /// Requests reach the server and are executed; the replies do not come back.
    pub fn freeze_replies(&self) {
        self.set(|faults| faults.replies = Flow::Frozen);
    }

    /// Delays each piece of data by `delay` on its way to the server, and again on its way back.
    pub fn delay(&self, delay: Duration) {
        self.set(move |faults| {
            faults.request_delay = delay;
            faults.reply_delay = delay;
        });
    }

    pub fn delay_replies(&self, delay: Duration) {
        self.set(move |faults| faults.reply_delay = delay);
    }

    /// Cuts the connections there are; new ones are welcome.
    pub fn cut(&self) {
        self.set(|faults| faults.cuts += 1);
    }

    /// Refuses new connections; those there are go on.
    pub fn refuse(&self) {
        self.ask(Order::Refuse);
    }

    /// The server executes the next request; its reply is lost with the connection.
    pub fn lose_next_reply(&self) {
        self.lose_reply_after(0);
    }

    /// As [`lose_next_reply`](Self::lose_next_reply), but so many replies come back first.
    pub fn lose_reply_after(&self, spared: u32) {
        self.trap(Direction::Reply, spared, Ambush::Lose);
    }

    /// The next request is lost with the connection; the server never sees it.
    pub fn lose_next_request(&self) {
        self.trap(Direction::Request, 0, Ambush::Lose);
    }

    /// Cuts the connection after `bytes` bytes of the next reply.
    pub fn cut_in_next_reply(&self, bytes: usize) {
        self.trap(Direction::Reply, 0, Ambush::CutAfter(bytes));
    }

    /// The client gets something that is not the protocol in place of the next reply.
    pub fn garble_next_reply(&self) {
        self.trap(Direction::Reply, 0, Ambush::Garble);
    }

    /// The first `bytes` bytes of the next reply come at once and the others after `pause`.
    pub fn split_next_reply(&self, bytes: usize, pause: Duration) {
        self.trap(Direction::Reply, 0, Ambush::Split(bytes, pause));
    }

    /// Ends every fault. Connections that were cut stay cut.
    pub fn heal(&self) {
        self.ask(Order::Accept);
        self.set(|faults| {
            *faults = Faults {
                cuts: faults.cuts,
                ..Faults::default()
            };
        });
    }

    pub fn counts(&self) -> Counts {
        self.ask(Order::Count)
    }

    fn set(&self, change: impl FnOnce(&mut Faults) + Send + 'static) {
        self.ask(|done| Order::Faults(Box::new(change), done));
    }

    fn trap(&self, direction: Direction, spared: u32, ambush: Ambush) {
        self.ask(|done| Order::Ambush(direction, Trap { spared, ambush }, done));
    }

    fn ask<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> Order) -> T {
        let (done, answer) = mpsc::channel();
        drop(self.orders.send(order(done)));
        answer.recv().expect("the proxy runs")
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        let (closed, _) = orders::unbounded_channel();
        self.orders = closed;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Proxy {
    own: SocketAddr,
    upstream: SocketAddr,
    faults: watch::Sender<Faults>,
    ambushes: Arc<Ambushes>,
    connections: JoinSet<()>,
    counts: Counts,
}

impl Proxy {
    fn new(own: SocketAddr, upstream: SocketAddr) -> Self {
        Self {
            own,
            upstream,
            faults: watch::Sender::default(),
            ambushes: Arc::default(),
            connections: JoinSet::new(),
            counts: Counts::default(),
        }
    }

    async fn run(mut self, listener: TcpListener, mut inbox: orders::UnboundedReceiver<Order>) {
        let mut listener = Some(listener);
        loop {
            tokio::select! {
                order = inbox.recv() => match order {
                    Some(order) => self.obey(order, &mut listener),
                    None => return,
                },
                Some(stream) = accept(listener.as_ref()) => self.serve(stream),
            }
        }
    }

    fn obey(&self, order: Order, listener: &mut Option<TcpListener>) {
        let done = match order {
            Order::Faults(change, done) => {
                self.faults.send_modify(change);
                done
            }
            Order::Refuse(done) => {
                *listener = None;
                done
            }
            Order::Accept(done) => {
                listener.get_or_insert_with(|| listen(self.own));
                self.ambushes.clear();
                done
            }
            Order::Ambush(direction, trap, done) => {
                self.ambushes.lay(direction, trap);
                done
            }
            Order::Count(answer) => {
                answer.send(self.counts).expect("the asker waits");
                return;
            }
        };
        done.send(()).expect("the asker waits");
    }

    fn serve(&mut self, client: TcpStream) {
        self.counts.accepted += 1;
        while self.connections.try_join_next().is_some() {}
        let faults = self.faults.subscribe();
        let ambushes = Arc::clone(&self.ambushes);
        self.connections
            .spawn(carry(client, self.upstream, faults, ambushes));
    }
}

#[derive(Default)]
struct Ambushes {
    request: Mutex<Option<Trap>>,
    reply: Mutex<Option<Trap>>,
}

impl Ambushes {
    fn lay(&self, direction: Direction, trap: Trap) {
        *self.of(direction).lock().expect("nobody panics here") = Some(trap);
    }

    fn spring(&self, direction: Direction) -> Option<Ambush> {
        let mut trap = self.of(direction).lock().expect("nobody panics here");
        match &mut *trap {
            Some(Trap { spared: 0, .. }) => trap.take().map(|trap| trap.ambush),
            Some(trap) => {
                trap.spared -= 1;
                None
            }
            None => None,
        }
    }

    fn clear(&self) {
        for direction in [Direction::Request, Direction::Reply] {
            *self.of(direction).lock().expect("nobody panics here") = None;
        }
    }

    fn of(&self, direction: Direction) -> &Mutex<Option<Trap>> {
        match direction {
            Direction::Request => &self.request,
            Direction::Reply => &self.reply,
        }
    }
}

async fn carry(
    client: TcpStream,
    upstream: SocketAddr,
    mut faults: watch::Receiver<Faults>,
    ambushes: Arc<Ambushes>,
) {
    let cuts = faults.borrow_and_update().cuts;
    let both_ways = async {
        let mut thawed = faults.clone();
        thaw(&mut thawed, Direction::Request).await;
        let Ok(server) = TcpStream::connect(upstream).await else {
            return;
        };
        drop(client.set_nodelay(true));
        drop(server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let request = Pump {
            direction: Direction::Request,
            faults: faults.clone(),
            ambushes: Arc::clone(&ambushes),
        };
        let reply = Pump {
            direction: Direction::Reply,
            faults: faults.clone(),
            ambushes,
        };
        tokio::select! {
            () = request.run(from_client, to_server) => {}
            () = reply.run(from_server, to_client) => {}
        }
    };
    let mut cut = faults.clone();
    tokio::select! {
        () = both_ways => {}
        _ = cut.wait_for(|now| now.cuts != cuts) => {}
    }
}

struct Pump {
    direction: Direction,
    faults: watch::Receiver<Faults>,
    ambushes: Arc<Ambushes>,
}

impl Pump {
    /// Returns when the connection is to be cut.
    async fn run(mut self, mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let Ok(length @ 1..) = from.read(&mut buffer).await else {
                return;
            };
            thaw(&mut self.faults, self.direction).await;
            let delay = match self.direction {
                Direction::Request => self.faults.borrow().request_delay,
                Direction::Reply => self.faults.borrow().reply_delay,
            };
            if !delay.is_zero() {
                sleep(delay).await;
                thaw(&mut self.faults, self.direction).await;
            }
            let piece = &buffer[..length];
            let sent = match self.ambushes.spring(self.direction) {
                None => to.write_all(piece).await,
                Some(Ambush::Garble) => to.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await,
                Some(Ambush::Lose) => return,
                Some(Ambush::Split(bytes, pause)) => {
                    let (head, tail) = piece.split_at(bytes.min(length));
                    drop(to.write_all(head).await);
                    sleep(pause).await;
                    to.write_all(tail).await
                }
                Some(Ambush::CutAfter(bytes)) => {
                    drop(to.write_all(&piece[..bytes.min(length)]).await);
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

async fn thaw(faults: &mut watch::Receiver<Faults>, direction: Direction) {
    let flows = |now: &Faults| match direction {
        Direction::Request => now.requests == Flow::Open,
        Direction::Reply => now.replies == Flow::Open,
    };
    drop(faults.wait_for(flows).await);
}

async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    let (stream, _) = listener?.accept().await.ok()?;
    Some(stream)
}

fn listen_anywhere() -> TcpListener {
    loop {
        let port = fastrand::u16(PORTS);
        if let Ok(listener) = try_listen(SocketAddr::from(([127, 0, 0, 1], port))) {
            return listener;
        }
    }
}

fn listen(address: SocketAddr) -> TcpListener {
    try_listen(address).expect("nobody else took the proxy's port")
}

fn try_listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}
