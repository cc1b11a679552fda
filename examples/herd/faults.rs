//! What is done to Redis while the herd is there.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    Failed,
    parts::redis_server::{Order, RedisServer},
    redis_commands::Commands,
};

/// Orders to the server's keeper, and for how long each leaves things as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault(&'static [(Order, Duration)]);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Fault {
    pub(crate) const FROZEN: Self = Self(&[(Order::Freeze, ms(2000)), (Order::Thaw, ms(0))]);

    pub(crate) const KILLED: Self = Self(&[(Order::Kill, ms(2000)), (Order::Restart, ms(0))]);

    pub(crate) const FLAPPING: Self = Self(&[
        (Order::Kill, ms(300)),
        (Order::Restart, ms(300)),
        (Order::Freeze, ms(400)),
        (Order::Thaw, ms(200)),
        (Order::Kill, ms(200)),
        (Order::Restart, ms(100)),
        (Order::Freeze, ms(500)),
        (Order::Thaw, ms(0)),
    ]);

    /// How long it lasts, but for the time that a server takes to start.
    pub(crate) fn length(self) -> Duration {
        self.0.iter().map(|(_, pause)| *pause).sum()
    }

    /// Returns when the server is back for good. Its own count ends when it is killed.
    pub(crate) async fn strike(
        self,
        server: &mut RedisServer,
        commands: &mut Commands,
    ) -> Result<(), Failed> {
        for &(order, pause) in self.0 {
            if order == Order::Kill {
                commands.end().await?;
            }
            server.order(order).await?;
            sleep(pause).await;
        }
        Ok(())
    }
}
