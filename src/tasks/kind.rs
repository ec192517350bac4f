//! The states and types of tasks, by the interface's names.

use serde::{Deserialize, Serialize};

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// Waits.
    Enqueued,
    /// In the batch being processed.
    Processing,
    /// Done, its effect is visible.
    Succeeded,
    /// Done without effect; the task has an error.
    Failed,
    /// Taken back by a cancelation; without effect.
    Canceled,
}

/// The interface's types of tasks. Several contents may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// `POST` and `PUT` of documents.
    DocumentAdditionOrUpdate,
    /// Editing by a function.
    DocumentEdition,
    /// By ids, by filter, or all of them.
    DocumentDeletion,
    /// Settings changed or reset.
    SettingsUpdate,
    /// An index made by name.
    IndexCreation,
    /// An index taken away.
    IndexDeletion,
    /// Primary key or name of an index.
    IndexUpdate,
    /// Names of indexes exchanged.
    IndexSwap,
    /// Tasks taken back.
    TaskCancelation,
    /// Finished tasks forgotten.
    TaskDeletion,
    /// A portable copy of everything.
    DumpCreation,
    /// A private copy of everything.
    SnapshotCreation,
    /// Indexes sent to another instance.
    Export,
    /// Files of an earlier version taken over.
    UpgradeDatabase,
    /// An index's storage rewritten.
    IndexCompaction,
    /// Documents moved between instances.
    NetworkTopologyChange,
}

impl Status {
    /// All, in the order of life.
    pub const ALL: [Self; 5] = [Self::Enqueued, Self::Processing, Self::Succeeded, Self::Failed, Self::Canceled];

    /// The interface's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enqueued => "enqueued",
            Self::Processing => "processing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    /// The status of this name, in any letter case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name().eq_ignore_ascii_case(name))
    }

    /// Whether nothing more will happen to the task.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

impl Kind {
    /// All, in the interface's order.
    pub const ALL: [Self; 16] = [
        Self::DocumentAdditionOrUpdate,
        Self::DocumentEdition,
        Self::DocumentDeletion,
        Self::SettingsUpdate,
        Self::IndexCreation,
        Self::IndexDeletion,
        Self::IndexUpdate,
        Self::IndexSwap,
        Self::TaskCancelation,
        Self::TaskDeletion,
        Self::DumpCreation,
        Self::SnapshotCreation,
        Self::Export,
        Self::UpgradeDatabase,
        Self::IndexCompaction,
        Self::NetworkTopologyChange,
    ];

    /// The interface's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::DocumentAdditionOrUpdate => "documentAdditionOrUpdate",
            Self::DocumentEdition => "documentEdition",
            Self::DocumentDeletion => "documentDeletion",
            Self::SettingsUpdate => "settingsUpdate",
            Self::IndexCreation => "indexCreation",
            Self::IndexDeletion => "indexDeletion",
            Self::IndexUpdate => "indexUpdate",
            Self::IndexSwap => "indexSwap",
            Self::TaskCancelation => "taskCancelation",
            Self::TaskDeletion => "taskDeletion",
            Self::DumpCreation => "dumpCreation",
            Self::SnapshotCreation => "snapshotCreation",
            Self::Export => "export",
            Self::UpgradeDatabase => "upgradeDatabase",
            Self::IndexCompaction => "indexCompaction",
            Self::NetworkTopologyChange => "networkTopologyChange",
        }
    }

    /// The kind of this name, in any letter case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// Whether such tasks change documents or indexes, so that a leader sends them on.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::DocumentAdditionOrUpdate
                | Self::DocumentEdition
                | Self::DocumentDeletion
                | Self::SettingsUpdate
                | Self::IndexCreation
                | Self::IndexDeletion
                | Self::IndexUpdate
                | Self::IndexSwap
        )
    }

    /// Whether such tasks belong to one index; the others have `indexUid` null and are hidden from limited keys.
    pub fn has_one_index(self) -> bool {
        !matches!(
            self,
            Self::IndexSwap
                | Self::TaskCancelation
                | Self::TaskDeletion
                | Self::DumpCreation
                | Self::SnapshotCreation
                | Self::Export
                | Self::UpgradeDatabase
                | Self::NetworkTopologyChange
        )
    }
}
