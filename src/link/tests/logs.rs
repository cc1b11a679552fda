use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// What was logged on this thread since it was made.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn append(&self, piece: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(piece);
    }

    fn lines(&self, level: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .filter(|line| line.contains(level) && line.contains("link="))
            .map(str::to_owned)
            .collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.append(piece);
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

#[tokio::test]
async fn an_outage_is_one_warning_and_its_end_one_line() {
    // With one dispatcher alone, a line that another thread meets first is off for this thread too.
    let _spare = Dispatch::new(tracing_subscriber::registry());
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .with_writer(log.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (link, _proxy, mut server) = connected().await;
    assert!(log.lines("INFO").is_empty());

    server.kill();
    becomes(&link, Phase::Broken).await;
    for _ in 0..100 {
        link.query::<()>(&command(&["GET", "secret-key"]))
            .await
            .unwrap_err();
    }
    // Some attempts to connect fail meanwhile, and none of them is news.
    for _ in 0..3 {
        becomes(&link, Phase::Probing).await;
        becomes(&link, Phase::Broken).await;
    }
    server.restart();
    becomes(&link, Phase::Connected).await;

    let warnings = log.lines("WARN");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("commands"), "{warnings:?}");
    assert_eq!(log.lines("INFO").len(), 1);
    assert!(!log.lines("").iter().any(|line| line.contains("secret")));
}
