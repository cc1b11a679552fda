//! [`Session`]: one connection that listens to the channels of one master.

use std::{convert::Infallible, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult, Value,
    aio::MultiplexedConnection,
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::Ear;
use crate::link::{
    cluster::{address::Address, known::Cluster},
    error::Error,
};

const PING: Duration = Duration::from_secs(3);

pub(super) struct Session {
    pub(super) cluster: Arc<Cluster>,
    pub(super) master: Address,
    pub(super) channels: Vec<Arc<str>>,
    pub(super) patience: Duration,
    pub(super) ear: Ear,
}

/// Why a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// The node has let go, of one channel at least: its slot has moved, or the connection is gone.
    Left,
    Lost,
    /// The node will not have it, and would hardly do so a moment later.
    Refused(Error),
}

impl Session {
    pub(super) async fn run(self) -> End {
        let gone = Arc::new(Notify::new());
        let listening = Box::pin(self.listen(&gone));
        tokio::select! {
            // That takes an answer's place if one is awaited, so that nothing else counts any more.
            biased;
            () = gone.notified() => End::Left,
            end = listening => end,
        }
    }

    async fn listen(&self, gone: &Arc<Notify>) -> End {
        let mut connection = match timeout(self.patience, self.connect(gone)).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(end)) => return end,
            Err(_) => return End::Lost,
        };
        match self.subscribe(&mut connection).await {
            Ok(()) => self.stay(connection).await,
            Err(end) => end,
        }
    }

    async fn connect(&self, gone: &Arc<Notify>) -> Result<MultiplexedConnection, End> {
        let info = self.master.in_place_of(self.cluster.template());
        // Only there may commands and messages share a connection.
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        let client = self
            .cluster
            .access()
            .open(info.set_redis_settings(settings));
        let client = client.await.map_err(|_| End::Lost)?;
        let (ear, gone) = (Arc::clone(&self.ear), Arc::clone(gone));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                hear(&push, &ear, &gone);
                Ok::<_, Infallible>(())
            });
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        Box::pin(connecting).await.map_err(not_let_in)
    }

    /// One command for each channel, since one command reaches one slot.
    async fn subscribe(&self, connection: &mut MultiplexedConnection) -> Result<(), End> {
        let mut subscribe = redis::pipe();
        for channel in &self.channels {
            subscribe.cmd("SSUBSCRIBE").arg(&**channel);
        }
        let count = self.channels.len();
        let replies = connection.send_packed_commands(&subscribe, 0, count);
        let replies = self.in_time(replies).await?;
        let mut outcome = Ok(());
        for reply in replies.into_iter().map(Value::extract_error) {
            if let Err(error) = reply {
                outcome = Err(self.judge(Error::from_reply(error)));
            }
        }
        outcome
    }

    /// Returns when the connection is of no use any more.
    async fn stay(&self, mut connection: MultiplexedConnection) -> End {
        let ping = redis::cmd("PING");
        loop {
            sleep(PING).await;
            let answer = connection.send_packed_command(&ping);
            if let Err(end) = self.in_time(answer).await {
                return end;
            }
        }
    }

    async fn in_time<T>(&self, exchange: impl Future<Output = RedisResult<T>>) -> Result<T, End> {
        match timeout(self.patience, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(End::Lost),
        }
    }

    fn judge(&self, error: Error) -> End {
        if let Some(redirection) = error.redirection() {
            self.cluster.heed(redirection, &self.master);
            return End::Left;
        }
        match error.code() {
            Some("CLUSTERDOWN" | "TRYAGAIN" | "LOADING" | "MASTERDOWN" | "BUSY") | None => {
                End::Lost
            }
            Some(_) => End::Refused(error),
        }
    }
}

fn hear(push: &PushInfo, ear: &Ear, gone: &Notify) {
    match push.kind {
        PushKind::SMessage => {
            if let [_, Value::BulkString(message)] = &*push.data {
                ear(message);
            }
        }
        PushKind::SUnsubscribe | PushKind::Disconnection => gone.notify_one(),
        _ => {}
    }
}

/// A server that is there, and does not speak the protocol or does not know the user, will not for a while.
fn not_let_in(error: RedisError) -> End {
    if error.is_io_error() || error.is_timeout() {
        End::Lost
    } else {
        End::Refused(Error::connect_failed(error))
    }
}
