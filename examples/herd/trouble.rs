//! A herd that goes on while Redis fails, and comes back.

use std::{collections::HashMap, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    Failed, Options,
    cases::{Case, Manner},
    client::{Herd, Pattern, Shot},
    faults::Fault,
    fleet::{Builds, Fleet},
    healing,
    parts::redis_server::RedisServer,
    redis_commands::Commands,
    report::{Answers, Figures, Outcome, Phase, Trouble, millis, tenth},
    worker::{self, Build, UNPROTECTED},
};

/// So many requests come at once: half of them for what nobody has asked for before.
pub(crate) const WAVE: usize = 20;
/// The others are for one of so many that are asked for again and again.
const HOT: usize = 3;

const BEFORE: Duration = Duration::from_millis(1500);
const AFTER: Duration = Duration::from_millis(1500);

/// Runs the herd on a Redis of its own, without the layer, and with it while Redis fails.
pub(crate) async fn case(case: Case, fault: Fault, options: &Options) -> Result<Outcome, Failed> {
    let mut server = RedisServer::start().await?;
    let options = Options {
        // Fewer would have nobody to share with.
        workers: options.workers.max(2),
        redis: Some(server.url()),
        ..options.clone()
    };
    let fleet = Fleet::start(case, &options).await?;
    let unprotected = unprotected(&fleet, &options).await?;
    let (protected, trouble) = protected(&fleet, &mut server, fault, &options).await?;
    Ok(Outcome {
        case: case.name(),
        story: case.story(),
        workers: options.workers,
        protected,
        unprotected,
        stale: None,
        early: None,
        trouble: Some(trouble),
    })
}

fn path_of(path: &str, number: usize) -> String {
    let (wave, place) = (number / WAVE, number % WAVE);
    if place < WAVE / 2 {
        format!("{path}?{COLD}{wave}")
    } else {
        format!("{path}?hot-{}", wave % HOT)
    }
}

const COLD: &str = "cold-";

async fn unprotected(fleet: &Fleet, options: &Options) -> Result<Figures, Failed> {
    let requests = usize::try_from(options.requests)?;
    let path_of = |number| path_of(UNPROTECTED, number);
    let herd = Herd::gather(&fleet.addresses, requests).await?;
    let shots = herd.stampede(path_of, Pattern::Together).await;
    let builds = fleet.take_builds().await?;
    Ok(Figures {
        builds: builds.all().count(),
        peak_builds: builds.peak(),
        answers: Answers::of(&shots),
        redis_commands: 0,
        waited: None,
    })
}

/// When Redis began to fail, and when it was back.
#[derive(Clone, Copy)]
struct Fell {
    from: Moment,
    until: Moment,
}

/// On the clock of this process, and on the machine's, which the builds of all processes are timed by.
#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    micros: u64,
}

impl Moment {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            micros: worker::now(),
        }
    }
}

async fn protected(
    fleet: &Fleet,
    server: &mut RedisServer,
    fault: Fault,
    options: &Options,
) -> Result<(Figures, Trouble), Failed> {
    let requests = usize::try_from(options.requests)?;
    let path_of = |number| path_of(Manner::Plain.path(), number);
    let pattern = Pattern::InWaves(WAVE, BEFORE + fault.length() + AFTER);
    // The workers share, before anything is timed.
    healing::healed(&fleet.addresses, Instant::now()).await?;
    let herd = Herd::gather(&fleet.addresses, requests).await?;
    let mut commands = Commands::start(&server.url()).await?;

    let herd = async { Ok(herd.stampede(path_of, pattern).await) };
    let failing = async {
        sleep(BEFORE).await;
        let from = Moment::now();
        fault.strike(server, &mut commands).await?;
        let until = Moment::now();
        let healed = healing::healed(&fleet.addresses, until.at).await?;
        Ok::<_, Failed>((Fell { from, until }, healed))
    };
    let (shots, (fell, healed)) = tokio::try_join!(herd, failing)?;

    let commands = commands.total().await?;
    let builds = fleet.take_builds().await?;
    let [before, during, after] = fell.phases(&shots, &builds);
    let figures = Figures {
        builds: builds.all().count(),
        peak_builds: builds.peak(),
        answers: Answers::of(&shots),
        redis_commands: commands,
        waited: None,
    };
    let trouble = Trouble {
        failed_ms: millis(fell.until.at - fell.from.at),
        budget_ms: options.redis_budget_ms,
        extra_p50_ms: tenth(during.answers.p50_ms - before.answers.p50_ms),
        extra_p99_ms: tenth(during.answers.p99_ms - before.answers.p99_ms),
        extra_max_ms: tenth(during.answers.max_ms - before.answers.max_ms),
        healed_ms: millis(healed),
        builds_by_worker: builds.by_worker.iter().map(Vec::len).collect(),
        most_builds_of_a_key_by_a_worker: most_of_a_cold_key(&builds),
        before,
        during,
        after,
    };
    Ok((figures, trouble))
}

/// Where something falls: before Redis failed, meanwhile, or when it was back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Before,
    During,
    After,
}

impl Fell {
    fn part_of_shot(self, shot: &Shot) -> Part {
        match shot.sent {
            sent if sent >= self.until.at => Part::After,
            sent if sent + shot.latency > self.from.at => Part::During,
            _ => Part::Before,
        }
    }

    fn part_of_build(self, build: &Build) -> Part {
        match build.began {
            began if began >= self.until.micros => Part::After,
            began if began >= self.from.micros => Part::During,
            _ => Part::Before,
        }
    }

    fn phases(self, shots: &[Shot], builds: &Builds) -> [Phase; 3] {
        [Part::Before, Part::During, Part::After].map(|part| {
            let shots = shots.iter().copied();
            let shots = shots.filter(|shot| self.part_of_shot(shot) == part);
            let builds = builds.all();
            let builds = builds.filter(|build| self.part_of_build(build) == part);
            Phase {
                builds: builds.count(),
                answers: Answers::of(&shots.collect::<Vec<_>>()),
            }
        })
    }
}

/// What is asked for in one wave alone does not expire meanwhile.
fn most_of_a_cold_key(builds: &Builds) -> usize {
    let most = builds.by_worker.iter().map(|builds| {
        let mut counts = HashMap::<&str, usize>::new();
        for build in builds.iter().filter(|build| build.query.starts_with(COLD)) {
            *counts.entry(&build.query).or_default() += 1;
        }
        counts.into_values().max().unwrap_or_default()
    });
    most.max().unwrap_or_default()
}
