//! What a run has shown, for a person or for a program.
#![expect(clippy::print_stdout, reason = "the report is what it is for")]

use std::{collections::BTreeMap, time::Duration};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_HORIZONTAL_ONLY};
use serde::Serialize;

use crate::{
    Failed, Options,
    client::{End, Shot},
    trouble::WAVE,
};

/// One wave of one case, with the layer and without.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) case: String,
    #[serde(skip)]
    pub(crate) story: String,
    pub(crate) workers: u16,
    #[serde(flatten)]
    pub(crate) protected: Figures,
    pub(crate) unprotected: Figures,
    /// With stale serving, in the case where there is something stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stale: Option<Figures>,
    /// With early refresh, under steady load over more than two lifetimes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) early: Option<Figures>,
    /// What it cost that Redis failed, in the cases where it does.
    #[serde(flatten)]
    pub(crate) trouble: Option<Trouble>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) builds: usize,
    pub(crate) peak_builds: usize,
    #[serde(flatten)]
    pub(crate) answers: Answers,
    pub(crate) redis_commands: u64,
    /// Requests whose answer was not there when they came, where that is the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited: Option<usize>,
}

/// How requests ended, and when.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Answers {
    pub(crate) requests: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// From the first request sent to the last answer.
    pub(crate) all_ms: f64,
    /// How many answers had which status.
    pub(crate) status: BTreeMap<u16, usize>,
    /// Requests whose connection broke, or that nobody answered.
    pub(crate) errors: usize,
}

/// What it cost that Redis failed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trouble {
    /// What was answered before.
    pub(crate) before: Phase,
    /// What was under way meanwhile.
    pub(crate) during: Phase,
    /// What was sent when the server was back.
    pub(crate) after: Phase,
    /// For how long Redis failed.
    pub(crate) failed_ms: f64,
    /// What one request may be held up by Redis.
    pub(crate) budget_ms: u64,
    /// By how much requests took longer meanwhile than before.
    pub(crate) extra_p50_ms: f64,
    pub(crate) extra_p99_ms: f64,
    pub(crate) extra_max_ms: f64,
    /// From the server's return until each worker had read what another one had built since.
    pub(crate) healed_ms: f64,
    pub(crate) builds_by_worker: Vec<usize>,
    /// Of a key that was asked for in one wave alone.
    pub(crate) most_builds_of_a_key_by_a_worker: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Phase {
    pub(crate) builds: usize,
    #[serde(flatten)]
    pub(crate) answers: Answers,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Table,
    Json,
}

impl Format {
    pub(crate) fn begin(self, options: &Options) {
        let Self::Table = self else {
            return;
        };
        if options.cases.iter().all(|case| case.fault().is_some()) {
            let requests = options.requests;
            println!("{requests} requests while a Redis of their own fails: some seconds each.");
            return;
        }
        let workers = match options.workers {
            1 => "1 worker".to_owned(),
            workers => format!("{workers} workers"),
        };
        let redis = if options.redis.is_some() {
            "one Redis"
        } else {
            "no Redis"
        };
        println!(
            "{workers}, {redis}, {} requests at once on open connections, {} ms to build a response.",
            options.requests, options.build_ms,
        );
        println!(
            "Times are from sending a request to the last byte of its answer. All: from the first request"
        );
        println!(
            "sent to the last answer. Waited: how many answers were not there when their requests came,"
        );
        println!("where that is the question.");
    }

    pub(crate) fn print(self, outcome: &Outcome) -> Result<(), Failed> {
        match self {
            Self::Json => println!("{}", serde_json::to_string(outcome)?),
            Self::Table => {
                println!("\n{}: {}\n{}", outcome.case, outcome.story, table(outcome));
                if let Some(trouble) = &outcome.trouble {
                    println!("{}", trouble.in_words(outcome));
                }
            }
        }
        Ok(())
    }
}

fn table(outcome: &Outcome) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header([
            "layer",
            "builds",
            "at once",
            "p50 ms",
            "p99 ms",
            "max ms",
            "all ms",
            "answers",
            "errors",
            "Redis commands",
            "waited",
        ]);
    table.add_row(outcome.unprotected.row("without"));
    table.add_row(outcome.protected.row("with"));
    if let Some(stale) = &outcome.stale {
        table.add_row(stale.row("and stale serving"));
    }
    if let Some(early) = &outcome.early {
        table.add_row(early.row("and early refresh"));
    }
    if let Some(trouble) = &outcome.trouble {
        table.add_row(trouble.before.row("  before"));
        table.add_row(trouble.during.row("  while it failed"));
        table.add_row(trouble.after.row("  when it was back"));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

impl Figures {
    fn row(&self, layer: &str) -> [String; 11] {
        let mut row = self.answers.row(layer, self.builds);
        let [_, _, peak, .., commands, waited] = &mut row;
        *peak = self.peak_builds.to_string();
        *commands = self.redis_commands.to_string();
        *waited = self
            .waited
            .map_or_else(String::new, |waited| waited.to_string());
        row
    }
}

impl Phase {
    fn row(&self, name: &str) -> [String; 11] {
        self.answers.row(name, self.builds)
    }
}

impl Answers {
    pub(crate) fn of(shots: &[Shot]) -> Self {
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
        Self {
            requests: shots.len(),
            p50_ms: percentile(&latencies, 50),
            p99_ms: percentile(&latencies, 99),
            max_ms: percentile(&latencies, 100),
            all_ms: millis(all(shots)),
            status,
            errors,
        }
    }

    fn row(&self, name: &str, builds: usize) -> [String; 11] {
        let answers = self
            .status
            .iter()
            .map(|(code, count)| format!("{count} x {code}"));
        [
            name.to_owned(),
            builds.to_string(),
            String::new(),
            format!("{:.1}", self.p50_ms),
            format!("{:.1}", self.p99_ms),
            format!("{:.1}", self.max_ms),
            format!("{:.1}", self.all_ms),
            answers.collect::<Vec<_>>().join(", "),
            self.errors.to_string(),
            String::new(),
            String::new(),
        ]
    }
}

impl Trouble {
    fn in_words(&self, outcome: &Outcome) -> String {
        let Self {
            failed_ms,
            budget_ms,
            extra_p99_ms,
            extra_max_ms,
            healed_ms,
            builds_by_worker,
            most_builds_of_a_key_by_a_worker: most,
            ..
        } = self;
        let workers = outcome.workers;
        format!(
            "\
{workers} workers on a Redis of their own; waves of {WAVE} requests, half for a new key, half for a hot one.
Redis failed for {failed_ms:.0} ms. Meanwhile requests took longer than before by {extra_p99_ms:.1} ms (p99), \
by {extra_max_ms:.1} ms at most; the budget is {budget_ms} ms.
It had healed {healed_ms:.0} ms after the server's return. Builds by worker: {builds_by_worker:?}; of one key in \
one worker at most {most}."
        )
    }
}

/// From the first request sent to the last answer.
fn all(shots: &[Shot]) -> Duration {
    let first = shots.iter().map(|shot| shot.sent).min();
    let last = shots.iter().map(|shot| shot.sent + shot.latency).max();
    first
        .zip(last)
        .map(|(first, last)| last - first)
        .unwrap_or_default()
}

/// The least of the sorted `values` that `percent` of them do not exceed, to a tenth.
fn percentile(values: &[f64], percent: usize) -> f64 {
    let rank = (values.len() * percent).div_ceil(100).max(1);
    tenth(values.get(rank - 1).copied().unwrap_or_default())
}

pub(crate) fn millis(duration: Duration) -> f64 {
    tenth(duration.as_secs_f64() * 1e3)
}

pub(crate) fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
