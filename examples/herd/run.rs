//! One case from its start to its figures.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    Failed, Options,
    cases::{Case, Manner, SHORT_LIFE},
    client::{self, End, Herd, Pattern, Shot, Wait},
    fleet::Fleet,
    redis_commands::Commands,
    report::{Answers, Figures, Outcome},
    trouble,
    worker::UNPROTECTED,
};

/// In the case of a client that leaves: when it does, and when the others come.
const LEAVES_AFTER: Duration = Duration::from_millis(20);
const OTHERS_AFTER: Duration = Duration::from_millis(10);

/// Runs the herd without and with the layer; twice with it where the second wave is another story.
pub(crate) async fn case(case: Case, options: &Options) -> Result<Vec<Outcome>, Failed> {
    if let Some(fault) = case.fault() {
        return Ok(vec![Box::pin(trouble::case(case, fault, options)).await?]);
    }
    let fleet = Fleet::start(case, options).await?;
    let trial = Trial {
        case,
        options,
        fleet,
    };
    let herd = trial.gather().await?;
    let unprotected = trial.wave(herd, UNPROTECTED, trial.pattern()).await?;
    let protected = trial.protected(Manner::Plain).await?;
    let outcome = |name, protected| Outcome {
        case: name,
        story: case.story(),
        workers: options.workers,
        protected,
        unprotected: unprotected.clone(),
        stale: None,
        early: None,
        trouble: None,
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
        let herd = self.gather().await?;
        let path = manner.path();
        if self.case != Case::Expired {
            return self.wave(herd, path, self.pattern()).await;
        }
        self.fill(path).await?;
        if manner == Manner::Early {
            // What is asked for all the time is to be refreshed before it expires.
            let pattern = Pattern::Steadily(SHORT_LIFE.mul_f64(2.5));
            return self.wave(herd, path, pattern).await;
        }
        sleep(SHORT_LIFE).await;
        self.wave(herd, path, self.pattern()).await
    }

    async fn gather(&self) -> Result<Herd, Failed> {
        let requests = usize::try_from(self.options.requests)?;
        Herd::gather(&self.fleet.addresses, requests).await
    }

    async fn wave(
        &self,
        herd: Herd,
        path: &'static str,
        pattern: Pattern,
    ) -> Result<Figures, Failed> {
        let commands = match &self.options.redis {
            Some(url) => Some(Commands::start(url).await?),
            None => None,
        };
        let shots = herd.stampede(|_| path.to_owned(), pattern).await;
        let redis_commands = match commands {
            Some(commands) => commands.total().await?,
            None => 0,
        };
        let builds = self.fleet.take_builds().await?;
        let mut answers = Answers::of(&shots);
        // Of one who left nobody knows how it was answered.
        answers.requests = usize::try_from(self.options.requests)?;
        Ok(Figures {
            builds: builds.all().count(),
            peak_builds: builds.peak(),
            answers,
            redis_commands,
            waited: self.case.counts_waits().then(|| waited(&shots)),
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
}

/// How many of them were answered, and not at once.
fn waited(shots: &[Shot]) -> usize {
    let waited = |shot: &&Shot| matches!(shot.end, End::Answered(_, Wait::Some));
    shots.iter().filter(waited).count()
}
