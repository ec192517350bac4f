//! What a task of a network knows of the other instances.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::api::error::ErrorObject;

/// The part of a task that is about the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TaskNetwork {
    /// A task that this instance, as the leader, sends on.
    Leader {
        /// What came of it on each other instance, as far as it is known.
        remote_tasks: BTreeMap<String, RemoteTask>,
        /// The network it is for.
        network_version: Uuid,
    },
    /// A task that the leader sent.
    Origin(Origin),
    /// Documents that move here in a change of the network.
    Import {
        /// What comes from where.
        from: ImportFrom,
        /// How much is to come.
        metadata: ImportMetadata,
        /// The change.
        change: Origin,
    },
}

/// What became of a task on another instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteTask {
    /// The task there.
    pub task_uid: Option<u32>,
    /// Why there is none.
    pub error: Option<ErrorObject>,
    /// Whether it is still to be sent.
    pub pending: bool,
}

/// The task of a leader that a message is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The leader.
    pub remote_name: String,
    /// Its task.
    pub task_uid: u32,
    /// The network that the task is for.
    #[serde(default)]
    pub network_version: Uuid,
}

/// Where imported documents come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportFrom {
    /// The exporting instance, by its name before the change.
    pub remote_name: String,
    /// The index.
    pub index_name: Option<String>,
    /// Documents in this payload.
    pub document_count: u64,
}

/// How much an instance sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportMetadata {
    /// Indexes of the exporter.
    pub index_count: u64,
    /// Tells payloads of one index apart; absent for requests without documents.
    pub task_key: Option<u32>,
    /// Documents that it sends of this index.
    pub total_index_documents: u64,
}

impl TaskNetwork {
    /// The network that the task is for.
    pub fn version(&self) -> Uuid {
        match self {
            Self::Leader { network_version, .. } => *network_version,
            Self::Origin(origin) | Self::Import { change: origin, .. } => origin.network_version,
        }
    }

    /// As clients see it.
    pub fn object(&self) -> Value {
        match self {
            Self::Leader { remote_tasks, network_version } => {
                let shown = |(name, task): (&String, &RemoteTask)| {
                    let shown = match (task.task_uid, &task.error) {
                        (Some(uid), _) => json!({ "taskUid": uid, "error": null }),
                        (None, error) => json!({ "error": error }),
                    };
                    (name.clone(), shown)
                };
                let remote_tasks: Map<String, Value> = remote_tasks.iter().map(shown).collect();
                json!({ "remote_tasks": remote_tasks, "network_version": network_version })
            }
            Self::Origin(origin) => json!({ "origin": origin }),
            Self::Import { from, change, .. } => json!({ "import_from": from, "network_change": change }),
        }
    }

    /// Whether it is still to be sent to some instance.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Leader { remote_tasks, .. } if remote_tasks.values().any(|task| task.pending))
    }
}
