//! The network: which other instances exist, and which of them hold which documents.
//!
//! A [`Network`] is part of the control plane's state, durable and known to every core. [`patch`] changes it. With a leader,
//! documents are distributed over network shards: the leader forwards each write ([`deliveries`]), and a change of the topology
//! is a task that runs on every instance ([`topology`], [`change`], [`export`]). [`routing`] decides which instances a search
//! asks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shards::network_shards::KeptShards;
use uuid::Uuid;

pub mod admission;
pub mod change;
pub mod deliveries;
pub mod export;
pub mod failure;
pub mod forward;
pub mod headers;
pub mod patch;
pub mod proof;
pub mod ready;
pub mod routing;
pub mod task;
pub mod topology;

pub use patch::{NetworkPatch, RemotePatch, ShardPatch};

/// The network as one instance knows it. As JSON: the interface's object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// The name of this instance.
    #[serde(rename = "self")]
    pub own_name: Option<String>,
    /// The name of the instance that takes writes; `None` for a network that only searches together.
    pub leader: Option<String>,
    /// The instances by name; this one is among them only if it was put there.
    pub remotes: BTreeMap<String, Remote>,
    /// The network shards by name.
    pub shards: BTreeMap<String, Shard>,
    /// Grows with each change, by the time of it; nil for a network that nobody has changed yet.
    pub version: Uuid,
}

impl Network {
    /// Which documents this instance keeps; `None` where documents are not dealt out.
    pub fn kept(&self) -> Option<KeptShards> {
        self.leader.as_ref()?;
        let is_own = |shard: &Shard| self.own_name.as_ref().is_some_and(|name| shard.remotes.contains(name));
        let own = self.shards.iter().filter(|(_, shard)| is_own(shard)).map(|(name, _)| name.clone());
        Some(KeptShards { names: self.shards.keys().cloned().collect(), own: own.collect() })
    }

    /// Whether these many of its instances, this one counted, may decide for all: more than half, or half where the leader is
    /// among them. Any two such groups share an instance, which lets no two leaders pass.
    pub fn is_quorum(&self, count: usize) -> bool {
        let all = self.remotes.len();
        count * 2 > all || (count * 2 == all && self.is_leader())
    }

    /// Whether this instance leads.
    pub fn is_leader(&self) -> bool {
        self.leader.is_some() && self.leader == self.own_name
    }
}

/// How an instance is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Remote {
    /// An absolute URL, as it was given.
    pub url: String,
    /// The key that searches there, in clear.
    pub search_api_key: Option<String>,
    /// The key that writes there, in clear.
    pub write_api_key: Option<String>,
}

/// A named part of the documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The instances that hold it.
    pub remotes: BTreeSet<String>,
}
