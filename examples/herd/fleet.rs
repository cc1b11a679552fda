//! The workers of one run, and what can be asked of them.

use std::{ffi::OsString, net::SocketAddr};

use crate::{
    Failed, Options,
    cases::Case,
    client,
    parts::offspring::Offspring,
    worker::{BUILDS, Build},
};

/// Running workers. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    _workers: Vec<Offspring>,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Fleet {
    /// Starts new workers, which share nothing with those of other runs.
    pub(crate) async fn start(case: Case, options: &Options) -> Result<Self, Failed> {
        let namespace = format!("herd-{:016x}", fastrand::u64(..));
        let mut arguments = vec![
            "worker".to_owned(),
            format!("--case={}", case.name()),
            format!("--build-ms={}", options.build_ms),
            format!("--redis-budget-ms={}", options.redis_budget_ms),
            format!("--namespace={namespace}"),
        ];
        arguments.extend(options.redis.iter().map(|url| format!("--redis={url}")));
        let mut workers = Vec::new();
        for _ in 0..options.workers {
            let arguments = arguments.iter().map(OsString::from);
            workers.push(Offspring::start(arguments.collect::<Vec<_>>()).await?);
        }
        let addresses = workers
            .iter()
            .map(|worker| worker.announcement.parse())
            .collect::<Result<_, _>>()?;
        Ok(Self {
            _workers: workers,
            addresses,
        })
    }

    /// All builds since the last time this was asked.
    pub(crate) async fn take_builds(&self) -> Result<Builds, Failed> {
        let mut by_worker = Vec::new();
        for &address in &self.addresses {
            let answer = client::fetch(address, BUILDS).await?;
            by_worker.push(serde_json::from_slice(&answer)?);
        }
        Ok(Builds { by_worker })
    }
}

/// When the handler ran, in each worker.
#[derive(Debug)]
pub(crate) struct Builds {
    pub(crate) by_worker: Vec<Vec<Build>>,
}

impl Builds {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Build> {
        self.by_worker.iter().flatten()
    }

    /// The most at one time, in all workers together.
    pub(crate) fn peak(&self) -> usize {
        peak(&self.by_worker)
    }
}

fn peak(builds: &[Vec<Build>]) -> usize {
    let mut edges: Vec<(u64, i32)> = builds
        .iter()
        .flatten()
        .flat_map(|build| [(build.began, 1), (build.ended, -1)])
        .collect();
    edges.sort_unstable();
    let mut running = 0;
    let levels = edges.into_iter().map(|(_, step)| {
        running += step;
        running
    });
    levels
        .max()
        .and_then(|most| usize::try_from(most).ok())
        .unwrap_or_default()
}
