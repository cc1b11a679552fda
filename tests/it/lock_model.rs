//! Reference models, written from the rules alone, against both backends: random commands, faults
//! and jumps of the clock, and every answer is compared.

mod exclusive;
mod multi;
mod shared;

use std::time::Duration;

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use crate::lock_ground::Ground;

/// Lives so long, or is over after a jump of the clock.
const LONG: Duration = Duration::from_secs(1000);
const BRIEF: Duration = Duration::from_secs(10);
const JUMP: Duration = Duration::from_secs(11);

/// When something ends, on the clock of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    At(Duration),
    Never,
}

#[derive(Clone, Copy, Debug)]
enum Life {
    Brief,
    Long,
    Persistent,
}

impl Life {
    fn end(self, now: Duration) -> End {
        match self {
            Self::Brief => End::At(now + BRIEF),
            Self::Long => End::At(now + LONG),
            Self::Persistent => End::Never,
        }
    }

    fn ttl(self) -> Option<Duration> {
        match self {
            Self::Brief => Some(BRIEF),
            Self::Long => Some(LONG),
            Self::Persistent => None,
        }
    }
}

impl End {
    fn is_over(self, now: Duration) -> bool {
        self <= Self::At(now)
    }

    /// Whether the backend tells about the same; commands take a little time.
    fn is_about(self, told: tower_stampede::lock::Remaining, now: Duration) -> bool {
        match (self, told.duration()) {
            (Self::Never, None) => true,
            (Self::At(end), Some(left)) => {
                left <= end.saturating_sub(now)
                    && left + Duration::from_secs(5) > end.saturating_sub(now)
            }
            _ => false,
        }
    }
}

fn life() -> impl Strategy<Value = Life> {
    prop::sample::select(vec![Life::Brief, Life::Long, Life::Persistent])
}

/// Drives `commands` of every case against a backend.
fn check<C: std::fmt::Debug + Clone>(
    cases: u32,
    command: &impl Strategy<Value = C>,
    ground: fn() -> Ground,
    runtime: &tokio::runtime::Runtime,
    drive: &impl AsyncFn(&Ground, &[C]) -> Result<(), TestCaseError>,
) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let stage = runtime.block_on(async { ground() });
    let outcome = TestRunner::new(config).run(&prop::collection::vec(command, 1..40), |commands| {
        runtime.block_on(async {
            // Memory forgets when it is made anew, a server when it is told so.
            let fresh = (!stage.locks.is_shared()).then(ground);
            let stage = fresh.as_ref().unwrap_or(&stage);
            stage.clear();
            drive(stage, &commands).await
        })
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

#[cfg(feature = "redis")]
fn running() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

macro_rules! both_backends {
    () => {
        #[test]
        fn memory_answers_as_the_model() {
            super::check(
                300,
                &command(),
                crate::lock_ground::Ground::in_memory,
                &super::paused(),
                &drive,
            );
        }

        #[cfg(feature = "redis")]
        #[test]
        fn redis_answers_as_the_model() {
            super::check(
                60,
                &command(),
                crate::lock_ground::Ground::on_redis,
                &super::running(),
                &drive,
            );
        }
    };
}
use both_backends;
