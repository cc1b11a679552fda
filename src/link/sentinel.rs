//! Sentinel: who the master is, by what the sentinels say and by what it says itself.
//!
//! All sentinels are asked at once. One that missed a failover still names the old master, so the answer with
//! the highest configuration epoch wins, and the server has to say itself that it is a master.

use std::{collections::HashMap, error, fmt, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError,
    RedisResult, Value,
};
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{cluster, connect, error::Error};

/// The part of the time for connecting that the first answer waits for the others.
const GRACE: u32 = 4;

/// What the sentinels said so lately is not asked again by the next link. Shorter than the pause between
/// connecting and the first look, so that no answer from before a failover condemns a connection made after it.
const RECENT: Duration = Duration::from_secs(2);

/// The sentinels of one service.
#[derive(Debug)]
pub(super) struct Sentinels {
    nodes: Vec<ConnectionInfo>,
    service: Arc<str>,
    /// The master's login and whether it speaks TLS; its address is the sentinels' to say.
    master: ConnectionInfo,
    /// The last look at a master that is connected to already.
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    /// `None`: nobody answered.
    master: Option<Candidate>,
}

impl Sentinels {
    pub(super) fn new(nodes: Vec<ConnectionInfo>, service: &str, master: ConnectionInfo) -> Self {
        Self {
            nodes: nodes.into_iter().map(connect::tuned).collect(),
            service: service.into(),
            master: connect::tuned(master),
            seen: Mutex::default(),
        }
    }

    pub(super) fn service(&self) -> &str {
        &self.service
    }

    pub(super) fn nodes(&self) -> &[ConnectionInfo] {
        &self.nodes
    }

    pub(super) fn template(&self) -> &ConnectionInfo {
        &self.master
    }

    /// The master, as the sentinels behind `clients` know it.
    pub(super) async fn master(
        &self,
        clients: Vec<Client>,
        patience: Duration,
    ) -> Result<ConnectionInfo, Error> {
        let elected = self.elect(clients, patience).await;
        let master = elected.map_err(Error::connect_failed)?;
        Ok(self.at(master))
    }

    /// Whether by now they name another master than the one at `address`; all links share one look.
    pub(super) async fn have_left(
        &self,
        address: &ConnectionAddr,
        clients: Vec<Client>,
        patience: Duration,
    ) -> bool {
        let mut seen = self.seen.lock().await;
        if seen.as_ref().is_none_or(|seen| seen.at.elapsed() >= RECENT) {
            let master = self.elect(clients, patience).await.ok();
            let at = Instant::now();
            *seen = Some(Seen { at, master });
        }
        let master = seen.as_ref().and_then(|seen| seen.master.clone());
        master.is_some_and(|master| self.at(master).addr() != address)
    }

    async fn elect(
        &self,
        clients: Vec<Client>,
        patience: Duration,
    ) -> Result<Candidate, Unresolved> {
        let mut asked = JoinSet::new();
        for client in clients {
            asked.spawn(ask(client, Arc::clone(&self.service)));
        }
        let mut election = Election::default();
        let mut until = Instant::now() + patience / 2;
        while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
            match answer {
                Ok(Ok(candidate)) => {
                    until = until.min(Instant::now() + patience / GRACE);
                    election.hear(candidate);
                }
                Ok(Err(error)) => election.failed = Some(error),
                Err(gone) => drop(gone),
            }
        }
        election.end()
    }

    fn at(&self, Candidate { host, port, .. }: Candidate) -> ConnectionInfo {
        cluster::at(&self.master, host, port)
    }
}

/// Whether the role that a server gave itself is that of a master.
pub(super) fn accept(role: &Value) -> Result<(), Error> {
    if is_master(role) {
        Ok(())
    } else {
        Err(Error::connect_failed(Unresolved::NotMaster))
    }
}

async fn ask(sentinel: Client, service: Arc<str>) -> RedisResult<Candidate> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connecting = sentinel.get_multiplexed_async_connection_with_config(&config);
    let mut connection = Box::pin(connecting).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("MASTER").arg(&*service);
    let answer: HashMap<String, String> = question.query_async(&mut connection).await?;
    Candidate::read(&answer).ok_or_else(|| {
        RedisError::from((ErrorKind::UnexpectedReturnType, "no address of a master"))
    })
}

/// What one sentinel says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    host: String,
    port: u16,
    /// Each failover makes it greater.
    epoch: u64,
}

impl Candidate {
    fn read(fields: &HashMap<String, String>) -> Option<Self> {
        Some(Self {
            host: fields.get("ip").filter(|host| !host.is_empty())?.clone(),
            port: fields.get("port")?.parse().ok()?,
            epoch: fields.get("config-epoch")?.parse().ok()?,
        })
    }
}

#[derive(Debug, Default)]
struct Election {
    best: Option<Candidate>,
    failed: Option<RedisError>,
}

impl Election {
    fn hear(&mut self, candidate: Candidate) {
        let newer = |best: &Candidate| candidate.epoch > best.epoch;
        if self.best.as_ref().is_none_or(newer) {
            self.best = Some(candidate);
        }
    }

    fn end(self) -> Result<Candidate, Unresolved> {
        self.best.ok_or(Unresolved::Unanswered(self.failed))
    }
}

/// Redis and its kin say `master`.
fn is_master(role: &Value) -> bool {
    let Value::Array(fields) = role else {
        return false;
    };
    matches!(fields.first(), Some(Value::BulkString(name)) if name == b"master")
}

/// Why there is nobody to connect to.
#[derive(Debug)]
enum Unresolved {
    /// The last sentinel's failure, unless all of them were silent.
    Unanswered(Option<RedisError>),
    NotMaster,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unanswered(_) => "no sentinel named a master",
            Self::NotMaster => "the server that the sentinels name is not a master",
        })
    }
}

impl error::Error for Unresolved {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        let Self::Unanswered(Some(source)) = self else {
            return None;
        };
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(port: u16, epoch: u64) -> Candidate {
        Candidate {
            host: "10.0.0.1".to_owned(),
            port,
            epoch,
        }
    }

    fn words(words: &[&str]) -> Value {
        let words = words.iter().map(|word| word.as_bytes().to_vec());
        Value::Array(words.map(Value::BulkString).collect())
    }

    #[test]
    fn the_highest_epoch_wins_in_whatever_order_the_answers_come() {
        for order in [[1, 2, 1], [2, 1, 1], [1, 1, 2]] {
            let mut election = Election::default();

            for epoch in order {
                election.hear(candidate(6379 + u16::try_from(epoch).unwrap(), epoch));
            }

            assert_eq!(election.end().unwrap(), candidate(6381, 2));
        }
    }

    #[test]
    fn without_an_answer_there_is_no_master() {
        let error = Election::default().end().unwrap_err();

        assert_eq!(error.to_string(), "no sentinel named a master");
    }

    #[test]
    fn an_answer_without_an_address_or_an_epoch_is_none() {
        let full = [("ip", "10.0.0.1"), ("port", "6379"), ("config-epoch", "3")];
        let read = |fields: &[(&str, &str)]| {
            let fields = fields.iter();
            Candidate::read(&fields.map(|&(k, v)| (k.to_owned(), v.to_owned())).collect())
        };

        assert_eq!(read(&full), Some(candidate(6379, 3)));
        for gone in 0..full.len() {
            let mut fields = full.to_vec();
            fields.remove(gone);
            assert_eq!(read(&fields), None);
        }
        assert_eq!(read(&[("ip", ""), full[1], full[2]]), None);
    }

    #[test]
    fn only_a_server_that_calls_itself_master_is_one() {
        assert!(is_master(&words(&["master", "0"])));
        assert!(!is_master(&words(&["slave", "127.0.0.1"])));
        assert!(!is_master(&words(&["sentinel"])));
        assert!(!is_master(&words(&[])));
        assert!(!is_master(&Value::Nil));
    }
}
