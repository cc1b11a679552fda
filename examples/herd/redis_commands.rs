//! How many commands the workers' server has run.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Failed;

/// The commands since this was made, over all lives of the server.
#[derive(Debug)]
pub(crate) struct Commands {
    client: redis::Client,
    from: u64,
    ended: u64,
}

impl Commands {
    /// Counts from the moment on when the workers have told all that they have to tell.
    pub(crate) async fn start(url: &str) -> Result<Self, Failed> {
        let mut commands = Self {
            client: redis::Client::open(url)?,
            from: 0,
            ended: 0,
        };
        commands.from = commands.settle().await?;
        Ok(commands)
    }

    /// Before the server is killed: it counts anew afterwards.
    pub(crate) async fn end(&mut self) -> Result<(), Failed> {
        self.ended += self.of_this_life().await?.saturating_sub(self.from);
        self.from = 0;
        Ok(())
    }

    /// Waits until the workers have told all that they have to tell.
    pub(crate) async fn total(mut self) -> Result<u64, Failed> {
        self.settle().await?;
        self.end().await?;
        Ok(self.ended)
    }

    async fn settle(&self) -> Result<u64, Failed> {
        let patience = Instant::now() + Duration::from_secs(5);
        let mut before = self.of_this_life().await?;
        loop {
            sleep(Duration::from_millis(50)).await;
            let now = self.of_this_life().await?;
            if now == before || Instant::now() > patience {
                return Ok(now);
            }
            before = now;
        }
    }

    /// Those that count are left out.
    async fn of_this_life(&self) -> Result<u64, Failed> {
        let mut connection = self.client.get_multiplexed_async_connection().await?;
        let stats: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut connection)
            .await?;
        Ok(stats.lines().filter_map(calls).sum())
    }
}

/// `cmdstat_get:calls=3,usec=…` is 3.
fn calls(line: &str) -> Option<u64> {
    let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let calls = figures
        .strip_prefix("calls=")?
        .split(',')
        .next()?
        .parse()
        .ok()?;
    // What a client sends to say who it is comes with each count.
    let counting = name == "info" || name.starts_with("client|") || name == "hello";
    (!counting).then_some(calls)
}
