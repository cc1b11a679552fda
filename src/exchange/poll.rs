//! How often a waiting flight asks again, beneath the events that wake it.

use std::time::Duration;

use crate::shared::TOLD;

/// From 50 ms, doubling to just below a second, jittered by a fifth.
#[derive(Debug)]
pub(super) struct Poll {
    pause: Duration,
}

impl Default for Poll {
    fn default() -> Self {
        let pause = Duration::from_millis(50);
        Self { pause }
    }
}

impl Poll {
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.pause.mul_f64(0.8 + 0.4 * fastrand::f64());
        // However its build ended is told for no longer: a pause that is longer could miss it.
        self.pause = (self.pause * 2).min(TOLD.mul_f64(0.8));
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_become_slower_and_stay_below_the_life_of_what_they_look_for() {
        let mut poll = Poll::default();

        let pauses: Vec<_> = (0..100).map(|_| poll.next()).collect();

        let ms = Duration::from_millis;
        assert!((ms(40)..=ms(60)).contains(&pauses[0]), "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause < TOLD), "{pauses:?}");
        assert!(
            pauses[10..].iter().all(|pause| *pause > TOLD / 2),
            "{pauses:?}"
        );
    }
}
