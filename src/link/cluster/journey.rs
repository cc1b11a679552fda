//! [`Journey`]: what one command does after a refusal. No I/O.
//!
//! Only a command that certainly did not run is sent again: the server refused it, or it never left.

use std::time::Duration;

use super::redirection::{Kind, Redirection};
use crate::link::error::Error;

/// A Cluster that sends a command round and round is not asked any further.
const REDIRECTIONS: u32 = 5;
/// Two nodes that both name the other one have not heard of it yet; so many redirections are followed at once.
const AT_ONCE: u32 = 2;

const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// The way of one command through the Cluster.
#[derive(Debug, Default)]
pub(super) struct Journey {
    redirections: u32,
    pauses: u32,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The node that the map names, now or after a pause.
    Again { after: Duration },
    /// The node that is named there, this once.
    Ask(Redirection),
    /// The node that the map names once it is learnt anew, if that is another one.
    Learn,
    /// No node.
    End,
}

impl Journey {
    /// `unit`: a random number from 0 to 1.
    pub(super) fn turn(&mut self, error: &Error, unit: f64) -> Turn {
        if let Some(redirection) = error.redirection() {
            return self.redirected(redirection, unit);
        }
        match error.code() {
            Some("TRYAGAIN" | "CLUSTERDOWN") => Turn::Again {
                after: self.pause(unit),
            },
            None if error.is_down() => {
                self.redirections += 1;
                self.within_bounds(Turn::Learn)
            }
            _ => Turn::End,
        }
    }

    fn redirected(&mut self, redirection: &Redirection, unit: f64) -> Turn {
        self.redirections += 1;
        let turn = match redirection.kind {
            Kind::Ask => Turn::Ask(redirection.clone()),
            Kind::Moved if self.redirections <= AT_ONCE => Turn::Again {
                after: Duration::ZERO,
            },
            Kind::Moved => Turn::Again {
                after: self.pause(unit),
            },
        };
        self.within_bounds(turn)
    }

    fn within_bounds(&self, turn: Turn) -> Turn {
        if self.redirections > REDIRECTIONS {
            Turn::End
        } else {
            turn
        }
    }

    fn pause(&mut self, unit: f64) -> Duration {
        let pause = FIRST_PAUSE
            .saturating_mul(2_u32.saturating_pow(self.pauses))
            .min(LONGEST_PAUSE);
        self.pauses += 1;
        pause.mul_f64(0.5 + 0.5 * unit.clamp(0.0, 1.0))
    }
}

/// Whether what is known of the Cluster may not hold any more.
pub(super) fn casts_doubt(error: &Error) -> bool {
    match error.code() {
        Some(code) => matches!(
            code,
            "MOVED" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY"
        ),
        None => error.is_down() || error.outcome_unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str) -> Error {
        Error::refused(code)
    }

    fn redirected(code: &str) -> Error {
        Error::redirected(Redirection::read(code, 5, "a:1").unwrap())
    }

    fn turns(error: &Error, unit: f64) -> Vec<Turn> {
        let mut journey = Journey::default();
        (0..8).map(|_| journey.turn(error, unit)).collect()
    }

    #[test]
    fn a_moved_slot_is_followed_at_once_and_no_further_than_five_times() {
        let turns = turns(&redirected("MOVED"), 1.0);

        let after = |millis| Turn::Again {
            after: Duration::from_millis(millis),
        };
        assert_eq!(
            turns[..5],
            [after(0), after(0), after(4), after(8), after(16)]
        );
        assert_eq!(turns[5..], [Turn::End, Turn::End, Turn::End]);
    }

    #[test]
    fn a_slot_on_its_way_is_asked_for_there_no_more_than_five_times() {
        let turns = turns(&redirected("ASK"), 1.0);

        assert!(turns[..5].iter().all(|turn| matches!(turn, Turn::Ask(_))));
        assert_eq!(turns[5..], [Turn::End, Turn::End, Turn::End]);
    }

    #[test]
    fn what_passes_by_itself_is_waited_for_ever_longer() {
        for code in ["TRYAGAIN", "CLUSTERDOWN"] {
            let pauses: Vec<_> = turns(&refused(code), 0.0)
                .into_iter()
                .map(|turn| match turn {
                    Turn::Again { after } => after.as_millis(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(pauses, [2, 4, 8, 16, 32, 32, 32, 32]);
        }
    }

    #[test]
    fn a_node_that_is_down_has_the_map_learnt_anew() {
        let turns = turns(&Error::broken(None), 1.0);

        assert!(turns[..5].iter().all(|turn| *turn == Turn::Learn));
        assert_eq!(turns[5], Turn::End);
    }

    #[test]
    fn what_may_have_run_is_not_sent_again_and_neither_is_what_would_fail_again() {
        for error in [
            Error::timed_out(),
            Error::lost(),
            Error::garbled(),
            Error::overloaded(),
            refused("OOM"),
            refused("NOPERM"),
            refused("LOADING"),
        ] {
            assert_eq!(Journey::default().turn(&error, 1.0), Turn::End, "{error}");
        }
    }

    #[test]
    fn the_map_is_in_doubt_after_what_a_failover_may_cause() {
        for error in [
            Error::timed_out(),
            Error::lost(),
            Error::broken(None),
            redirected("MOVED"),
            refused("CLUSTERDOWN"),
            refused("LOADING"),
        ] {
            assert!(casts_doubt(&error), "{error}");
        }
        for error in [
            Error::overloaded(),
            redirected("ASK"),
            refused("TRYAGAIN"),
            refused("OOM"),
        ] {
            assert!(!casts_doubt(&error), "{error}");
        }
    }
}
