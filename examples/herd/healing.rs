//! Whether the workers share through Redis again.

use std::{net::SocketAddr, time::Duration};

use futures_util::future::try_join_all;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{Failed, client, worker::PROBE};

/// So often it is tried, whether the last try has an answer or not.
const PAUSE: Duration = Duration::from_millis(20);

const PATIENCE: Duration = Duration::from_secs(30);

/// Returns when each worker has read what another one has built since: how long that took.
pub(crate) async fn healed(workers: &[SocketAddr], since: Instant) -> Result<Duration, Failed> {
    let next = workers.iter().cycle().skip(1);
    let pairs = workers.iter().zip(next);
    let all = try_join_all(pairs.map(|(&one, &other)| share(one, other)));
    timeout(PATIENCE, all)
        .await
        .map_err(|_| "the workers did not share again")??;
    Ok(since.elapsed())
}

async fn share(one: SocketAddr, other: SocketAddr) -> Result<(), Failed> {
    let mut under_way = JoinSet::new();
    loop {
        under_way.spawn(is_shared(one, other));
        let pause = sleep(PAUSE);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                Some(tried) = under_way.join_next() => {
                    if tried?? {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Whether what one has just built is what the other one answers.
async fn is_shared(one: SocketAddr, other: SocketAddr) -> Result<bool, Failed> {
    let path = format!("{PROBE}?{:016x}", fastrand::u64(..));
    Ok(client::fetch(one, &path).await? == client::fetch(other, &path).await?)
}
