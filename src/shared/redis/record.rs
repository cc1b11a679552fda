//! What the server itself remembers of purges: asked where a message cannot be believed.
//!
//! Each purge raises its member of the set of tags to its own time, which only ever grows. So whoever
//! knows until when it has read the set learns by one command what has been purged since, whoever said
//! so or did not. Where that cannot be known, all may have been purged.

use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue};

use super::names::parse_member;
use crate::{link::Route, purges::Purge};

/// So many purges are worth being told one by one.
const MOST: usize = 1000;

/// The member whose score is the latest of all times.
const LATEST: &[u8] = b"#";

/// One reader of the sets of tags: one on one server, one for each shard in a Cluster.
#[derive(Debug)]
pub(super) struct Record(Vec<Set>);

#[derive(Debug)]
struct Set {
    link: Route,
    tags: String,
    /// Until when it has been read (us of the server's time).
    until: Option<f64>,
}

/// A member of a set, and its score.
type Scored = (Vec<u8>, f64);

/// What has been purged since the last time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    Purged(Vec<Purge>),
    /// Anything.
    Unknown,
}

impl Record {
    pub(super) fn new(link: &Route, sets: Vec<String>) -> Self {
        let set = |tags| Set {
            link: link.clone(),
            tags,
            until: None,
        };
        Self(sets.into_iter().map(set).collect())
    }

    /// From now on.
    pub(super) async fn start(&mut self) {
        join_all(self.0.iter_mut().map(Set::start)).await;
    }

    /// What has been purged since it was read last; with what is told now, that counts as read.
    pub(super) async fn read(&mut self) -> News {
        let sets = join_all(self.0.iter_mut().map(Set::read)).await;
        let purges: Option<Vec<_>> = sets.into_iter().collect();
        purges.map_or(News::Unknown, |purges| News::Purged(purges.concat()))
    }
}

impl Set {
    async fn start(&mut self) {
        let mut latest = redis::cmd("ZSCORE");
        latest.arg(&self.tags).arg(LATEST);
        // What failed leaves nothing known of the past.
        self.until = self.query(&latest).await.flatten();
    }

    /// `None`: anything may have been purged.
    async fn read(&mut self) -> Option<Vec<Purge>> {
        if let Some((purges, latest)) = self.purged_since().await {
            self.until = Some(latest);
            return Some(purges);
        }
        self.start().await;
        None
    }

    async fn purged_since(&self) -> Option<(Vec<Purge>, f64)> {
        let until = self.until?;
        let members: Vec<Scored> = self.query(&self.since(until)).await?;
        news(&members, until)
    }

    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Option<T> {
        self.link.query(command, &self.tags).await.ok()
    }

    fn since(&self, until: f64) -> Cmd {
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command
            .arg(&self.tags)
            .arg(until.to_string())
            .arg("+inf")
            .arg("WITHSCORES")
            .arg("LIMIT")
            .arg(0)
            .arg(MOST);
        command
    }
}

/// What was purged after `until`, and until when that is known; `None` if it is not.
fn news(members: &[Scored], until: f64) -> Option<(Vec<Purge>, f64)> {
    // Without the latest time the set is not the one that was read, or not all of it has come.
    let (_, latest) = members.iter().find(|(name, _)| name == LATEST)?;
    let purges = members
        .iter()
        .filter(|(name, at)| *at > until && name != LATEST)
        .map(|(name, _)| parse_member(std::str::from_utf8(name).ok()?))
        .collect::<Option<_>>()?;
    Some((purges, *latest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{key::Digest, purges::Reach};

    fn named(name: &str, at: f64) -> Scored {
        (name.as_bytes().to_vec(), at)
    }

    #[test]
    fn what_was_purged_after_the_last_time_is_news_and_the_rest_is_not() {
        let tag = Digest::of(b"tag");
        let members = [
            named(&Digest::of(b"known").to_string(), 5.0),
            named(&tag.to_string(), 6.0),
            named("~!", 7.0),
            named("#", 9.0),
        ];

        let purges = vec![Purge::hard(Reach::Tag(tag)), Purge::soft(Reach::All)];
        assert_eq!(news(&members, 5.0), Some((purges, 9.0)));
        assert_eq!(news(&[named("#", 9.0)], 9.0), Some((Vec::new(), 9.0)));
    }

    #[test]
    fn nothing_is_known_where_the_set_is_another_one_or_does_not_end_or_makes_no_sense() {
        assert_eq!(news(&[], 5.0), None, "gone, or its clock went back");
        assert_eq!(news(&[named("!", 6.0)], 5.0), None, "cut short");
        let garbage = [named("garbage", 6.0), named("#", 9.0)];
        assert_eq!(news(&garbage, 5.0), None);
    }
}
