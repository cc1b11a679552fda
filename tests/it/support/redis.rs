//! A real `redis-server` that lives as long as the test.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    ops::Range,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use redis::{Client, Cmd, FromRedisValue};
use tempfile::TempDir;

/// Below the range from which the system takes the ports of outgoing connections, so that nobody takes
/// the port of a server that is down for a moment.
pub const PORTS: Range<u16> = 10_000..32_000;
const STARTS: usize = 20;
const READY: &str = "eady to accept connections";

/// A server without persistence on a free loopback port, with a directory of its own. Killed when dropped.
pub struct RedisServer {
    process: Child,
    port: u16,
    options: Vec<String>,
    directory: TempDir,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    pub fn start() -> Self {
        Self::with_options(&[])
    }

    /// Starts a server with further command-line options, such as `["--maxmemory", "2mb"]`.
    pub fn with_options(options: &[&str]) -> Self {
        Self::with(|| options.iter().map(|&option| option.to_owned()).collect())
    }

    /// As [`with_options`](Self::with_options), with new ones for each attempt to start.
    pub fn with(options: impl Fn() -> Vec<String>) -> Self {
        let directory = TempDir::new().expect("a temporary directory can be made");
        for _ in 0..STARTS {
            let (port, options) = (free_port(), options());
            if let Some(process) = launch(port, &directory, &options) {
                let server = Self {
                    process,
                    port,
                    options,
                    directory,
                };
                server.await_pong();
                return server;
            }
        }
        panic!("redis-server did not start on any of {STARTS} ports");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn client(&self) -> Client {
        Client::open(self.url()).expect("the URL is valid")
    }

    /// A client that logs in as `user`.
    pub fn client_as(&self, user: &str, password: &str) -> Client {
        Client::open(format!(
            "redis://{user}:{password}@127.0.0.1:{}/",
            self.port
        ))
        .expect("the URL is valid")
    }

    /// The socket of a server started with [`with_unix_socket`](Self::with_unix_socket).
    pub fn unix_socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// Starts a server that also listens on a unix socket.
    pub fn with_unix_socket() -> Self {
        // The server's working directory is its own, so that a relative name is enough.
        Self::with_options(&["--unixsocket", "redis.sock"])
    }

    /// Sends one command on a connection of its own, blocking: `["SET", "key", "value"]`.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_command(words)
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// As [`command`](Self::command), where a refusal by the server is part of the test.
    pub fn try_command<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut connection = self
            .client()
            .get_connection_with_timeout(Duration::from_secs(5))?;
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut command = Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query(&mut connection)
    }

    /// `CONFIG SET name value`.
    pub fn config(&self, name: &str, value: &str) {
        self.command::<()>(&["CONFIG", "SET", name, value]);
    }

    /// How often each command ran since the start or the last [`reset_counts`](Self::reset_counts),
    /// by its name in lower case (`"get"`, `"script|load"`). Calls from scripts count too.
    pub fn command_counts(&self) -> HashMap<String, u64> {
        let stats: String = self.command(&["INFO", "commandstats"]);
        stats.lines().filter_map(command_count).collect()
    }

    /// How often one command ran; 0 if it never did.
    pub fn count(&self, command: &str) -> u64 {
        self.command_counts().get(command).copied().unwrap_or(0)
    }

    pub fn reset_counts(&self) {
        self.command::<()>(&["CONFIG", "RESETSTAT"]);
    }

    /// How many clients of `kind` (`"normal"`, `"pubsub"`) are connected, the caller left out.
    pub fn clients(&self, kind: &str) -> usize {
        let list: String = self.command(&["CLIENT", "LIST", "TYPE", kind]);
        list.lines()
            .filter(|line| !line.contains("cmd=client|list"))
            .count()
    }

    /// How many connected clients have sent `command` last.
    pub fn clients_at(&self, command: &str) -> usize {
        let list: String = self.command(&["CLIENT", "LIST"]);
        let sent = format!(" cmd={command} ");
        list.lines().filter(|line| line.contains(&sent)).count()
    }

    /// Freezes the process: its sockets stay open and nothing answers.
    pub fn pause(&self) {
        signal(&self.process, "STOP");
        until_it_stands_still(self.process.id());
    }

    pub fn resume(&self) {
        signal(&self.process, "CONT");
    }

    /// Kills the process outright; connections break and new ones are refused.
    pub fn kill(&mut self) {
        self.process.kill().expect("the process can be killed");
        self.process.wait().expect("the process can be reaped");
    }

    /// Starts anew on the same port, empty; kills the old process first if it still runs.
    pub fn restart(&mut self) {
        self.kill();
        for _ in 0..STARTS {
            if let Some(process) = launch(self.port, &self.directory, &self.options) {
                self.process = process;
                self.await_pong();
                return;
            }
        }
        panic!("redis-server did not start again on port {}", self.port);
    }

    fn await_pong(&self) {
        let pong: String = self.command(&["PING"]);
        assert_eq!(pong, "PONG");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may be dead already: then both fail, and that is well.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A sentinel that watches one master.
pub struct Sentinel {
    process: Child,
    port: u16,
    _directory: TempDir,
}

impl Sentinel {
    /// Watches the master at `port` under the name of `shop`; takes it for dead after half a second, together
    /// with `quorum - 1` others.
    pub fn start(master: u16, quorum: usize) -> Self {
        for _ in 0..STARTS {
            let directory = TempDir::new().expect("a temporary directory can be made");
            let port = free_port();
            let settings = [
                format!("port {port}"),
                "bind 127.0.0.1".to_owned(),
                format!("sentinel monitor shop 127.0.0.1 {master} {quorum}"),
                "sentinel down-after-milliseconds shop 500".to_owned(),
                "sentinel failover-timeout shop 2000".to_owned(),
            ];
            let file = directory.path().join("sentinel.conf");
            fs::write(file, settings.join("\n")).expect("the settings can be written");
            let words = ["sentinel.conf", "--sentinel"];
            if let Some(process) = run(&words, &directory, "Sentinel ID is") {
                return Self {
                    process,
                    port,
                    _directory: directory,
                };
            }
        }
        panic!("no sentinel started on any of {STARTS} ports");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(5))?;
        let mut command = redis::cmd("SENTINEL");
        for word in words {
            command.arg(*word);
        }
        command.query(&mut connection)
    }

    /// The port of the master that it names.
    pub fn master(&self) -> u16 {
        let address: (String, u16) = self
            .command(&["GET-MASTER-ADDR-BY-NAME", "shop"])
            .expect("the master is known");
        address.1
    }

    /// Freezes the process: its sockets stay open and nothing answers.
    pub fn pause(&self) {
        signal(&self.process, "STOP");
        until_it_stands_still(self.process.id());
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

pub fn signal(process: &Child, name: &str) {
    // The shell's own `kill`, since a bare machine has no other.
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", process.id())])
        .status()
        .expect("a shell can be started");
    assert!(status.success(), "SIG{name} could not be sent");
}

/// A process that has been sent SIGSTOP goes on for a moment: until each of its threads has seen it.
pub fn until_it_stands_still(process: u32) {
    let stopped = || {
        let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        threads.map_while(Result::ok).all(|thread| {
            let state = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // After the name in parentheses, which may hold anything.
            let state = state.rsplit(") ").next().unwrap_or_default();
            state.starts_with('T')
        })
    };
    while !stopped() {
        thread::yield_now();
    }
}

pub fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(PORTS);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn launch(port: u16, directory: &TempDir, options: &[String]) -> Option<Child> {
    let port = port.to_string();
    let mut words = vec!["--port", &port, "--bind", "127.0.0.1"];
    words.extend(["--save", "", "--appendonly", "no"]);
    words.extend(["--enable-debug-command", "yes"]);
    words.extend(options.iter().map(String::as_str));
    run(&words, directory, READY)
}

/// Returns once the server said `ready`, or `None` if it ended before.
fn run(words: &[&str], directory: &TempDir, ready: &str) -> Option<Child> {
    let log = directory.path().join("redis.log");
    let mut process = Command::new("redis-server")
        .args(words)
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed");
    let output = process.stdout.take().expect("stdout is piped");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let mut head = String::new();
    for line in lines.by_ref() {
        head.push_str(&line);
        if line.contains(ready) {
            // The server must never block on a full pipe.
            thread::spawn(move || lines.for_each(drop));
            return Some(process);
        }
    }
    drop(fs::write(log, head));
    drop(process.wait());
    None
}

/// `cmdstat_get:calls=3,usec=…` is `("get", 3)`.
fn command_count(line: &str) -> Option<(String, u64)> {
    let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let calls = figures.strip_prefix("calls=")?.split(',').next()?;
    Some((name.to_owned(), calls.parse().ok()?))
}
