//! What was logged by a test whose runtime has one thread.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Listens to this thread until the guard is dropped.
    pub fn start() -> (Self, DefaultGuard) {
        Self::at(Level::DEBUG, FmtSpan::NONE)
    }

    /// The same, from `level` up, with what becomes of spans.
    pub fn at(level: Level, spans: FmtSpan) -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(level)
            .with_span_events(spans)
            .with_writer(log.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    pub fn lines(&self, level: &str, words: &str) -> Vec<String> {
        let text = self.text();
        let wanted = |line: &&str| line.contains(level) && line.contains(words);
        text.lines().filter(wanted).map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
