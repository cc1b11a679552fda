//! Purges: another generation for what is purged, whatever carries the old one.

use tokio::time::Instant;

use super::{
    OFF_PATH, PairedTier,
    generations::{Ledger, Mark, Record, State},
};
use crate::{
    purges::{Force, Purge},
    shared::{Outage, tier::Told},
    store::{Condition, Written},
};

/// So often a soft purge is tried again that met a renewal of the record.
const ATTEMPTS: usize = 5;

impl PairedTier {
    pub(super) async fn purge_once(&self, purge: Purge) -> Result<Told, Outage> {
        let deadline = Instant::now() + OFF_PATH;
        // First: a build that has not seen the one nor the other does not store what it should not.
        let any = self
            .stock
            .generation(Mark::Any, &Record::new(), Condition::Always);
        self.stock.put(&any, deadline).await?;
        match purge.force {
            Force::Hard => {
                let mark = Mark::from(purge.reach);
                let write = self
                    .stock
                    .generation(mark, &Record::new(), Condition::Always);
                self.stock.put(&write, deadline).await?;
            }
            Force::Soft => self.soften(purge, deadline).await?,
        }
        Ok(Told {
            processes: None,
            heeded: None,
        })
    }

    /// What is read is written back changed in one half. If another purge has come between, that one has
    /// done it: it began after this one.
    async fn soften(&self, purge: Purge, deadline: Instant) -> Result<(), Outage> {
        let mark = Mark::from(purge.reach);
        let mut first = None;
        for _ in 0..ATTEMPTS {
            let mut ledger = Ledger::default();
            self.stock.read(&[mark], &mut ledger, deadline).await?;
            let (record, condition) = match ledger.state(mark) {
                Some(State::Known(record, version)) => {
                    if first.is_some_and(|first| first != record.generation) {
                        return Ok(());
                    }
                    first = Some(record.generation);
                    (record.purged(purge), Condition::Unchanged(version))
                }
                Some(State::Missing(condition)) => (Record::new(), condition),
                None => (Record::new(), Condition::Always),
            };
            let write = self.stock.generation(mark, &record, condition);
            if let Written::Stored(_) = self.stock.put(&write, deadline).await? {
                return Ok(());
            }
        }
        // It cannot be done gently.
        let write = self
            .stock
            .generation(mark, &Record::new(), Condition::Always);
        self.stock.put(&write, deadline).await.map(drop)
    }
}
