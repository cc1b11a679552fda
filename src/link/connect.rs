//! How a connection comes about.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, Value,
    aio::{MultiplexedConnection, PubSub},
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::time::timeout;

use super::{QUEUE, Settings, error::Error, server::Server};

/// A look at the sentinels takes no longer.
const LOOK: Duration = Duration::from_millis(500);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes connections to one Redis, each through a client of its own, so that names are resolved, sentinels are
/// asked and files are read anew.
#[derive(Debug)]
pub(super) struct Connector {
    server: Server,
    settings: Settings,
    /// Where the last connection leads.
    address: Mutex<Option<ConnectionAddr>>,
}

impl Connector {
    pub(super) fn new(server: Server, settings: Settings) -> Self {
        Self {
            server,
            settings,
            address: Mutex::default(),
        }
    }

    /// How long [`commands`](Self::commands) may take at most.
    pub(super) fn longest(settings: &Settings) -> Duration {
        settings.connect_timeout + settings.command_timeout
    }

    /// A connection for commands that has answered.
    pub(super) async fn commands(&self) -> Result<MultiplexedConnection, Error> {
        let connection = self.in_time(async {
            let client = self.client().await?;
            connect(&client).await
        });
        let mut connection = Box::pin(connection).await?;
        self.ask(&mut connection).await?;
        Ok(connection)
    }

    /// A connection for subscriptions.
    pub(super) async fn subscription(&self) -> Result<PubSub, Error> {
        let connection = self.in_time(async {
            let client = self.client().await?;
            if self.server.is_uncertain() {
                self.ask(&mut connect(&client).await?).await?;
            }
            let connecting = client.get_async_pubsub().await;
            connecting.map_err(Error::connect_failed)
        });
        Box::pin(connection).await
    }

    /// Where the connection leads, if it is one of several servers.
    pub(super) fn node(&self) -> Option<String> {
        let address = self.address().clone();
        address
            .filter(|_| self.server.is_one_of_many())
            .map(|address| address.to_string())
    }

    /// Fails if the server that the last connection leads to is not the one to talk to any more.
    pub(super) async fn look_after(&self) -> Result<(), Error> {
        let Some(address) = self.address().clone() else {
            return Ok(());
        };
        let patience = self.settings.connect_timeout.min(LOOK);
        if self.server.has_left(&address, patience).await {
            return Err(Error::deposed());
        }
        Ok(())
    }

    async fn client(&self) -> Result<Client, Error> {
        let last = self.address().clone();
        let patience = self.settings.connect_timeout;
        let client = self.server.client(patience, last.as_ref()).await?;
        *self.address() = Some(client.get_connection_info().addr().clone());
        Ok(client)
    }

    fn address(&self) -> MutexGuard<'_, Option<ConnectionAddr>> {
        self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the server to talk to.
    async fn ask(&self, connection: &mut MultiplexedConnection) -> Result<(), Error> {
        let question = self.server.question();
        let answer = timeout(
            self.settings.command_timeout,
            question.query_async::<Value>(connection),
        )
        .await
        .map_err(|_| Error::connect_timed_out())?
        .map_err(Error::connect_failed)?;
        self.server.accepts(&answer)
    }

    async fn in_time<T>(
        &self,
        connecting: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        timeout(self.settings.connect_timeout, connecting)
            .await
            .map_err(|_| Error::connect_timed_out())?
    }
}

async fn connect(client: &Client) -> Result<MultiplexedConnection, Error> {
    // The link has its own clock for both, which also runs while a command waits in the queue.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    Box::pin(connecting).await.map_err(Error::connect_failed)
}

/// `info` with the settings that notice a dead connection.
pub(super) fn tuned(info: ConnectionInfo) -> ConnectionInfo {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    info.set_tcp_settings(tcp)
}
