//! [`Pace`]: how often the Cluster is asked what it looks like. No I/O.

use std::time::Duration;

use tokio::time::Instant;

/// After news, the next look may follow so soon; without any, ever later.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pace {
    state: State,
    /// Looks in a row that brought nothing new.
    idle: u32,
}

#[derive(Debug)]
enum State {
    /// None before that.
    Resting(Instant),
    Looking,
}

/// What one who doubts finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// The look is theirs to take.
    Now,
    /// Somebody is looking.
    UnderWay,
    /// There was one a moment ago.
    TooSoon,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: State::Resting(now),
            idle: 0,
        }
    }

    pub(super) fn begin(&mut self, now: Instant) -> Begin {
        match self.state {
            State::Looking => Begin::UnderWay,
            State::Resting(until) if now < until => Begin::TooSoon,
            State::Resting(_) => {
                self.state = State::Looking;
                Begin::Now
            }
        }
    }

    /// `unit`: a random number from 0 to 1, so that the workers of a fleet do not look in step.
    pub(super) fn ended(&mut self, now: Instant, news: News, unit: f64) {
        self.idle = match news {
            News::Some => 0,
            News::None => self.idle.saturating_add(1),
        };
        let pause = SOONEST
            .saturating_mul(2_u32.saturating_pow(self.idle))
            .min(LATEST);
        let pause = pause.mul_f64(0.5 + 0.5 * unit.clamp(0.0, 1.0));
        self.state = State::Resting(now + pause);
    }
}

/// Whether a look showed anything new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Some,
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_looks_at_a_time() {
        let now = Instant::now();
        let mut pace = Pace::new(now);

        assert_eq!(pace.begin(now), Begin::Now);
        assert_eq!(pace.begin(now), Begin::UnderWay);
        pace.ended(now, News::Some, 1.0);

        assert_eq!(pace.begin(now), Begin::TooSoon);
        assert_eq!(pace.begin(now + SOONEST), Begin::Now);
    }

    #[tokio::test(start_paused = true)]
    async fn looks_that_show_nothing_new_become_rarer_and_news_makes_them_frequent() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..10 {
            assert_eq!(pace.begin(now), Begin::Now);
            pace.ended(now, News::None, 1.0);
            now += LATEST;
        }

        assert_eq!(pace.begin(now), Begin::Now);
        pace.ended(now, News::None, 1.0);
        assert_eq!(pace.begin(now + LATEST / 2), Begin::TooSoon);
        now += LATEST;
        assert_eq!(pace.begin(now), Begin::Now);
        pace.ended(now, News::Some, 0.0);
        assert_eq!(pace.begin(now + SOONEST / 2), Begin::Now);
    }
}
