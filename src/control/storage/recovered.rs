//! The contents of the control store at startup.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use storage_engine::ReadTree;
use uuid::Uuid;

use super::entry::{damaged, decode, failed, for_each, read};
use super::record::{self, FinishedSet, IndexEntry};
use crate::auth::ApiKey;
use crate::chats::Chats;
use crate::control::features::Features;
use crate::control::message::ControlError;
use crate::network::Network;
use crate::network::change::Steps;
use crate::search_rules::SearchRules;
use crate::tasks::batches::Batches;
use crate::tasks::queue::Queue;
use crate::webhooks::Webhooks;

/// What the store holds at the start.
#[derive(Default)]
pub struct Recovered {
    /// The finished tasks.
    pub queue: Queue,
    /// The finished batches.
    pub batches: Batches,
    /// The tasks that have ended, forgotten ones included.
    pub finished: FinishedSet,
    /// The uid of the next batch.
    pub next_batch: u32,
    /// The keys.
    pub keys: BTreeMap<Uuid, ApiKey>,
    /// The chat workspaces.
    pub chats: Chats,
    /// The topology of the network.
    pub network: Network,
    /// The webhooks.
    pub webhooks: Webhooks,
    /// The first batch that each webhook is owed.
    pub webhook_marks: BTreeMap<Uuid, u32>,
    /// The search rules.
    pub search_rules: SearchRules,
    /// The switches as stored.
    pub features: Features,
    /// The indexes by name.
    pub indexes: BTreeMap<String, IndexEntry>,
    /// Storage that is to be removed.
    pub dropping: Vec<Uuid>,
    /// The ended tasks that other instances have still to take.
    pub undelivered: RoaringBitmap,
    /// How far the change of the network under way is.
    pub network_steps: Option<Steps>,
}

impl Recovered {
    /// Reads everything that must be in memory.
    pub(super) fn read(snapshot: &impl ReadTree) -> Result<Self, ControlError> {
        let mut recovered = Self::default();
        recovered.read_meta(snapshot)?;
        recovered.read_ended(snapshot)?;
        recovered.read_keys_and_rules(snapshot)?;
        recovered.read_webhooks(snapshot)?;
        recovered.read_indexes(snapshot)?;
        Ok(recovered)
    }

    /// Reads what there is one of, the format first: nothing is understood of a later one.
    fn read_meta(&mut self, snapshot: &impl ReadTree) -> Result<(), ControlError> {
        let meta =
            |name: &[u8]| snapshot.get(record::META, name).map_err(|error| failed("reading the control store", error));
        if let Some(version) = meta(record::FORMAT)?
            && version != record::FORMAT_VERSION
        {
            let (found, known) = (String::from_utf8_lossy(version), String::from_utf8_lossy(record::FORMAT_VERSION));
            return Err(ControlError::Storage(format!(
                "the control store has format version {found}, this program reads version {known}; start the version of the program \
                 that wrote it, or start anew with a dump that it makes"
            )));
        }
        if let Some(bytes) = meta(record::FINISHED)? {
            self.finished = FinishedSet::from_bytes(bytes).ok_or_else(|| damaged("the set of finished tasks"))?;
        }
        if let Some(bytes) = meta(record::NEXT_BATCH)? {
            let bytes = bytes.try_into().map_err(|_| damaged("the number of the next batch"))?;
            self.next_batch = u32::from_be_bytes(bytes);
        }
        if let Some(bytes) = meta(record::UNDELIVERED)? {
            let undelivered = RoaringBitmap::deserialize_from(bytes);
            self.undelivered = undelivered.map_err(|_| damaged("the set of tasks on their way"))?;
        }
        self.network_steps = read(snapshot, record::META, record::NETWORK_STEPS)?;
        self.network = read(snapshot, record::META, record::NETWORK)?.unwrap_or_default();
        self.features = read(snapshot, record::META, record::FEATURES)?.unwrap_or_default();
        Ok(())
    }

    /// Reads the tasks and batches that have ended.
    fn read_ended(&mut self, snapshot: &impl ReadTree) -> Result<(), ControlError> {
        for_each(snapshot, record::TASKS, |_, value| {
            self.queue.insert(decode(value, "a task")?);
            Ok(())
        })?;
        for_each(snapshot, record::BATCHES, |_, value| {
            self.batches.insert(&decode(value, "a batch")?);
            Ok(())
        })?;
        Ok(())
    }

    /// Reads keys, chat workspaces and search rules.
    fn read_keys_and_rules(&mut self, snapshot: &impl ReadTree) -> Result<(), ControlError> {
        for_each(snapshot, record::KEYS, |_, value| {
            let key: ApiKey = decode(value, "a key")?;
            self.keys.insert(key.uid, key);
            Ok(())
        })?;
        for_each(snapshot, record::CHATS, |name, value| {
            let name = String::from_utf8(name.to_vec()).map_err(|_| damaged("the name of a chat workspace"))?;
            self.chats.insert(name, decode(value, "a chat workspace")?);
            Ok(())
        })?;
        for_each(snapshot, record::SEARCH_RULES, |_, value| {
            self.search_rules.insert(decode(value, "a search rule")?);
            Ok(())
        })?;
        Ok(())
    }

    /// Reads the webhooks, and how far each was told.
    fn read_webhooks(&mut self, snapshot: &impl ReadTree) -> Result<(), ControlError> {
        for_each(snapshot, record::WEBHOOKS, |uid, value| {
            let uid = Uuid::from_slice(uid).map_err(|_| damaged("the uid of a webhook"))?;
            self.webhooks.insert(uid, decode(value, "a webhook")?);
            Ok(())
        })?;
        for_each(snapshot, record::WEBHOOK_MARKS, |uid, value| {
            let uid = Uuid::from_slice(uid).map_err(|_| damaged("the uid of a webhook"))?;
            let next = value.try_into().map_err(|_| damaged("how far a webhook was told"))?;
            self.webhook_marks.insert(uid, u32::from_be_bytes(next));
            Ok(())
        })?;
        Ok(())
    }

    /// Reads the indexes, and what is left of removed ones.
    fn read_indexes(&mut self, snapshot: &impl ReadTree) -> Result<(), ControlError> {
        for_each(snapshot, record::INDEXES, |name, value| {
            let name = String::from_utf8(name.to_vec()).map_err(|_| damaged("the name of an index"))?;
            self.indexes.insert(name, decode(value, "the entry of an index")?);
            Ok(())
        })?;
        for_each(snapshot, record::DROPPING, |id, _| {
            self.dropping.push(Uuid::from_slice(id).map_err(|_| damaged("the id of an index"))?);
            Ok(())
        })?;
        Ok(())
    }
}
