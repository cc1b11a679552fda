//! How a connection comes about.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo,
    aio::{MultiplexedConnection, PubSub},
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::time::timeout;

use super::{QUEUE, Settings, error::Error};

const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes connections to one server, each through a client of its own, so that names are resolved and files
/// are read anew.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    server: ConnectionInfo,
    settings: Settings,
}

impl Connector {
    pub(super) fn new(client: &Client, settings: Settings) -> Self {
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(USER_TIMEOUT);
        Self {
            server: client.get_connection_info().clone().set_tcp_settings(tcp),
            settings,
        }
    }

    /// How long [`commands`](Self::commands) may take at most.
    pub(super) fn longest(settings: &Settings) -> Duration {
        settings.connect_timeout + settings.command_timeout
    }

    /// A connection for commands that has answered a PING.
    pub(super) async fn commands(&self) -> Result<MultiplexedConnection, Error> {
        let client = self.client()?;
        // The link has its own clock for both, which also runs while a command waits in the queue.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        let connecting = Box::pin(client.get_multiplexed_async_connection_with_config(&config));
        let mut connection = self.in_time(connecting).await?;
        let ping = redis::cmd("PING");
        timeout(
            self.settings.command_timeout,
            ping.query_async::<()>(&mut connection),
        )
        .await
        .map_err(|_| Error::connect_timed_out())?
        .map_err(Error::connect_failed)?;
        Ok(connection)
    }

    /// A connection for subscriptions.
    pub(super) async fn subscription(&self) -> Result<PubSub, Error> {
        let client = self.client()?;
        self.in_time(Box::pin(client.get_async_pubsub())).await
    }

    fn client(&self) -> Result<Client, Error> {
        Client::open(self.server.clone()).map_err(Error::connect_failed)
    }

    async fn in_time<T>(
        &self,
        connecting: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, Error> {
        timeout(self.settings.connect_timeout, connecting)
            .await
            .map_err(|_| Error::connect_timed_out())?
            .map_err(Error::connect_failed)
    }
}
