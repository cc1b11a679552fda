//! Purges: one script on one server, and one for each shard in a Cluster.

use std::sync::Arc;

use tokio::{sync::watch, task::JoinSet};

use super::{PURGE, RedisTier, names};
use crate::{
    link::{Call, Error, Kind, Route, Router},
    purges::Purge,
    shared::{Answers, tier::Told},
};

/// So many purged tags are remembered; in a Cluster, in each shard.
const REMEMBERED_TAGS: usize = 100_000;
const REMEMBERED_TAGS_OF_SHARD: usize = 10_000;

/// The shards of so many purges are under way at once, since a link turns away what it has no room for.
pub(super) const AT_ONCE: usize = 8;

/// What is told of a purge, and the count of those who have heeded it.
struct News {
    message: String,
    heeded: Option<Arc<watch::Sender<usize>>>,
}

impl RedisTier {
    pub(super) async fn purge_once(&self, purge: Purge, answers: Answers) -> Result<Told, Error> {
        let news = self.news(purge, answers);
        match &self.leases {
            Route::One(_) => self.purge_whole(purge, news).await,
            Route::Many(router) => self.purge_shards(router, purge, news).await,
        }
    }

    fn news(&self, purge: Purge, answers: Answers) -> News {
        let expected = match answers {
            Answers::Wanted => Some(self.follow.heeded().expect()),
            Answers::Unwanted => None,
        };
        let (name, heeded) = expected.unzip();
        News {
            message: self.events.purged(purge, name.as_ref()),
            heeded,
        }
    }

    async fn purge_whole(&self, purge: Purge, news: News) -> Result<Told, Error> {
        let call = Call::new()
            .key(self.names.all_tags())
            .arg(names::member(purge))
            .arg(REMEMBERED_TAGS)
            .arg(self.names.channel())
            .arg(news.message);
        let told: i64 = self.leases.invoke(&PURGE, call).await?;
        Ok(Told {
            processes: usize::try_from(told).ok(),
            // Where nobody could be told, nobody answers.
            heeded: news.heeded.filter(|_| told >= 0),
        })
    }

    /// Nobody is told before every shard knows: whoever drops what it has would read it again.
    async fn purge_shards(&self, router: &Router, purge: Purge, news: News) -> Result<Told, Error> {
        let _turn = self.purges.acquire().await;
        let count = async {
            match news.heeded {
                Some(_) => self.listeners(router).await,
                None => None,
            }
        };
        let (purged, processes) = tokio::join!(self.purge_each_shard(purge), count);
        let channel = self.names.channel();
        // What has been purged is told although something has not.
        let told = self.leases.publish(&channel, &news.message).await;
        purged?;
        match told {
            Ok(_) => Ok(Told {
                processes,
                heeded: news.heeded,
            }),
            Err(error) if error.kind() == Kind::Refused => Ok(Told {
                processes: None,
                heeded: None,
            }),
            Err(error) => Err(error),
        }
    }

    async fn purge_each_shard(&self, purge: Purge) -> Result<(), Error> {
        let mut shards = JoinSet::new();
        for tags in self.names.tags_of_shards() {
            let call = Call::new()
                .key(tags)
                .arg(names::member(purge))
                .arg(REMEMBERED_TAGS_OF_SHARD)
                .arg("")
                .arg("");
            let link = self.leases.clone();
            shards.spawn(async move { link.invoke::<i64>(&PURGE, call).await });
        }
        let mut outcome = Ok(());
        while let Some(purged) = shards.join_next().await {
            // A task that ended early has left its shard in the unknown.
            if let Err(error) = purged.unwrap_or_else(|_| Err(Error::interrupted())) {
                outcome = Err(error);
            }
        }
        outcome
    }

    /// How many processes listen, each on a node of its choice; a message reaches all nodes, and is counted
    /// on one.
    async fn listeners(&self, router: &Router) -> Option<usize> {
        let mut count = redis::cmd("PUBSUB");
        count.arg("NUMSUB").arg(self.names.channel());
        let deadline = router.usual_deadline();
        let counts = router.query_all::<(String, usize)>(&count, deadline).await;
        Some(counts.ok()?.into_iter().map(|(_, count)| count).sum())
    }
}
