//! What happens to a partition's vectors and documents when embedders are added, changed or removed.

use std::collections::BTreeSet;

use roaring::RoaringBitmap;
use serde_json::{Map, Value};
use storage_engine::{ReadTree, WriteTxn};

use super::change::{self, is_quantized, is_user_provided};
use super::sent;
use super::show::put_entry;
use super::stored::EmbedderVectors;
use super::work::{Known, missing};
use super::writer::VectorsWriter;
use crate::document::primary_key::KeyFinder;
use crate::document::record::{Record, put_record};
use crate::error::UserError;
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::partition::PartitionError;
use crate::partition::trees::DOCUMENTS;
use crate::runtime::Checkpoint;
use crate::settings::Settings;
use crate::settings::embedder::{EmbedderConfig, Reembedding};

/// Whether a change of settings touches the vectors of documents.
pub fn is_needed(before: &Settings, now: &Settings) -> bool {
    before.embedders != now.embedders
        || (change::searchable_change(before, now) && now.embedders.values().any(change::uses_template))
}

/// What tells the ids of documents.
#[derive(Clone, Copy)]
pub struct DocumentIds<'s> {
    /// The index's names.
    pub names: &'s FieldsMap,
    /// The primary key; empty where there is none.
    pub key: &'s str,
}

/// The names that come and go.
struct Difference<'s> {
    added: BTreeSet<&'s String>,
    removed: BTreeSet<&'s String>,
}

/// Goes from the embedders of `before` to those of `now`. `documents` are all of the partition. Answers by how many bytes the
/// records grew.
///
/// # Errors
/// `invalid_vectors_type`, `invalid_vector_dimensions` and `vector_embedding_error` for what documents have stored under the name
/// of a new embedder, and failures of files.
pub async fn resettle(
    writer: &mut VectorsWriter,
    txn: &mut WriteTxn,
    documents: &RoaringBitmap,
    (before, now): (&Settings, &Settings),
    ids: DocumentIds<'_>,
) -> Result<i64, PartitionError> {
    let missing_in = |other: &Settings, name: &&String| !other.embedders.contains_key(*name);
    let difference = Difference {
        added: now.embedders.keys().filter(|name| missing_in(before, name)).collect(),
        removed: before.embedders.keys().filter(|name| missing_in(now, name)).collect(),
    };
    let mut grown = 0;
    if !difference.added.is_empty() || !difference.removed.is_empty() {
        grown = move_entries(writer, txn, documents, &difference, ids).await?;
    }
    let runtime = writer.runtime().clone();
    let (works, mut maker) = writer.parts();
    for (name, work) in works {
        let Some(old) = before.embedders.get(name) else { continue };
        let embedder = work.embedder.clone();
        if is_quantized(&embedder) && !is_quantized(old) {
            work.quantize(maker.again()).await?;
        }
        if is_user_provided(&embedder) {
            // Nobody makes the vectors any more that these documents are to get.
            if !is_user_provided(old) && !work.regenerated(documents).is_empty() {
                return Err(work.missing().into());
            }
            continue;
        }
        let by_fields = change::searchable_change(before, now) && change::uses_template(&embedder);
        match EmbedderConfig::of(&embedder).reembedding(&EmbedderConfig::of(old)) {
            Reembedding::All => work.wanted.forced |= work.regenerated(documents),
            Reembedding::Nothing if !by_fields => {}
            Reembedding::Fragments { changed, removed } => {
                if !removed.is_empty() {
                    work.drop_stale_slots(maker.again()).await?;
                }
                if !changed.is_empty() {
                    work.wanted.recheck |= work.regenerated(documents);
                }
            }
            Reembedding::Nothing | Reembedding::ChangedTexts => work.wanted.recheck |= work.regenerated(documents),
        }
        Checkpoint::default().look(&*runtime).await;
    }
    Ok(grown)
}

/// Takes the entries of new embedders out of the documents, and puts the vectors that came with documents back into them where an
/// embedder goes.
async fn move_entries(
    writer: &mut VectorsWriter,
    txn: &mut WriteTxn,
    documents: &RoaringBitmap,
    difference: &Difference<'_>,
    ids: DocumentIds<'_>,
) -> Result<i64, PartitionError> {
    // The name is known to the index as soon as it has an embedder.
    let Some(field) = writer.field() else { return Ok(0) };
    let mut checkpoint = Checkpoint::default();
    let (mut grown, mut refused) = (0, None);
    for doc in documents {
        let key = doc.to_be_bytes();
        let bytes = txn.get(DOCUMENTS, &key)?.ok_or(PartitionError::Damaged("set of documents"))?.to_vec();
        let record = Record::parse(&bytes)?;
        let stored = record.get(field);
        let mut members: Map<String, Value> =
            stored.and_then(|stored| serde_json::from_slice(stored).ok()).unwrap_or_default();
        let id = || KeyFinder::new(ids.key).id(record.fields(), ids.names).unwrap_or_default();
        let mut moved = take_entries(writer, (doc, &id), &mut members, difference, &mut refused).await?;
        moved |= give_entries(writer, doc, &mut members, difference).await?;
        if moved {
            let members = (!members.is_empty()).then(|| Value::Object(members).to_string().into_bytes());
            let record = with_field(record, field, members.as_deref());
            grown += record.len() as i64 - bytes.len() as i64;
            txn.put(DOCUMENTS, &key, &record)?;
        }
        checkpoint.tick(&**writer.runtime()).await;
    }
    refused.map_or(Ok(grown), |error| Err(error.into()))
}

/// Makes vectors of what a document has stored for new embedders; true when there was any. Of what is wrong with documents, `refused`
/// is what sorts first, so that it does not depend on the number of partitions; wrong lengths sort before vectors that are missing.
async fn take_entries(
    writer: &mut VectorsWriter,
    (doc, id): (u32, &dyn Fn() -> String),
    members: &mut Map<String, Value>,
    difference: &Difference<'_>,
    refused: &mut Option<UserError>,
) -> Result<bool, PartitionError> {
    let mut refuse = |error: UserError| *refused = Some(error.or_sooner(refused.take()));
    let mut moved = false;
    let (works, mut maker) = writer.parts();
    for name in &difference.added {
        let Some(work) = works.get_mut(*name) else { continue };
        let entry = match members.shift_remove(*name) {
            None => None,
            Some(stored) => {
                moved = true;
                let dimensions = work.state.facts.dimensions;
                let entry = sent::entry(&stored.to_string(), true)
                    .map_err(|why| UserError::new("invalid_vectors_type", why))
                    .and_then(|entry| sent::check_dimensions(&entry, dimensions, name, &id()).map(|()| entry));
                match entry {
                    Ok(entry) => Some(entry),
                    Err(error) => {
                        refuse(error);
                        continue;
                    }
                }
            }
        };
        let wanted = work.apply(doc, entry, Known { is_new: true, changed: true }, maker.again()).await?;
        if wanted && work.is_user_provided() {
            refuse(missing(name, Some(&id())));
        }
    }
    Ok(moved)
}

/// Puts what came with a document for embedders that go back into it; true when there was any. Vectors that were to be made
/// anew with each change of the document go with their embedder.
async fn give_entries(
    writer: &VectorsWriter,
    doc: u32,
    members: &mut Map<String, Value>,
    difference: &Difference<'_>,
) -> Result<bool, PartitionError> {
    let mut moved = false;
    for name in &difference.removed {
        let is_kept = |vectors: &&EmbedderVectors| vectors.user.contains(doc) && vectors.fixed.contains(doc);
        let Some(vectors) = writer.before.get(name).filter(is_kept) else { continue };
        let found = vectors.numbered(doc).await?;
        let mut json = Vec::new();
        put_entry(&mut json, found.iter().map(|(_, vector)| vector.as_slice()), false);
        let value = serde_json::from_slice(&json).map_err(|_| PartitionError::Damaged("vector"))?;
        members.insert((*name).clone(), value);
        moved = true;
    }
    Ok(moved)
}

/// A record with another value of a field, or without the field.
fn with_field(record: Record<'_>, field: FieldId, value: Option<&[u8]>) -> Vec<u8> {
    let mut fields: Vec<(FieldId, &[u8])> = record.fields().filter(|(id, _)| *id != field).collect();
    if let Some(value) = value {
        let at = fields.partition_point(|(id, _)| *id < field);
        fields.insert(at, (field, value));
    }
    let mut out = Vec::new();
    put_record(&mut out, fields.iter().copied());
    out
}
