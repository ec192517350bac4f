//! The catalog of an index: everything about it that is not a document, at one epoch.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use storage_engine::{ReadError, ReadTree, WriteTxn};

use super::numbers::DocNumbers;
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::partition::PartitionError;
use crate::partition::trees::{FIELDS, META};
use crate::partition::writer::PartitionDelta;
use crate::settings::Settings;
use crate::text::postings::{put_varint, take_varint};
use crate::timestamp::Timestamp;
use crate::vectors::{EmbedderStates, VectorSums};

const HEAD_KEY: &[u8] = b"catalog";
const SETTINGS_KEY: &[u8] = b"settings";
const FREE_KEY: &[u8] = b"free-numbers";
const EMBEDDERS_KEY: &[u8] = b"embedders";
const RECORD_KEY: &[u8] = b"record";
/// Version of the catalog's layout.
const VERSION: u32 = 1;

/// Why a catalog cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// Another version of the program wrote it.
    #[error(
        "the catalog of the index has format version {found}, this program reads version {VERSION}; start the version of the \
         program that wrote it, or start anew with a dump that it makes"
    )]
    Version {
        /// Its format version.
        found: u64,
    },
    /// A part of it is not there, or is not what is written there.
    #[error("the catalog of the index is damaged ({part} cannot be read); restore the index from a dump or a replica")]
    Damaged {
        /// Which part.
        part: &'static str,
    },
    /// A page is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl CatalogError {
    /// With the file that holds the catalog.
    pub fn of_file(self, path: &Path) -> PartitionError {
        match self {
            Self::Read(error) => error.into(),
            fault => PartitionError::Catalog { file: path.display().to_string(), fault },
        }
    }
}

/// What of the head is understood of any version.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

/// The catalog in memory.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// The field (a dotted path) that identifies documents.
    pub primary_key: Option<String>,
    /// Complete settings.
    pub settings: Arc<Settings>,
    /// All names.
    pub fields: Arc<FieldsMap>,
    /// By field number: documents that have it at top level.
    pub distribution: Vec<u64>,
    /// Numbers of documents.
    pub numbers: DocNumbers,
    /// When the index was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// By partition; never empty.
    pub sums: Vec<PartitionSums>,
    /// Bytes of all records.
    pub raw_bytes: u64,
    /// What is known of the embedders of the settings.
    pub embedders: Arc<EmbedderStates>,
}

/// What the catalog knows of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionSums {
    /// Its documents.
    pub documents: u64,
    /// Those with coordinates.
    pub geo_points: u64,
    /// Its vectors.
    #[serde(default)]
    pub embeddings: u64,
    /// Those of its documents that have vectors.
    #[serde(default)]
    pub embedded: u64,
}

/// The stored form of what changes with every batch.
#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
    primary_key: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    next_number: u32,
    sums: Vec<PartitionSums>,
    raw_bytes: u64,
}

impl Catalog {
    /// The catalog of a new index.
    pub fn new(partition_count: u16, created_at: Timestamp) -> Self {
        Self {
            primary_key: None,
            settings: Arc::default(),
            fields: Arc::default(),
            distribution: Vec::new(),
            numbers: DocNumbers::default(),
            created_at,
            updated_at: created_at,
            sums: vec![PartitionSums::default(); usize::from(partition_count)],
            raw_bytes: 0,
            embedders: Arc::default(),
        }
    }

    /// How many partitions the index has.
    pub fn partition_count(&self) -> u16 {
        self.sums.len() as u16
    }

    /// Documents in all partitions.
    pub fn documents(&self) -> u64 {
        self.sums.iter().map(|sums| sums.documents).sum()
    }

    /// Documents with coordinates in all partitions.
    pub fn geo_points(&self) -> u64 {
        self.sums.iter().map(|sums| sums.geo_points).sum()
    }

    /// Vectors, and documents with vectors, in all partitions.
    pub fn vectors(&self) -> VectorSums {
        let sum = |of: fn(&PartitionSums) -> u64| self.sums.iter().map(of).sum();
        VectorSums { embeddings: sum(|sums| sums.embeddings), documents: sum(|sums| sums.embedded) }
    }

    /// Documents by top-level name; names without documents are left out.
    pub fn field_distribution(&self) -> BTreeMap<String, u64> {
        let counted = self.fields.iter().zip(&self.distribution).filter(|(_, count)| **count > 0);
        counted.map(|((_, name), count)| (name.to_owned(), *count)).collect()
    }

    /// Adds what a batch changed in one partition.
    pub fn add_delta(&mut self, partition: usize, delta: &PartitionDelta) {
        self.sums[partition] = PartitionSums {
            documents: delta.documents,
            geo_points: delta.geo_points,
            embeddings: delta.vectors.embeddings,
            embedded: delta.vectors.documents,
        };
        self.raw_bytes = self.raw_bytes.saturating_add_signed(delta.raw_bytes);
        if self.distribution.len() < delta.distribution.len() {
            self.distribution.resize(delta.distribution.len(), 0);
        }
        for (count, change) in self.distribution.iter_mut().zip(&delta.distribution) {
            *count = count.saturating_add_signed(*change);
        }
    }

    /// Reads the catalog; `None` when the file holds none.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn load(store: &dyn ReadTree) -> Result<Option<Self>, CatalogError> {
        let damaged = |part| move || CatalogError::Damaged { part };
        let Some(head) = store.get(META, HEAD_KEY)? else { return Ok(None) };
        let Versioned { version } = json(head, "its head")?;
        if version != u64::from(VERSION) {
            return Err(CatalogError::Version { found: version });
        }
        let head: Head = json(head, "its head")?;
        if head.sums.is_empty() {
            return Err(damaged("its list of partitions")());
        }
        let settings = store.get(META, SETTINGS_KEY)?.ok_or_else(damaged("its settings"))?;
        let embedders = match store.get(META, EMBEDDERS_KEY)? {
            Some(stored) => json(stored, "its list of embedders")?,
            None => EmbedderStates::new(),
        };
        let free = store.get(META, FREE_KEY)?.map(RoaringBitmap::deserialize_from);
        let (mut fields, mut distribution) = (FieldsMap::default(), Vec::new());
        let mut cursor = store.cursor(FIELDS);
        let of_fields = damaged("its list of fields");
        while let Some((_, mut value)) = cursor.next()? {
            distribution.push(u64::from(take_varint(&mut value).ok_or_else(of_fields)?));
            let name = std::str::from_utf8(value).map_err(|_| of_fields())?;
            fields.insert(name).ok_or_else(of_fields)?;
        }
        if fields.len() != distribution.len() {
            return Err(of_fields());
        }
        let free = free.transpose().map_err(|_| damaged("its set of free numbers")())?;
        Ok(Some(Self {
            primary_key: head.primary_key,
            settings: Arc::new(json(settings, "its settings")?),
            fields: Arc::new(fields),
            distribution,
            numbers: DocNumbers { next: head.next_number, free: free.unwrap_or_default() },
            created_at: head.created_at,
            updated_at: head.updated_at,
            sums: head.sums,
            raw_bytes: head.raw_bytes,
            embedders: Arc::new(embedders),
        }))
    }

    /// Writes what differs from `before` (everything when there was nothing).
    pub fn store(&self, before: Option<&Self>, txn: &mut WriteTxn) -> Result<(), PartitionError> {
        let head = Head {
            version: VERSION,
            primary_key: self.primary_key.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            next_number: self.numbers.next,
            sums: self.sums.clone(),
            raw_bytes: self.raw_bytes,
        };
        let unwritable = |_| PartitionError::Damaged("catalog");
        txn.put(META, HEAD_KEY, &serde_json::to_vec(&head).map_err(unwritable)?)?;
        if before.is_none_or(|before| before.settings != self.settings) {
            txn.put(META, SETTINGS_KEY, &serde_json::to_vec(&*self.settings).map_err(unwritable)?)?;
        }
        if before.is_none_or(|before| before.embedders != self.embedders) {
            txn.put(META, EMBEDDERS_KEY, &serde_json::to_vec(&*self.embedders).map_err(unwritable)?)?;
        }
        if before.is_none_or(|before| before.numbers.free != self.numbers.free) {
            let mut bytes = Vec::new();
            // Writing to memory does not fail.
            let _ = self.numbers.free.serialize_into(&mut bytes);
            txn.put(META, FREE_KEY, &bytes)?;
        }
        let count = |catalog: &Self, at: usize| catalog.distribution.get(at).copied().unwrap_or(0);
        for (FieldId(field), name) in self.fields.iter() {
            let at = usize::from(field);
            let stored = before.is_some_and(|b| at < b.fields.len() && count(b, at) == count(self, at));
            if !stored {
                let mut value = Vec::with_capacity(name.len() + 5);
                put_varint(&mut value, count(self, at) as u32);
                value.extend_from_slice(name.as_bytes());
                txn.put(FIELDS, &field.to_be_bytes(), &value)?;
            }
        }
        Ok(())
    }
}

/// A part of the catalog that is JSON.
fn json<'b, T: Deserialize<'b>>(bytes: &'b [u8], part: &'static str) -> Result<T, CatalogError> {
    serde_json::from_slice(bytes).map_err(|_| CatalogError::Damaged { part })
}

/// The record that the last commit was made with.
pub fn load_record(store: &dyn ReadTree) -> Result<Option<Vec<u8>>, PartitionError> {
    Ok(store.get(META, RECORD_KEY)?.map(<[u8]>::to_vec))
}

/// Puts a commit's record.
pub fn store_record(txn: &mut WriteTxn, record: &[u8]) -> Result<(), PartitionError> {
    Ok(txn.put(META, RECORD_KEY, record)?)
}
