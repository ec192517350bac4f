//! The contents of the control store, tree by tree, and changes to it. Tree numbers are part of the file format: never reuse one.
//! Uids in keys are big-endian, so byte order is numeric order; values are JSON unless stated otherwise.

use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use shards::timestamp::Timestamp;
use storage_engine::TreeId;
use uuid::Uuid;

use crate::auth::ApiKey;
use crate::chats::ChatSettings;
use crate::control::features::Features;
use crate::network::Network;
use crate::network::change::Steps;
use crate::search_rules::SearchRule;
use crate::tasks::batch::Batch;
use crate::tasks::task::Task;
use crate::webhooks::Webhook;
use crate::webhooks::marks::MarkChanges;

/// Small records by name, see the constants below.
pub const META: TreeId = TreeId(0);
/// Task uid (u32) -> finished task. Of a deletion of very many documents the ids are in [`TASK_IDS`].
pub const TASKS: TreeId = TreeId(1);
/// Batch uid (u32) -> finished batch.
pub const BATCHES: TreeId = TreeId(2);
/// Key uid (16 bytes) -> key.
pub const KEYS: TreeId = TreeId(3);
/// Name of an index -> [`IndexEntry`].
pub const INDEXES: TreeId = TreeId(4);
/// Index id (16 bytes) -> nothing: storage of deleted indexes that is still to be removed.
pub const DROPPING: TreeId = TreeId(5);

/// Webhook uid (16 bytes) -> webhook, its secrets in clear.
pub const WEBHOOKS: TreeId = TreeId(6);
/// Name of a chat workspace -> its settings, the key in clear.
pub const CHATS: TreeId = TreeId(7);
/// Uid of a search rule -> the rule.
pub const SEARCH_RULES: TreeId = TreeId(8);
/// Webhook uid (16 bytes; nil for that of the command line) -> the number (u32, big-endian) of the first batch that it is owed.
pub const WEBHOOK_MARKS: TreeId = TreeId(9);
/// Task uid (u32) -> the ids of documents that a finished task was given, where its record is without them.
pub const TASK_IDS: TreeId = TreeId(10);

/// In [`META`]: the version of this format.
pub const FORMAT: &[u8] = b"format";
/// In [`META`]: [`FinishedSet`], in its own bytes.
pub const FINISHED: &[u8] = b"finished";
/// In [`META`]: the uid of the next batch (u32, big-endian).
pub const NEXT_BATCH: &[u8] = b"next_batch";
/// In [`META`]: the switches.
pub const FEATURES: &[u8] = b"features";

/// In [`META`]: the topology of the network.
pub const NETWORK: &[u8] = b"network";

/// In [`META`]: the ended tasks that other instances have still to take, as a set in its own bytes.
pub const UNDELIVERED: &[u8] = b"undelivered";
/// In [`META`]: how far the change of the network under way is.
pub const NETWORK_STEPS: &[u8] = b"network_steps";

/// The version of this format.
pub const FORMAT_VERSION: &[u8] = b"1";

/// Where an index lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IndexEntry {
    /// The name of its storage; it stays when the index is renamed.
    pub id: Uuid,
    /// When it was created.
    pub created_at: Timestamp,
    /// Whether its storage has been made. The entry comes first, so that no storage is ever without an entry; after a
    /// crash in between the storage is made at the start.
    pub made: bool,
    /// The dictionaries by which its texts are cut, as [`shards::text::morphology::identity`] had them when it was made.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dictionaries: String,
}

/// What was decided together and becomes durable together.
#[derive(Debug, Default)]
pub struct Changes {
    /// Tasks that have ended.
    pub finished: Vec<Rc<Task>>,
    /// Ended tasks whose record changes.
    pub rewritten: Vec<Task>,
    /// Ended tasks that are forgotten.
    pub forgotten_tasks: RoaringBitmap,
    /// Batches that have ended.
    pub batches: Vec<Batch>,
    /// Batches that are forgotten.
    pub forgotten_batches: RoaringBitmap,
    /// Keys made or changed, or (`None`) taken away.
    pub keys: Vec<(Uuid, Option<ApiKey>)>,
    /// Chat workspaces made or changed, or (`None`) taken away.
    pub chats: Vec<(String, Option<ChatSettings>)>,
    /// The network as it is now.
    pub network: Option<Arc<Network>>,
    /// Webhooks made or changed, or (`None`) taken away.
    pub webhooks: Vec<(Uuid, Option<Webhook>)>,
    /// How far webhooks have been told.
    pub webhook_marks: MarkChanges,
    /// Search rules made or changed, or (`None`) taken away.
    pub search_rules: Vec<(String, Option<SearchRule>)>,
    /// All switches.
    pub features: Option<Features>,
    /// Indexes made, renamed or (`None`) taken away.
    pub indexes: Vec<(String, Option<IndexEntry>)>,
    /// Storage that is to be removed (true) or is gone (false).
    pub dropping: Vec<(Uuid, bool)>,
    /// The ended tasks that other instances have still to take.
    pub undelivered: Option<RoaringBitmap>,
    /// How far the change of the network is; `None` inside: none is under way.
    pub network_steps: Option<Option<Steps>>,
}

/// What an index's commit carries: the batch that made it and the fate of its tasks. Where the control store has not
/// heard of the batch, this ends it, so that it is not applied a second time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommitRecord {
    /// The batch.
    pub batch: Batch,
    /// Its tasks, ended.
    pub tasks: Vec<Task>,
}

/// The tasks that have ended, forgotten ones included: all below a number, and some above it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FinishedSet {
    below: u32,
    above: RoaringBitmap,
}

impl FinishedSet {
    /// Whether this task has ended.
    pub fn contains(&self, uid: u32) -> bool {
        uid < self.below || self.above.contains(uid)
    }

    /// Takes note that a task has ended.
    pub fn insert(&mut self, uid: u32) {
        if uid < self.below {
            return;
        }
        self.above.insert(uid);
        while self.above.min() == Some(self.below) {
            self.above.remove_smallest(1);
            self.below += 1;
        }
    }

    /// The smallest number above all that ended.
    pub fn next(&self) -> u32 {
        self.above.max().map_or(self.below, |last| last.saturating_add(1))
    }

    /// The form on disk: `below` (u32, big-endian), then the set in its portable form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.below.to_be_bytes().to_vec();
        bytes.extend(crate::tasks::bitmap::to_bytes(&self.above));
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (below, above) = bytes.split_first_chunk::<4>()?;
        let above = RoaringBitmap::deserialize_from(above).ok()?;
        Some(Self { below: u32::from_be_bytes(*below), above })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finished_set_closes_its_gaps() {
        let mut set = FinishedSet::default();
        for uid in [0, 1, 3, 4, 70_000] {
            set.insert(uid);
        }
        assert_eq!((set.below, set.above.len(), set.next()), (2, 3, 70_001));
        assert!(set.contains(1) && !set.contains(2) && set.contains(4));
        set.insert(2);
        assert_eq!((set.below, set.above.len()), (5, 1));
        assert_eq!(FinishedSet::from_bytes(&set.to_bytes()), Some(set));
        assert_eq!(FinishedSet::from_bytes(b"abc"), None);
    }
}
