//! What the subscription says, in the words of a watch.

use std::fmt;

use tokio::task::yield_now;

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
                    // Nothing can be heard until the channel is confirmed again; the polls go on. On a runtime
                    // that is ending this is heard again at once, and for ever.
                    Signal::Lost => {
                        yield_now().await;
                        continue;
                    }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::Runtime;
    use tokio_test::{assert_pending, task};

    use super::*;
    use crate::link::{Settings, Subscription};

    #[test]
    fn a_watch_that_is_polled_on_a_runtime_that_has_ended_lets_it_end() {
        let runtime = Runtime::new().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let _entered = handle.enter();
        let timeout = Duration::from_secs(1);
        let settings = Settings {
            connect_timeout: timeout,
            command_timeout: timeout,
            name: "test",
        };
        let nowhere = redis::Client::open("redis://127.0.0.1:1/").unwrap();
        let subscription = Subscription::new(&nowhere, settings);

        let mut watch = RedisWatch::new(subscription.listen("channel"));
        let mut changed = task::spawn(watch.changed());

        assert_pending!(changed.poll());
    }
}
