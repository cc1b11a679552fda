//! What a run has shown, for a person or for a program.
#![expect(clippy::print_stdout, reason = "the report is what it is for")]

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_HORIZONTAL_ONLY};
use serde::Serialize;

use crate::{Failed, Options};

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
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) requests: usize,
    pub(crate) builds: usize,
    pub(crate) peak_builds: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// How many answers had which status.
    pub(crate) status: BTreeMap<u16, usize>,
    /// Requests whose connection broke, or that nobody answered.
    pub(crate) errors: usize,
    pub(crate) redis_commands: u64,
    /// Requests whose answer was not there when they came, where that is the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited: Option<usize>,
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
            "Times are from sending a request to the last byte of its answer. Waited: how many answers"
        );
        println!("were not there when their requests came, where that is the question.");
    }

    pub(crate) fn print(self, outcome: &Outcome) -> Result<(), Failed> {
        match self {
            Self::Json => println!("{}", serde_json::to_string(outcome)?),
            Self::Table => {
                println!("\n{}: {}\n{}", outcome.case, outcome.story, table(outcome));
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
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

impl Figures {
    fn row(&self, layer: &str) -> [String; 10] {
        let answers = self
            .status
            .iter()
            .map(|(code, count)| format!("{count} x {code}"));
        [
            layer.to_owned(),
            self.builds.to_string(),
            self.peak_builds.to_string(),
            format!("{:.1}", self.p50_ms),
            format!("{:.1}", self.p99_ms),
            format!("{:.1}", self.max_ms),
            answers.collect::<Vec<_>>().join(", "),
            self.errors.to_string(),
            self.redis_commands.to_string(),
            self.waited
                .map_or_else(String::new, |waited| waited.to_string()),
        ]
    }
}
