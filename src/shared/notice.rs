//! One line when the tier begins to refuse something, and one when it takes it again.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether the tier takes what it is given, as far as people have been told.
#[derive(Debug)]
pub(super) struct Notice {
    what: &'static str,
    told: AtomicU8,
}

const TAKEN: u8 = 0;
const REFUSED: u8 = 1;

impl Notice {
    pub(super) fn new(what: &'static str) -> Self {
        let told = AtomicU8::new(TAKEN);
        Self { what, told }
    }

    pub(super) fn refused(&self) {
        if self.tell(REFUSED) {
            tracing::warn!(
                what = self.what,
                "the shared tier takes none: going on without it"
            );
        }
    }

    pub(super) fn works(&self) {
        if self.tell(TAKEN) {
            tracing::info!(what = self.what, "the shared tier takes them again");
        }
    }

    fn tell(&self, news: u8) -> bool {
        // Read first: nothing is written as long as there is no news.
        self.told.load(Ordering::Relaxed) != news && self.told.swap(news, Ordering::Relaxed) != news
    }
}
