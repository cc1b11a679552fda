//! Asking the nodes what the Cluster looks like.

use std::{error, fmt, time::Duration};

use redis::{AsyncConnectionConfig, ConnectionInfo, Value};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{address::Address, known::Look, topology::Topology};
use crate::link::{access::Access, error::Error};

/// So many nodes are asked at once; the next ones only if none of them answers.
const AT_ONCE: usize = 3;
/// For so long.
const PATIENCE: Duration = Duration::from_secs(1);
/// For so long the first answer waits for others, which may know more.
const GRACE: Duration = Duration::from_millis(20);

/// Asks a few nodes at a time until one answers.
pub(super) async fn look(look: Look) {
    let mut found = Err(Error::broken(None));
    for few in look.candidates().chunks(AT_ONCE) {
        found = ask_all(few, look.access()).await;
        if found.is_ok() {
            break;
        }
    }
    look.ends(found);
}

/// Of those that answer together, the one that knows the latest: a node that stood still for a while answers
/// from before.
async fn ask_all(nodes: &[ConnectionInfo], access: &Access) -> Result<Topology, Error> {
    let mut asked = JoinSet::new();
    for node in nodes {
        asked.spawn(ask(node.clone(), access.clone()));
    }
    let mut until = Instant::now() + PATIENCE;
    let mut latest = Err(Error::connect_timed_out());
    while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
        // A task that ended without an answer counts as silent.
        let Ok(answer) = answer else {
            continue;
        };
        if answer.is_ok() {
            until = until.min(Instant::now() + GRACE);
        }
        latest = later(latest, answer);
    }
    latest
}

fn later(
    known: Result<Topology, Error>,
    answer: Result<Topology, Error>,
) -> Result<Topology, Error> {
    match (known, answer) {
        (Ok(known), Ok(answer)) if answer.epoch > known.epoch => Ok(answer),
        (Ok(known), _) => Ok(known),
        (Err(_), answer) => answer,
    }
}

async fn ask(node: ConnectionInfo, access: Access) -> Result<Topology, Error> {
    let asked =
        Address::of(node.addr()).ok_or_else(|| Error::connect_failed(Unfit::WithoutAddress))?;
    let client = access.open(node).await?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = Box::pin(connecting).await.map_err(Error::connect_failed)?;
    let mut question = redis::pipe();
    question.cmd("CLUSTER").arg("INFO");
    question.cmd("CLUSTER").arg("SLOTS");
    let (info, slots): (Value, Value) = question
        .query_async(&mut connection)
        .await
        .map_err(Error::connect_failed)?;
    Topology::read(&info, &slots, &asked).ok_or_else(|| Error::connect_failed(Unfit::WithoutSlots))
}

/// Why a node that is there has nothing to say.
#[derive(Debug)]
enum Unfit {
    WithoutAddress,
    WithoutSlots,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WithoutAddress => "a node of a Cluster is reached through TCP",
            Self::WithoutSlots => "the node knows of no slots",
        })
    }
}

impl error::Error for Unfit {}

#[cfg(test)]
mod tests {
    use super::{super::map::SlotMap, *};

    fn known(epoch: u64) -> Topology {
        let map = SlotMap::default();
        Topology { epoch, map }
    }

    #[test]
    fn the_highest_epoch_wins_in_whatever_order_the_answers_come() {
        for order in [[1, 2, 1], [2, 1, 1], [1, 1, 2]] {
            let silent = Err(Error::connect_timed_out());
            let latest = order.map(known).into_iter().map(Ok).fold(silent, later);

            assert_eq!(latest.unwrap().epoch, 2);
        }
    }

    #[test]
    fn one_that_fails_is_outdone_by_any_that_answers() {
        let failed = || Err(Error::lost());

        assert_eq!(later(failed(), Ok(known(1))).unwrap().epoch, 1);
        assert_eq!(later(Ok(known(1)), failed()).unwrap().epoch, 1);
        assert!(later(failed(), failed()).is_err());
    }
}
