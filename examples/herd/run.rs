//! One case from its start to its figures.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    Failed, Options,
    cases::{Case, Manner, SHORT_LIFE},
    client::{self, End, Pattern, Shot, Wait},
    fleet::Fleet,
    report::{Figures, Outcome},
    worker::UNPROTECTED,
};

/// In the case of a client that leaves: when it does, and when the others come.
const LEAVES_AFTER: Duration = Duration::from_millis(20);
const OTHERS_AFTER: Duration = Duration::from_millis(10);

/// Runs the herd without and with the layer; twice with it where the second wave is another story.
pub(crate) async fn case(case: Case, options: &Options) -> Result<Vec<Outcome>, Failed> {
    let fleet = Fleet::start(case, options).await?;
    let trial = Trial {
        case,
        options,
        fleet,
    };
    let unprotected = trial.wave(UNPROTECTED, trial.pattern()).await?;
    let protected = trial.protected(Manner::Plain).await?;
    let outcome = |name, protected| Outcome {
        case: name,
        story: case.story(),
        workers: options.workers,
        protected,
        unprotected: unprotected.clone(),
        stale: None,
        early: None,
    };
    let mut outcomes = vec![outcome(case.name(), protected)];
    if let (Case::Expired, [outcome]) = (case, &mut outcomes[..]) {
        outcome.stale = Some(trial.protected(Manner::Stale).await?);
        outcome.early = Some(trial.protected(Manner::Early).await?);
    }
    if case == Case::Uncacheable {
        let second = trial.protected(Manner::Plain).await?;
        outcomes.push(outcome(format!("{}-second-wave", case.name()), second));
    }
    Ok(outcomes)
}

/// A case under way.
struct Trial<'a> {
    case: Case,
    options: &'a Options,
    fleet: Fleet,
}

impl Trial<'_> {
    /// A wave on the layer, set up so.
    async fn protected(&self, manner: Manner) -> Result<Figures, Failed> {
        if self.case == Case::Expired {
            self.fill(manner.path()).await?;
        }
        match (self.case, manner) {
            // What is asked for all the time is to be refreshed before it expires.
            (Case::Expired, Manner::Early) => {
                let pattern = Pattern::Steadily(SHORT_LIFE.mul_f64(2.5));
                self.wave(manner.path(), pattern).await
            }
            (Case::Expired, _) => {
                sleep(SHORT_LIFE).await;
                self.wave(manner.path(), self.pattern()).await
            }
            _ => self.wave(manner.path(), self.pattern()).await,
        }
    }

    async fn wave(&self, path: &'static str, pattern: Pattern) -> Result<Figures, Failed> {
        let requests = usize::try_from(self.options.requests)?;
        self.settle().await?;
        let commands = self.commands().await?;
        let shots = client::stampede(&self.fleet.addresses, path, requests, pattern).await?;
        let commands = self.settle().await? - commands;
        let builds = self.fleet.take_builds().await?;
        Ok(Figures {
            requests,
            builds: builds.count,
            peak_builds: builds.peak,
            redis_commands: commands,
            waited: (self.case == Case::Expired).then(|| waited(&shots)),
            ..figures(&shots)
        })
    }

    fn pattern(&self) -> Pattern {
        match self.case {
            Case::Disconnect => Pattern::FirstLeaves {
                others_after: OTHERS_AFTER,
                leaves_after: LEAVES_AFTER,
            },
            _ => Pattern::Together,
        }
    }

    /// Has the response stored in every worker.
    async fn fill(&self, path: &'static str) -> Result<(), Failed> {
        for &address in &self.fleet.addresses {
            client::fetch(address, path).await?;
        }
        self.fleet.take_builds().await.map(drop)
    }

    /// Waits until the workers have told Redis all that they have to tell, and counts its commands.
    async fn settle(&self) -> Result<u64, Failed> {
        let patience = Instant::now() + Duration::from_secs(5);
        let mut before = self.commands().await?;
        loop {
            sleep(Duration::from_millis(50)).await;
            let now = self.commands().await?;
            if now == before || Instant::now() > patience {
                return Ok(now);
            }
            before = now;
        }
    }

    /// How many commands the server has run, those that count them left out.
    async fn commands(&self) -> Result<u64, Failed> {
        let Some(url) = &self.options.redis else {
            return Ok(0);
        };
        let client = redis::Client::open(url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
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

fn figures(shots: &[Shot]) -> Figures {
    let mut latencies: Vec<f64> = shots
        .iter()
        .map(|shot| shot.latency.as_secs_f64() * 1e3)
        .collect();
    latencies.sort_by(f64::total_cmp);
    let mut status = BTreeMap::new();
    let mut errors = 0;
    for shot in shots {
        match shot.end {
            End::Answered(code, _) => *status.entry(code).or_default() += 1,
            End::Failed => errors += 1,
        }
    }
    Figures {
        p50_ms: percentile(&latencies, 50),
        p99_ms: percentile(&latencies, 99),
        max_ms: percentile(&latencies, 100),
        status,
        errors,
        ..Figures::default()
    }
}

/// How many of them were answered, and not at once.
fn waited(shots: &[Shot]) -> usize {
    let waited = |shot: &&Shot| matches!(shot.end, End::Answered(_, Wait::Some));
    shots.iter().filter(waited).count()
}

/// The least of the sorted `values` that `percent` of them do not exceed, to a tenth.
fn percentile(values: &[f64], percent: usize) -> f64 {
    let rank = (values.len() * percent).div_ceil(100).max(1);
    let value = values.get(rank - 1).copied().unwrap_or_default();
    (value * 10.0).round() / 10.0
}
