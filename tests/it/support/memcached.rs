//! A real `memcached` that lives as long as the test.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    ops::Range,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use tokio::time::Instant;

/// Below the range from which the system takes the ports of outgoing connections, so that nobody takes
/// the port of a server that is down for a moment.
const PORTS: Range<u16> = 10_000..32_000;
const STARTS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// A server on a free loopback port. Killed when dropped.
pub struct MemcachedServer {
    process: Child,
    port: u16,
    options: Vec<String>,
}

impl MemcachedServer {
    /// Starts a server and waits until it answers.
    pub fn start() -> Self {
        Self::with_options(&[])
    }

    /// Starts a server with further command-line options, such as `["-I", "2m"]`.
    pub fn with_options(options: &[&str]) -> Self {
        let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
        for _ in 0..STARTS {
            let port = free_port();
            if let Some(process) = launch(port, &options) {
                return Self {
                    process,
                    port,
                    options,
                };
            }
        }
        panic!("memcached did not start on any of {STARTS} ports");
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends one line on a connection of its own, blocking, and returns what comes before `end`.
    fn ask(&self, line: &str, end: &str) -> Vec<String> {
        let mut stream = self.connect();
        write!(stream, "{line}\r\n").unwrap();
        let lines = BufReader::new(stream).lines().map(Result::unwrap);
        lines.take_while(|line| line != end).collect()
    }

    /// Forgets everything.
    pub fn flush_all(&self) {
        assert!(self.ask("flush_all", "OK").is_empty());
        // What was written in the same second is gone too, once that is over.
        assert!(self.keys().is_empty());
    }

    /// The names of all records.
    pub fn keys(&self) -> Vec<String> {
        let lines = self.ask("lru_crawler metadump all", "END");
        let key = |line: &String| {
            let name = line.strip_prefix("key=")?.split(' ').next()?;
            Some(name.replace("%3A", ":"))
        };
        lines.iter().filter_map(key).collect()
    }

    /// The names of the records that end so.
    pub fn keys_with(&self, end: &str) -> Vec<String> {
        let mut keys = self.keys();
        keys.retain(|key| key.ends_with(end));
        keys
    }

    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let mut stream = self.connect();
        write!(stream, "mg {key} v\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        reader.read_line(&mut head).unwrap();
        let size = head.trim().strip_prefix("VA ")?.parse().unwrap();
        let mut value = vec![0; size];
        reader.read_exact(&mut value).unwrap();
        Some(value)
    }

    pub fn set(&self, key: &str, value: &[u8]) {
        let mut stream = self.connect();
        write!(stream, "ms {key} {} T50\r\n", value.len()).unwrap();
        stream.write_all(value).unwrap();
        stream.write_all(b"\r\n").unwrap();
        let mut head = String::new();
        BufReader::new(stream).read_line(&mut head).unwrap();
        assert_eq!(head.trim(), "HD");
    }

    pub fn delete(&self, key: &str) {
        let mut stream = self.connect();
        write!(stream, "md {key}\r\n").unwrap();
        let mut head = String::new();
        BufReader::new(stream).read_line(&mut head).unwrap();
    }

    /// One of the server's figures, such as `curr_connections`.
    pub fn figure(&self, name: &str) -> u64 {
        let lines = self.ask("stats", "END");
        let figure = |line: &String| {
            let (found, figure) = line.strip_prefix("STAT ")?.split_once(' ')?;
            (found == name).then(|| figure.parse().unwrap())
        };
        lines.iter().find_map(figure).unwrap()
    }

    /// Freezes the process: its sockets stay open and nothing answers.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Kills the process outright; connections break and new ones are refused.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts anew on the same port, empty; kills the old process first if it still runs.
    pub fn restart(&mut self) {
        self.kill();
        for _ in 0..STARTS {
            if let Some(process) = launch(self.port, &self.options) {
                self.process = process;
                return;
            }
        }
        panic!("memcached did not start again on port {}", self.port);
    }

    fn signal(&self, name: &str) {
        // The shell's own `kill`, since a bare machine has no other.
        let status = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.process.id())])
            .status()
            .unwrap();
        assert!(status.success());
    }
}

impl Drop for MemcachedServer {
    fn drop(&mut self) {
        // It may be dead already: then both fail, and that is well.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(PORTS);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns once the server answers, or `None` if it ended before.
fn launch(port: u16, options: &[String]) -> Option<Child> {
    let port_text = port.to_string();
    let mut process = Command::new("memcached")
        .args(["-l", "127.0.0.1", "-p", &port_text, "-U", "0", "-t", "2"])
        // Root has to say who it wants to be.
        .args(["-u", "nobody"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("memcached is installed");
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if process.try_wait().unwrap().is_some() {
            return None;
        }
        if answers(port) && process.try_wait().unwrap().is_none() {
            return Some(process);
        }
        thread::yield_now();
    }
    drop(process.kill());
    drop(process.wait());
    None
}

/// Whether a server answers there. It may be another one that was quicker: that may say nothing.
fn answers(port: u16) -> bool {
    let version = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        stream.write_all(b"version\r\n")?;
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply)?;
        Ok::<_, std::io::Error>(reply)
    };
    version().is_ok_and(|reply| reply.starts_with("VERSION"))
}
