//! A change of the topology as a task: what it goes from and to, who sends documents, and how others are told.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use shards::network_shards::rendezvous;

use super::Network;
use super::forward::Forward;
use crate::http::Method;

/// From one network to the next, each as this instance knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyChange {
    /// The network that holds until the documents have moved.
    pub before: Network,
    /// The next one.
    pub after: Network,
    /// Whether this instance comes back to a network that went on without it: what it has is out of date, and goes first.
    #[serde(default)]
    pub starts_empty: bool,
}

impl TopologyChange {
    /// The name of this instance in the change: that which others know it by already, else its new one.
    pub fn own_name(&self) -> Option<&str> {
        self.before.own_name.as_deref().or(self.after.own_name.as_deref())
    }

    /// The other instances of either network.
    pub fn others(&self) -> BTreeSet<&str> {
        let names = self.before.remotes.keys().chain(self.after.remotes.keys()).map(String::as_str);
        names.filter(|name| Some(*name) != self.own_name()).collect()
    }

    /// The other instances of the next network.
    pub fn others_after(&self) -> BTreeSet<&str> {
        self.after.remotes.keys().map(String::as_str).filter(|name| Some(*name) != self.own_name()).collect()
    }

    /// The instance that sends the documents of a shard of the network before: one of those that stay, if any does.
    pub fn sender(&self, shard: &str) -> Option<&str> {
        let remotes = &self.before.shards.get(shard)?.remotes;
        let all = remotes.iter().map(String::as_str);
        let staying: Vec<&str> = all.clone().filter(|name| self.after.remotes.contains_key(*name)).collect();
        if staying.is_empty() { rendezvous(all, shard) } else { rendezvous(staying, shard) }
    }

    /// The instances whose documents must have come before anything is deleted: those that stay, and those that leave with
    /// what nobody else has.
    pub fn senders(&self) -> BTreeSet<&str> {
        let mut senders = self.others_after();
        let only = self.before.shards.keys().filter_map(|shard| self.sender(shard));
        senders.extend(only.filter(|name| Some(*name) != self.own_name()));
        if self.before.leader.is_none() {
            // Nothing says who has what.
            senders.extend(self.others());
        }
        senders
    }

    /// Whether this instance sends the document of this id to `remote`.
    pub fn sends(&self, id: &str, remote: &str) -> bool {
        let names = |network: &Network| network.shards.keys().cloned().collect::<Vec<_>>();
        let (before, after) = (names(&self.before), names(&self.after));
        // What one that joins brings along was dealt out by nobody.
        let is_dealt = self.is_dealt();
        let old = rendezvous(before.iter().map(String::as_str), id).filter(|_| is_dealt);
        let new = rendezvous(after.iter().map(String::as_str), id);
        self.sends_shard(old, new, remote)
    }

    /// The same for a document whose shards are known. Without an old one the document is wherever it was put.
    fn sends_shard(&self, old: Option<&str>, new: Option<&str>, remote: &str) -> bool {
        let holds = |network: &Network, shard: Option<&str>| {
            shard.and_then(|shard| network.shards.get(shard)).is_some_and(|shard| shard.remotes.contains(remote))
        };
        holds(&self.after, new)
            && !holds(&self.before, old)
            && old.is_none_or(|old| self.sender(old) == self.own_name())
    }

    /// Whether this instance may have documents for `remote` at all.
    pub fn may_send(&self, remote: &str) -> bool {
        if !self.is_dealt() || !self.before.shards.keys().eq(self.after.shards.keys()) {
            return true;
        }
        self.after.shards.keys().any(|shard| self.sends_shard(Some(shard), Some(shard), remote))
    }

    /// Whether the documents of this instance are those that the network before gave it.
    fn is_dealt(&self) -> bool {
        self.before.leader.is_some() && self.own_name().is_some_and(|name| self.before.remotes.contains_key(name))
    }

    /// The details of the task.
    pub fn details(&self, moved: u64, message: &str) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("movedDocuments".into(), moved.into());
        details.insert("message".into(), message.into());
        details
    }
}

/// How an instance is told of a change; nothing that only concerns this one.
pub fn message(change: &TopologyChange, name: &str) -> Option<Forward> {
    let TopologyChange { before, after, .. } = change;
    let stays = after.remotes.contains_key(name);
    let mut body = json!({
        "remotes": after.remotes,
        "shards": after.shards,
        "self": stays.then_some(name),
        "leader": after.leader,
        "previousShards": before.shards,
    });
    if stays {
        body["previousRemotes"] = json!(before.remotes);
    }
    Some(Forward::json(Method::Patch, "/network".into(), &body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Remote, Shard};

    fn network(own: &str, shards: &[(&str, &str)]) -> Network {
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<BTreeSet<_>>();
        let remotes = shards.iter().flat_map(|(_, remotes)| words(remotes));
        Network {
            own_name: Some(own.into()),
            leader: Some("a".into()),
            remotes: remotes.map(|name| (name, Remote::default())).collect(),
            shards: shards.iter().map(|(name, on)| ((*name).into(), Shard { remotes: words(on) })).collect(),
            ..Network::default()
        }
    }

    /// Every document that an instance has after a change and had not before is sent there by one instance that had it.
    #[test]
    fn each_document_is_sent_once_to_where_it_is_missing() {
        type Shards<'a> = &'a [(&'a str, &'a str)];
        let changes: [(Shards, Shards); 4] = [
            (&[("s", "a b"), ("t", "b c")], &[("s", "a c"), ("t", "b c")]),
            (&[("s", "a b"), ("t", "b c")], &[("s", "a"), ("t", "b"), ("u", "a c")]),
            (&[("s", "a b"), ("t", "b c"), ("u", "a c")], &[("s", "b c"), ("t", "a b")]),
            (&[("s", "a b")], &[("s", "a c"), ("t", "c d")]),
        ];
        for (before, after) in changes {
            let of = |own: &str| TopologyChange {
                before: network(own, before),
                after: network(own, after),
                starts_empty: false,
            };
            let has = |shards: Shards, id: &str, name: &str| {
                let shard = rendezvous(shards.iter().map(|(shard, _)| *shard), id);
                shards.iter().any(|(other, on)| Some(*other) == shard && on.split(' ').any(|word| word == name))
            };
            for id in (0..60).map(|id| id.to_string()) {
                for to in ["a", "b", "c", "d"] {
                    let needs = has(after, &id, to) && !has(before, &id, to);
                    let from: Vec<&str> =
                        ["a", "b", "c", "d"].into_iter().filter(|from| of(from).sends(&id, to)).collect();
                    let from: Vec<&str> = from.into_iter().filter(|from| has(before, &id, from)).collect();
                    assert_eq!(from.len(), usize::from(needs), "{id} to {to} in {after:?}: {from:?}");
                    assert!(from.iter().all(|from| of(from).may_send(to)));
                }
            }
        }
    }

    #[test]
    fn one_that_leaves_is_waited_for_only_with_what_nobody_else_has() {
        let change = |before, after| TopologyChange {
            before: network("a", before),
            after: network("a", after),
            starts_empty: false,
        };
        assert_eq!(change(&[("s", "a b")], &[("s", "a")]).senders(), BTreeSet::new());
        assert_eq!(change(&[("s", "a"), ("t", "b")], &[("s", "a"), ("t", "a")]).senders(), BTreeSet::from(["b"]));
    }
}
