//! HTTP as bytes: an origin that says what it is told, and the proxy example in front of it.

use std::{
    env,
    future::Future,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::{Instant, sleep},
};

/// An example, which Cargo builds beside the tests.
pub fn example(name: &str) -> Command {
    let tests = env::current_exe().expect("the test is a file");
    let built: PathBuf = tests
        .ancestors()
        .nth(2)
        .expect("in a folder of the target")
        .join("examples")
        .join(name);
    if !built.exists() {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--example", name])
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "the example builds"
        );
    }
    let mut command = Command::new(built);
    command.stdin(Stdio::null());
    command
}

/// The proxy example, in a process of its own; killed when dropped.
pub struct Proxy {
    process: Child,
    address: SocketAddr,
}

impl Proxy {
    /// Starts in front of `origin`, with further options.
    pub fn start(origin: SocketAddr, options: &[&str]) -> Self {
        let origin = format!("http://{origin}");
        let mut process = example("proxy")
            .args(["--listen", "127.0.0.1:0", "--origin", &origin])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the proxy starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("it says where it listens");
        let address = line
            .strip_prefix("http://")
            .and_then(|line| line.split(' ').next())
            .and_then(|address| address.parse().ok())
            .unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { process, address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends bytes, and reads until the proxy closes the connection.
    pub async fn raw(&self, request: &str) -> Vec<u8> {
        raw(self.address, request).await
    }

    /// A GET over HTTP/1.1 with further fields, each with its line break, and the answer as text.
    pub async fn get(&self, path: &str, fields: &str) -> String {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: shop\r\n{fields}Connection: close\r\n\r\n");
        String::from_utf8_lossy(&self.raw(&request).await).into_owned()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Sends bytes, and reads until the other side closes.
pub async fn raw(address: SocketAddr, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let mut answer = Vec::new();
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    // A connection that is cut ends the answer as well.
    drop(stream.read_to_end(&mut answer).await);
    answer
}

/// What of an answer is `text`, from a connection that stays open.
pub async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains(text) {
        let mut piece = [0; 1024];
        let length = stream.read(&mut piece).await.expect("it is open");
        assert!(length > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..length]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// One request, as the origin sees it: one to a connection.
pub struct Call {
    /// The first one is number 1.
    pub number: usize,
    /// Request line and fields, as they came.
    pub head: String,
    pub body: Vec<u8>,
    pub stream: TcpStream,
}

impl Call {
    /// Sends bytes; whether the proxy still wants them is its own affair.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        drop(self.stream.write_all(bytes.as_ref()).await);
    }

    /// The request's value of a field, in lower case; empty without one.
    pub fn field(&self, name: &str) -> &str {
        let mut lines = self.head.lines();
        lines
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .unwrap_or_default()
    }

    async fn read(mut stream: TcpStream) -> Option<Self> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let mut call = Self {
            number: 0,
            head: String::from_utf8_lossy(&head).into_owned(),
            body: Vec::new(),
            stream,
        };
        let length = call.field("content-length").parse().unwrap_or(0);
        call.body = vec![0; length];
        call.stream.read_exact(&mut call.body).await.ok()?;
        Some(call)
    }
}

/// Answers each request by a script. Ends when dropped.
pub struct ByteOrigin {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: AbortHandle,
}

impl ByteOrigin {
    pub async fn start<F, Fut>(script: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&heads);
        let script = Arc::new(script);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                tokio::spawn(async move {
                    if let Some(mut call) = Call::read(stream).await {
                        call.number = log(&seen, &call.head);
                        script(call).await;
                    }
                });
            }
        });
        Self {
            address,
            heads,
            task: serving.abort_handle(),
        }
    }

    /// Always says the same.
    pub async fn saying(answer: impl Into<Vec<u8>>) -> Self {
        let answer = Arc::new(answer.into());
        Self::start(move |mut call| {
            let answer = Arc::clone(&answer);
            async move { call.send(&*answer).await }
        })
        .await
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The heads of the requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.heads.lock().unwrap().len()
    }
}

fn log(heads: &Mutex<Vec<String>>, head: &str) -> usize {
    let mut heads = heads.lock().unwrap();
    heads.push(head.to_owned());
    heads.len()
}

impl Drop for ByteOrigin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// ===== what is said, and how it is read =====

/// A response that ends with its connection.
pub fn say(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\n{fields}\r\n{body}")
}

/// With the length that the body has.
pub fn page(fields: &str, body: &str) -> String {
    let length = body.len();
    say(
        "200 OK",
        &format!("{fields}Content-Length: {length}\r\n"),
        body,
    )
}

pub const FRESH: &str = "Cache-Control: max-age=60\r\n";

pub fn h2() -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http()
}

/// A GET over HTTP/2.
pub async fn get_h2(proxy: &Proxy, path: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://{}{path}", proxy.address()));
    ask_h2(request.version(Version::HTTP_2)).await
}

pub async fn ask_h2(request: http::request::Builder) -> Response<Incoming> {
    let request = request.body(Empty::new()).expect("it is valid");
    h2().request(request).await.expect("it is answered")
}

pub fn head_and_body(answer: &[u8]) -> (String, Vec<u8>) {
    let end = answer.windows(4).position(|at| at == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.expect("a head ends with an empty line") + 4);
    // Latin-1: a character for each byte.
    (
        head.iter().copied().map(char::from).collect(),
        body.to_vec(),
    )
}

/// The lines of a field, in order.
pub fn lines<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let named = |line: &'a str| {
        let (field, value) = line.split_once(':')?;
        let value = value.strip_prefix(' ').unwrap_or(value);
        field.eq_ignore_ascii_case(name).then_some(value)
    };
    head.split("\r\n").filter_map(named).collect()
}

pub fn outcome(answer: &str) -> &str {
    lines(answer, "cache-status").last().copied().unwrap_or("")
}

/// Until the answer to a GET is one that `accepts`.
pub async fn until(proxy: &Proxy, path: &str, accepts: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = proxy.get(path, "").await;
        if accepts(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer}");
        sleep(Duration::from_millis(5)).await;
    }
}
