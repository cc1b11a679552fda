//! What the subscription says, in the words of a watch.

use std::fmt;

use crate::{
    link::{Listener, Signal},
    lock::{
        backend::{BoxFuture, Change, Watch},
        error::Error,
    },
};

pub(super) struct RedisWatch(Listener);

impl RedisWatch {
    pub(super) fn new(listener: Listener) -> Self {
        Self(listener)
    }
}

impl Watch for RedisWatch {
    fn changed(&mut self) -> BoxFuture<'_, Change> {
        Box::pin(async {
            loop {
                return match self.0.next().await {
                    Signal::Subscribed => Change::Listening,
                    Signal::Message(_) => Change::Released,
                    // Nothing can be heard until the channel is confirmed again; the polls go on.
                    Signal::Lost => continue,
                    Signal::Refused(error) => Change::Refused(Error::from((*error).clone())),
                };
            }
        })
    }
}

impl fmt::Debug for RedisWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisWatch")
    }
}
