//! Writes the bytes of hits.

use std::sync::{Arc, OnceLock};

use super::hybrid;
use super::part::{Pacer, SearchPartition};
use crate::format::{FormatPlan, HitExtras, HitWriter};
use crate::ids::{FieldId, LocalDocId};
use crate::text::segmenter;

/// Hits of documents with more bytes than this are marked up on a thread of their own: these take two to six milliseconds.
const LONG_HIT_BYTES: usize = 16 << 10;

/// Appends a hit, unless it is a long one that must be marked up: that is given back.
pub(super) async fn write_hit(
    partition: &dyn SearchPartition,
    (plan, pacer): (&Arc<FormatPlan>, &dyn Pacer),
    doc: LocalDocId,
    extras: HitExtras,
    out: &mut Vec<u8>,
) -> Result<Option<Vec<u8>>, String> {
    let vectors = if plan.vectors { Box::pin(hybrid::part::shown(partition, doc)).await? } else { None };
    let mut extras = HitExtras { vectors, ..extras };
    let mut long: Option<Vec<(FieldId, Vec<u8>)>> = None;
    partition.with_record(doc, &mut |fields| {
        let bytes: usize = fields.iter().map(|(_, value)| value.len()).sum();
        let is_long = || bytes > LONG_HIT_BYTES || fields.iter().any(|(_, value)| segmenter::must_be_loaded(value));
        if plan.marks_up() && is_long() {
            long = Some(fields.iter().map(|(field, value)| (*field, value.to_vec())).collect());
            return;
        }
        let writer = HitWriter::new(plan, partition.fields(), partition.cutter());
        writer.write(fields.iter().copied(), std::mem::take(&mut extras), out);
    })?;
    match long {
        Some(fields) => Box::pin(write_long_hit(partition, (plan, pacer), fields, extras)).await.map(Some),
        None => Ok(None),
    }
}

/// Marks up a long document on another thread.
async fn write_long_hit(
    partition: &dyn SearchPartition,
    (plan, pacer): (&Arc<FormatPlan>, &dyn Pacer),
    fields: Vec<(FieldId, Vec<u8>)>,
    extras: HitExtras,
) -> Result<Vec<u8>, String> {
    let (plan, names, cutter) = (plan.clone(), partition.fields().clone(), partition.cutter_aside());
    let written = Arc::new(OnceLock::new());
    let place = written.clone();
    let job = Box::new(move || {
        let mut hit = Vec::new();
        let fields = fields.iter().map(|(field, value)| (*field, value.as_slice()));
        HitWriter::new(&plan, &names, &*cutter).write(fields, extras, &mut hit);
        let _ = place.set(hit);
    });
    pacer.aside(job).await?;
    let hit = Arc::into_inner(written).and_then(OnceLock::into_inner);
    hit.ok_or_else(|| "a long document was not written".into())
}
