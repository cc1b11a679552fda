//! What `CLUSTER SLOTS` and `CLUSTER INFO` say.

use redis::Value;

use super::{address::Address, map::SlotMap};
use crate::slot::SLOTS;

/// What one node knows of the Cluster.
#[derive(Debug)]
pub(super) struct Topology {
    /// Each failover and each move of a slot makes it greater.
    pub(super) epoch: u64,
    pub(super) map: SlotMap,
}

impl Topology {
    /// Reads the replies of the node at `asked`. `None`: it knows of no slot.
    pub(super) fn read(info: &Value, slots: &Value, asked: &Address) -> Option<Self> {
        let map = read_slots(slots, asked);
        let epoch = text(info).and_then(|info| epoch(&info)).unwrap_or(0);
        (!map.is_empty()).then_some(Self { epoch, map })
    }
}

fn epoch(info: &str) -> Option<u64> {
    let mut lines = info.lines();
    let line = lines.find_map(|line| line.strip_prefix("cluster_current_epoch:"))?;
    line.trim().parse().ok()
}

/// Each line: first slot, last slot, master, replicas ...; what does not read so is left out.
fn read_slots(reply: &Value, asked: &Address) -> SlotMap {
    let mut map = SlotMap::default();
    let mut replicas = Vec::new();
    for line in items(reply) {
        let [first, last, nodes @ ..] = items(line) else {
            continue;
        };
        let mut nodes = nodes.iter().map(|node| read_node(node, asked));
        if let (Some(first), Some(last), Some(Some(master))) =
            (slot(first), slot(last), nodes.next())
        {
            map.assign(first..=last, master);
            replicas.extend(nodes.flatten());
        }
    }
    for replica in replicas {
        map.add_replica(replica);
    }
    map
}

/// Host, port, id, and more names of the host.
fn read_node(node: &Value, asked: &Address) -> Option<Address> {
    let [host, Value::Int(port), more @ ..] = items(node) else {
        return None;
    };
    let port = u16::try_from(*port).ok().filter(|port| *port != 0)?;
    match text(host).as_deref() {
        // Where the answer came from.
        None | Some("") => Some(asked.beside(port)),
        // It has no such name; one of another kind may be among the others.
        Some("?") => Some(Address::new(&other_name(more)?, port)),
        Some(host) => Some(Address::new(host, port)),
    }
}

fn other_name(more: &[Value]) -> Option<String> {
    let names = match more.get(1)? {
        Value::Map(names) => names.first().map(|(_, name)| name),
        names => items(names).get(1),
    };
    text(names?).filter(|name| !name.is_empty() && name != "?")
}

fn slot(value: &Value) -> Option<u16> {
    let Value::Int(slot) = value else {
        return None;
    };
    u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS)
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}

fn text(value: &Value) -> Option<String> {
    redis::from_redis_value(value.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), word("id")])
    }

    fn line(first: i64, last: i64, nodes: impl IntoIterator<Item = Value>) -> Value {
        let mut line = vec![Value::Int(first), Value::Int(last)];
        line.extend(nodes);
        Value::Array(line)
    }

    fn read(lines: impl IntoIterator<Item = Value>) -> SlotMap {
        let lines = Value::Array(lines.into_iter().collect());
        read_slots(&lines, &Address::new("here", 6379))
    }

    fn owner(map: &SlotMap, slot: u16) -> Option<String> {
        map.owner(slot).map(ToString::to_string)
    }

    #[test]
    fn slots_masters_and_replicas_are_read() {
        let map = read([
            line(0, 99, [node(word("a"), 1), node(word("b"), 2)]),
            line(100, 16_383, [node(word("b"), 3), node(word("a"), 4)]),
        ]);

        assert_eq!(owner(&map, 99).unwrap(), "a:1");
        assert_eq!(owner(&map, 16_383).unwrap(), "b:3");
        assert_eq!(map.nodes().count(), 4);
        assert_eq!(map.masters().len(), 2);
    }

    #[test]
    fn a_host_that_is_not_said_is_the_one_that_was_asked() {
        let map = read([
            line(0, 9, [node(word(""), 7)]),
            line(10, 19, [node(Value::Nil, 8)]),
        ]);

        assert_eq!(owner(&map, 0).unwrap(), "here:7");
        assert_eq!(owner(&map, 10).unwrap(), "here:8");
    }

    #[test]
    fn an_unknown_name_is_replaced_by_another_one_or_left_out() {
        let named = Value::Array(vec![
            word("?"),
            Value::Int(7),
            word("id"),
            Value::Array(vec![word("ip"), word("10.0.0.1")]),
        ]);

        let map = read([line(0, 9, [named]), line(10, 19, [node(word("?"), 8)])]);

        assert_eq!(owner(&map, 0).unwrap(), "10.0.0.1:7");
        assert_eq!(owner(&map, 10), None);
    }

    #[test]
    fn garbage_is_left_out_and_the_rest_is_read() {
        let map = read([
            Value::Nil,
            Value::Array(Vec::new()),
            line(0, 9, []),
            line(-1, 9, [node(word("a"), 1)]),
            line(0, 16_384, [node(word("a"), 1)]),
            line(0, 9, [node(word("a"), 70_000)]),
            line(0, 9, [node(word("a"), 0)]),
            line(20, 29, [node(word("b"), 2)]),
        ]);

        assert_eq!(owner(&map, 0), None);
        assert_eq!(owner(&map, 25).unwrap(), "b:2");
        assert_eq!(map.nodes().count(), 1);
    }

    #[test]
    fn a_node_without_slots_knows_nothing_of_use() {
        let asked = Address::new("here", 1);
        let info = word("cluster_state:ok\r\ncluster_current_epoch:7\r\n");
        let slots = Value::Array(vec![line(0, 9, [node(word("a"), 1)])]);

        assert!(Topology::read(&info, &Value::Array(Vec::new()), &asked).is_none());
        assert_eq!(Topology::read(&info, &slots, &asked).unwrap().epoch, 7);
        assert_eq!(
            Topology::read(&Value::Nil, &slots, &asked).unwrap().epoch,
            0
        );
    }
}
