//! Importing a dump: fills an empty database from the unpacked files before anything else opens it.
//!
//! Nothing is rolled back on failure: the marker file of `crate::imports` remains until the whole import is durable, and whoever
//! finds it removes everything beside it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, select};
use roaring::RoaringBitmap;
use serde_json::Value;
use shards::engine::{Batch, BatchOp, IndexView, Method, PayloadFormat};
use shards::runtime::Runtime;
use shards::text::morphology;
use shards::timestamp::Timestamp;
use uuid::{Builder, Uuid};

use super::batch::BatchLine;
use super::lines::{Lines, folders, json_files, read_file, read_value};
use super::small::{IndexLine, KeyLine, Metadata, WebhooksFile, chat_of, rule_of, settings_of};
use super::task::TaskLine;
use super::{FORMAT, batch, names, task};
use crate::api::decode::check_index_uid;
use crate::archive::CopyError;
use crate::auth::ApiKey;
use crate::chats::ChatSettings;
use crate::control::indexes::{IndexError, SharedIndexes};
use crate::control::plane::{log_folder, store_path};
use crate::control::spare_files::SpareFiles;
use crate::control::storage::record::{Changes, FinishedSet, IndexEntry};
use crate::control::storage::refill::Refill;
use crate::control::storage::store::ControlStore;
use crate::control::storage::tasklog::TaskLog;
use crate::control::{ControlError, Features};
use crate::network::Network;
use crate::search_rules::SearchRule;
use crate::tasks::task::{Content, Task};

/// Bytes of documents that are indexed and made durable together.
const DOCUMENTS_BYTES: usize = 32 << 20;

/// Why a dump could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It is of a version that this server does not read.
    #[error("it has version `{0}`; only version `{FORMAT}` can be imported")]
    Version(String),
    /// Something that must be in it is not, or is not what it should be.
    #[error("`{file}` is damaged: {reason}")]
    Corrupt {
        /// Which entry.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file could not be read.
    #[error(transparent)]
    Read(#[from] CopyError),
    /// The tasks could not be written.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// An index could not be made.
    #[error("index `{name}`: {error}")]
    Index {
        /// Its name.
        name: String,
        /// What went wrong.
        error: IndexError,
    },
}

impl ImportError {
    /// A file is not what it should be.
    pub(super) fn corrupt(path: &Path, reason: impl ToString) -> Self {
        Self::Corrupt { file: path.display().to_string(), reason: reason.to_string() }
    }

    fn index(name: &str, error: IndexError) -> Self {
        Self::Index { name: name.into(), error }
    }
}

/// Fills the empty database in `root` from the unpacked dump in `folder`; durable when it returns.
///
/// # Errors
/// [`ImportError`]; the database then holds a part of the dump, and must not be used.
pub async fn import(
    runtime: &Rc<dyn Runtime>,
    indexes: &SharedIndexes,
    root: &Path,
    folder: &Path,
) -> Result<(), ImportError> {
    let import = Import { runtime, indexes, folder };
    let metadata: Metadata = import.required(names::METADATA).await?;
    if metadata.dump_version != FORMAT {
        return Err(ImportError::Version(metadata.dump_version));
    }
    let (store, _) = ControlStore::open(runtime.clone(), &store_path(root)).await?;
    let commits = pin!(store.clone().run());
    match select(pin!(import.everything(&store, root)), commits).await {
        Either::Left((imported, _)) => imported,
        Either::Right(((), _)) => Err(ControlError::Unreachable.into()),
    }
}

struct Import<'a> {
    runtime: &'a Rc<dyn Runtime>,
    indexes: &'a SharedIndexes,
    folder: &'a Path,
}

impl Import<'_> {
    async fn everything(&self, store: &ControlStore, root: &Path) -> Result<(), ImportError> {
        let webhooks: WebhooksFile = self.optional(names::WEBHOOKS).await?;
        let features: Features = self.optional(names::FEATURES).await?;
        let network: Network = self.optional(names::NETWORK).await?;
        // The instance is a new one, which has yet to be given its place.
        let network = Some(Arc::new(Network { own_name: None, leader: None, ..network }));
        let webhooks = webhooks.webhooks.into_iter().map(|(uid, webhook)| (uid, Some(webhook))).collect();
        let (chats, search_rules) = (self.chats().await?, self.search_rules().await?);
        let features = Some(features);
        store.commit(Changes { webhooks, network, features, chats, search_rules, ..Changes::default() }).await?;
        let mut keys = self.lines(names::KEYS).await?.ok_or_else(|| self.missing(names::KEYS))?;
        loop {
            let lines: Vec<KeyLine> = keys.values().await?;
            if lines.is_empty() {
                break;
            }
            let keys = lines.into_iter().map(ApiKey::from).map(|key| (key.uid, Some(key))).collect();
            store.commit(Changes { keys, ..Changes::default() }).await?;
        }
        let mut taken = BTreeSet::new();
        for folder in folders(&**self.runtime, &self.folder.join(names::INDEXES)).await? {
            let (name, entry) = self.index(&folder).await?;
            if !taken.insert(name.clone()) {
                return Err(ImportError::corrupt(&folder, "another index has the same name"));
            }
            tracing::info!(index = name, "imported an index");
            store.commit(Changes { indexes: vec![(name, Some(entry))], ..Changes::default() }).await?;
        }
        self.batches(store).await?;
        self.tasks(store, root).await
    }

    async fn chats(&self) -> Result<Vec<(String, Option<ChatSettings>)>, ImportError> {
        let mut chats = Vec::new();
        for (path, value) in self.values(names::CHATS).await? {
            let file = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
            let (name, settings) = chat_of(file, value).map_err(|reason| ImportError::corrupt(&path, reason))?;
            chats.push((name, Some(settings)));
        }
        Ok(chats)
    }

    async fn search_rules(&self) -> Result<Vec<(String, Option<SearchRule>)>, ImportError> {
        let rule = |(path, value): (PathBuf, Value)| match rule_of(value) {
            Ok(rule) => Ok((rule.uid.clone(), Some(rule))),
            Err(reason) => Err(ImportError::corrupt(&path, reason)),
        };
        self.values(names::SEARCH_RULES).await?.into_iter().map(rule).collect()
    }

    /// The values of the files in a folder, which need not be there.
    async fn values(&self, folder: &str) -> Result<Vec<(PathBuf, Value)>, ImportError> {
        let mut values = Vec::new();
        for path in json_files(&**self.runtime, &self.folder.join(folder)).await? {
            values.extend(read_value(&**self.runtime, &path).await?.map(|value| (path, value)));
        }
        Ok(values)
    }

    /// Makes an index and fills it.
    async fn index(&self, folder: &Path) -> Result<(String, IndexEntry), ImportError> {
        let path = folder.join(names::INDEX_METADATA);
        let missing = |name: &str| ImportError::corrupt(&folder.join(name), "it is missing");
        let line: Option<IndexLine> = read_value(&**self.runtime, &path).await?;
        let line = line.ok_or_else(|| missing(names::INDEX_METADATA))?;
        let name = line.uid;
        check_index_uid(&name).map_err(|error| ImportError::corrupt(&path, error.message))?;
        let date = |text: &str| {
            Timestamp::parse_rfc3339(text).ok_or_else(|| ImportError::corrupt(&path, format!("`{text}` is no date")))
        };
        let (created_at, updated_at) = (date(&line.created_at)?, date(&line.updated_at)?);
        let path = folder.join(names::SETTINGS);
        let settings: Option<Value> = read_value(&**self.runtime, &path).await?;
        let settings = settings_of(&settings.ok_or_else(|| missing(names::SETTINGS))?);
        let settings = settings.map_err(|reason| ImportError::corrupt(&path, reason))?;

        let id = self.random_uuid();
        let spare = SpareFiles::hold(self.runtime.core_count()).map_err(|error| ImportError::index(&name, error))?;
        let made = self.indexes.create(id, created_at).await;
        drop(spare);
        let mut view = made.map_err(|error| ImportError::index(&name, error))?;
        let first = Batch {
            settings: Some(Arc::new(settings)),
            primary_key: Some(line.primary_key),
            updated_at: Some(updated_at),
            ..Batch::default()
        };
        view = self.commit(&name, view, first).await?;
        let documents = Lines::open(self.runtime, folder.join(names::DOCUMENTS)).await?;
        let mut documents = documents.ok_or_else(|| missing(names::DOCUMENTS))?;
        loop {
            let payload = documents.next(DOCUMENTS_BYTES).await?;
            if payload.is_empty() {
                break;
            }
            let add = BatchOp::Add {
                payload: Arc::new(payload),
                format: PayloadFormat::Ndjson,
                method: Method::Replace,
                primary_key: None,
                skip_creation: false,
            };
            view = self
                .commit(&name, view, Batch { ops: vec![add], updated_at: Some(updated_at), ..Batch::default() })
                .await?;
        }
        Ok((name, IndexEntry { id, created_at, made: true, dictionaries: morphology::identity() }))
    }

    /// Makes a change of an index durable. The record is empty: no task is behind it.
    async fn commit(&self, name: &str, view: Arc<IndexView>, batch: Batch) -> Result<Arc<IndexView>, ImportError> {
        let failed = |error| ImportError::index(name, error);
        let prepared = self.indexes.prepare(view, batch).await.map_err(failed)?;
        if let Some(error) = prepared.outcomes().iter().find_map(|outcome| outcome.as_ref().err()) {
            return Err(failed(error.clone().into()));
        }
        prepared.commit(Vec::new()).await.map_err(failed)
    }

    async fn batches(&self, store: &ControlStore) -> Result<(), ImportError> {
        let Some(mut lines) = self.lines(names::BATCHES).await? else { return Ok(()) };
        let mut last = None;
        loop {
            let group: Vec<BatchLine> = lines.values().await?;
            if group.is_empty() {
                return Ok(());
            }
            let corrupt = |reason: String| ImportError::corrupt(&self.folder.join(names::BATCHES), reason);
            let mut batches = Vec::with_capacity(group.len());
            for line in group {
                let Some(batch) = batch::batch(line).map_err(corrupt)? else { continue };
                check_order(&mut last, batch.uid.0).map_err(|why| corrupt(format!("batch {why}")))?;
                batches.push(batch);
            }
            store.commit(Changes { batches, ..Changes::default() }).await?;
        }
    }

    async fn tasks(&self, store: &ControlStore, root: &Path) -> Result<(), ImportError> {
        let (log, _) =
            TaskLog::open(self.runtime, &log_folder(root), &FinishedSet::default(), &RoaringBitmap::new()).await?;
        let mut lines = self.lines(names::TASKS).await?.ok_or_else(|| self.missing(names::TASKS))?;
        let mut refill = Refill::new(&log);
        let mut last = None;
        loop {
            let group: Vec<TaskLine> = lines.values().await?;
            if group.is_empty() {
                return Ok(refill.finish().await?);
            }
            let corrupt = |reason: String| ImportError::corrupt(&self.folder.join(names::TASKS), reason);
            let mut finished = Vec::new();
            for line in group {
                let mut task = task::task(line).map_err(corrupt)?;
                check_order(&mut last, task.uid.0).map_err(|why| corrupt(format!("task {why}")))?;
                if task.status.is_finished() {
                    finished.push(Rc::new(task));
                    continue;
                }
                let payload = self.payload(&mut task).await?;
                refill.add(task, payload).await?;
            }
            store.commit(Changes { finished, ..Changes::default() }).await?;
        }
    }

    /// The documents that a waiting task is to add.
    async fn payload(&self, task: &mut Task) -> Result<Option<Vec<u8>>, ImportError> {
        let Content::DocumentAddition { received, payload_bytes, .. } = &mut task.content else { return Ok(None) };
        let path = self.folder.join(names::PAYLOADS).join(format!("{}.jsonl", task.uid.0));
        match read_file(&**self.runtime, &path).await? {
            Some(bytes) => {
                *payload_bytes = bytes.len() as u64;
                Ok(Some(bytes))
            }
            None if *received == 0 => Ok(Some(Vec::new())),
            None => Err(ImportError::corrupt(&path, "it is missing")),
        }
    }

    async fn required<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, ImportError> {
        let value = read_value(&**self.runtime, &self.folder.join(name)).await?;
        value.ok_or_else(|| self.missing(name))
    }

    async fn optional<T: serde::de::DeserializeOwned + Default>(&self, name: &str) -> Result<T, ImportError> {
        Ok(read_value(&**self.runtime, &self.folder.join(name)).await?.unwrap_or_default())
    }

    async fn lines(&self, name: &str) -> Result<Option<Lines>, ImportError> {
        Lines::open(self.runtime, self.folder.join(name)).await
    }

    fn missing(&self, name: &str) -> ImportError {
        ImportError::Corrupt { file: name.into(), reason: "it is missing".into() }
    }

    fn random_uuid(&self) -> Uuid {
        let (high, low) = (self.runtime.random_u64(), self.runtime.random_u64());
        Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()).into_uuid()
    }
}

/// Checks the number of a task or batch after that of the one before: numbers rise, and the store takes that of the next one from
/// the last.
fn check_order(last: &mut Option<u32>, uid: u32) -> Result<(), String> {
    if last.replace(uid) >= Some(uid) {
        return Err(format!("{uid} is not in order"));
    }
    if uid == u32::MAX {
        return Err(format!("{uid} leaves no number for the next"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_leave_one_for_the_next() {
        let all = |uids: &[u32]| {
            let mut last = None;
            uids.iter().all(|uid| check_order(&mut last, *uid).is_ok())
        };
        assert!(all(&[]) && all(&[0, 1, 7, u32::MAX - 1]));
        for wrong in [&[1, 1][..], &[2, 1], &[u32::MAX]] {
            assert!(!all(wrong), "{wrong:?}");
        }
    }
}
