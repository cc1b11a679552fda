//! [`Roster`]: at which masters to listen to what, and when to try again. No I/O.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::session::End;
use crate::{
    link::{backoff, cluster::address::Address},
    slot::slot,
};

/// What a master refuses it is asked for again after so long, and then after twice as long.
const REFUSED: Duration = Duration::from_secs(1);
const LONGEST_REFUSED: Duration = Duration::from_secs(30);
/// A session that lasted so long was none that failed.
const STEADY: Duration = Duration::from_secs(1);

pub(super) type Channels = Vec<Arc<str>>;
pub(super) type Groups = HashMap<Address, Channels>;

/// What tells one session from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Term(u64);

/// The channels by the master that holds their slot; those whose slot nobody holds are left out.
pub(super) fn by_master(channels: &[Arc<str>], owner: impl Fn(u16) -> Option<Address>) -> Groups {
    let mut groups = Groups::new();
    for channel in channels {
        if let Some(master) = owner(slot(channel.as_bytes())) {
            groups.entry(master).or_default().push(Arc::clone(channel));
        }
    }
    groups
}

#[derive(Debug, Default)]
pub(super) struct Roster {
    posts: HashMap<Address, Post>,
    latest: Term,
}

/// What is done about one master.
#[derive(Debug)]
struct Post {
    channels: Channels,
    state: State,
    /// Sessions in a row that were lost, and that were refused.
    losses: u32,
    refusals: u32,
}

#[derive(Debug)]
enum State {
    Listening { term: Term, since: Instant },
    Resting { until: Instant },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stop(Term),
    Start(Term, Address, Channels),
}

impl Roster {
    /// What is to be done for `groups` to be listened to.
    pub(super) fn follow(&mut self, groups: Groups, now: Instant) -> Vec<Step> {
        let mut steps = self.leave(&groups);
        for (master, channels) in groups {
            let post = self.posts.entry(master.clone());
            let post = post.or_insert_with(|| Post::new(now));
            match post.state {
                State::Listening { .. } if post.channels == channels => continue,
                State::Listening { term, .. } => steps.push(Step::Stop(term)),
                State::Resting { until } if now < until => continue,
                State::Resting { .. } => {}
            }
            self.latest.0 += 1;
            post.channels.clone_from(&channels);
            post.state = State::Listening {
                term: self.latest,
                since: now,
            };
            steps.push(Step::Start(self.latest, master, channels));
        }
        steps
    }

    /// Forgets the masters that have nothing to listen to.
    fn leave(&mut self, groups: &Groups) -> Vec<Step> {
        let left = self
            .posts
            .extract_if(|master, _| !groups.contains_key(master));
        left.filter_map(|(_, post)| post.term().map(Step::Stop))
            .collect()
    }

    /// When the first of those that rest has done so.
    pub(super) fn rested(&self) -> Option<Instant> {
        let rests = self.posts.values().filter_map(|post| match post.state {
            State::Resting { until } => Some(until),
            State::Listening { .. } => None,
        });
        rests.min()
    }

    /// A session has ended by itself. Names the master if that is news: it refuses what it
    /// did not refuse before.
    ///
    /// `unit`: a random number from 0 to 1, so that the workers of a fleet do not come back in step.
    pub(super) fn ended(
        &mut self,
        term: Term,
        end: &End,
        now: Instant,
        unit: f64,
    ) -> Option<&Address> {
        let mut posts = self.posts.iter_mut();
        let (master, post) = posts.find(|(_, post)| post.term() == Some(term))?;
        if post.lasted(now) >= STEADY {
            (post.losses, post.refusals) = (0, 0);
        }
        let until = now + post.fail(end, unit);
        post.state = State::Resting { until };
        (matches!(end, End::Refused(_)) && post.refusals == 1).then_some(master)
    }
}

impl Post {
    fn new(now: Instant) -> Self {
        Self {
            channels: Channels::new(),
            state: State::Resting { until: now },
            losses: 0,
            refusals: 0,
        }
    }

    /// Counts one more; says for how long it rests.
    fn fail(&mut self, end: &End, unit: f64) -> Duration {
        let (pause, count) = match end {
            End::Left | End::Lost => (backoff::pause(self.losses, unit), &mut self.losses),
            End::Refused(_) => (refused(self.refusals, unit), &mut self.refusals),
        };
        *count = count.saturating_add(1);
        pause
    }

    fn term(&self) -> Option<Term> {
        match self.state {
            State::Listening { term, .. } => Some(term),
            State::Resting { .. } => None,
        }
    }

    fn lasted(&self, now: Instant) -> Duration {
        match self.state {
            State::Listening { since, .. } => now.saturating_duration_since(since),
            State::Resting { .. } => Duration::ZERO,
        }
    }
}

fn refused(refusals: u32, unit: f64) -> Duration {
    let ceiling = REFUSED
        .saturating_mul(2_u32.saturating_pow(refusals))
        .min(LONGEST_REFUSED);
    ceiling.mul_f64(0.5 + 0.5 * unit.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::error::Error;

    fn node(port: u16) -> Address {
        Address::new("10.0.0.1", port)
    }

    fn channels(names: &[&str]) -> Channels {
        names.iter().map(|&name| Arc::from(name)).collect()
    }

    fn groups(groups: &[(u16, &[&str])]) -> Groups {
        let groups = groups.iter();
        groups
            .map(|(port, names)| (node(*port), channels(names)))
            .collect()
    }

    fn refusal() -> End {
        End::Refused(Error::refused("NOPERM"))
    }

    /// Listens to one channel at one master; the first session has the term 1.
    fn listening(now: Instant) -> Roster {
        let mut roster = Roster::default();
        roster.follow(groups(&[(1, &["a"])]), now);
        roster
    }

    #[test]
    fn channels_go_to_the_masters_of_their_slots_and_those_of_nobody_nowhere() {
        let all = channels(&["s:{10}:w", "s:{18}:w", "s:{113}:w", "s:{342}:w"]);
        let of = |tag: &str| slot(tag.as_bytes());
        let owner = |asked| match asked {
            asked if asked == of("10") || asked == of("113") => Some(node(1)),
            asked if asked == of("18") => Some(node(2)),
            _ => None,
        };

        assert_eq!(
            by_master(&all, owner),
            groups(&[(1, &["s:{10}:w", "s:{113}:w"]), (2, &["s:{18}:w"])])
        );
        assert!(by_master(&all, |_| None).is_empty());
    }

    #[test]
    fn each_master_is_listened_to_once() {
        let now = Instant::now();
        let mut roster = Roster::default();
        let wanted = || groups(&[(1, &["a"]), (2, &["b"])]);

        assert_eq!(roster.follow(wanted(), now).len(), 2);
        assert_eq!(roster.follow(wanted(), now), []);
        assert_eq!(roster.rested(), None);
    }

    #[test]
    fn a_master_whose_channels_are_others_now_is_listened_to_anew_at_once() {
        let now = Instant::now();
        let mut roster = listening(now);

        assert_eq!(
            roster.follow(groups(&[(1, &["a", "b"])]), now),
            [
                Step::Stop(Term(1)),
                Step::Start(Term(2), node(1), channels(&["a", "b"]))
            ]
        );
    }

    #[test]
    fn a_master_without_channels_is_left() {
        let now = Instant::now();
        let mut roster = listening(now);

        let steps = roster.follow(groups(&[(2, &["a"])]), now);

        assert_eq!(
            steps,
            [
                Step::Stop(Term(1)),
                Step::Start(Term(2), node(2), channels(&["a"]))
            ]
        );
        assert_eq!(roster.ended(Term(1), &End::Lost, now, 1.0), None);
    }

    #[test]
    fn after_a_loss_it_is_tried_again_after_a_pause() {
        let now = Instant::now();
        let mut roster = listening(now);
        let wanted = || groups(&[(1, &["a"])]);

        roster.ended(Term(1), &End::Left, now, 1.0);
        let rested = roster.rested().unwrap();
        assert!(rested > now);
        assert_eq!(roster.follow(wanted(), now), []);
        assert_eq!(
            roster.follow(wanted(), rested),
            [Step::Start(Term(2), node(1), channels(&["a"]))]
        );
    }

    #[test]
    fn a_refusal_is_news_once_whatever_came_before() {
        let now = Instant::now();
        let mut roster = listening(now);
        let mut told = Vec::new();
        for (term, end) in (1..).zip([End::Lost, refusal(), refusal(), End::Lost, refusal()]) {
            told.push(roster.ended(Term(term), &end, now, 1.0).is_some());
            let rested = roster.rested().unwrap();
            roster.follow(groups(&[(1, &["a"])]), rested);
        }

        assert_eq!(told, [false, true, false, false, false]);
    }

    #[test]
    fn what_is_refused_is_asked_for_ever_more_rarely() {
        let mut now = Instant::now();
        let mut roster = listening(now);
        let mut pauses = Vec::new();
        for term in 1..=7 {
            roster.ended(Term(term), &refusal(), now, 1.0);
            let rested = roster.rested().unwrap();
            pauses.push((rested - now).as_secs());
            now = rested;
            roster.follow(groups(&[(1, &["a"])]), now);
        }

        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn a_session_that_lasted_makes_the_next_pause_short() {
        let mut now = Instant::now();
        let mut roster = listening(now);
        for term in 1..=8 {
            roster.ended(Term(term), &End::Lost, now, 1.0);
            now = roster.rested().unwrap();
            roster.follow(groups(&[(1, &["a"])]), now);
        }

        now += STEADY;
        roster.ended(Term(9), &End::Lost, now, 1.0);

        assert_eq!(roster.rested().unwrap() - now, backoff::pause(0, 1.0));
    }
}
