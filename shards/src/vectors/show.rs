//! `_vectors` as readers see it.

use serde_json::{Map, Value};

use super::stored::PartitionVectors;
use crate::document::json::put_string;
use crate::document::names::VECTORS;
use crate::document::record::{RawDocument, Record};
use crate::fields::FieldsMap;
use crate::ids::{DocId, LocalDocId};
use crate::partition::PartitionError;

/// Appends a list of vectors, their numbers as 64-bit ones.
pub fn put_vectors<'v>(out: &mut Vec<u8>, vectors: impl Iterator<Item = &'v [f32]>) {
    out.push(b'[');
    for (at, vector) in vectors.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        put_vector(out, vector);
    }
    out.push(b']');
}

/// Appends one vector.
pub fn put_vector(out: &mut Vec<u8>, vector: &[f32]) {
    out.push(b'[');
    for (at, number) in vector.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let mut text = ryu::Buffer::new();
        out.extend_from_slice(text.format(f64::from(*number)).as_bytes());
    }
    out.push(b']');
}

/// One embedder's entry, as it is shown, stored in documents and written to dumps.
pub fn put_entry<'v>(out: &mut Vec<u8>, vectors: impl Iterator<Item = &'v [f32]>, regenerate: bool) {
    out.extend_from_slice(b"{\"embeddings\":");
    put_vectors(out, vectors);
    out.extend_from_slice(if regenerate { b",\"regenerate\":true}" } else { b",\"regenerate\":false}" });
}

/// What stands under `_vectors` of a document: for each embedder of the index its vectors, then what the document itself has
/// under other names (`stored`).
///
/// # Errors
/// [`PartitionError`].
pub async fn shown(
    vectors: &PartitionVectors,
    embedders: impl Iterator<Item = &String>,
    doc: LocalDocId,
    stored: Option<&[u8]>,
) -> Result<Vec<u8>, PartitionError> {
    let mut out = b"{".to_vec();
    for name in embedders {
        if out.len() > 1 {
            out.push(b',');
        }
        put_string(&mut out, name);
        out.push(b':');
        let of_embedder = vectors.get(name);
        let found = match of_embedder {
            Some(of) => of.numbered(doc.0).await?,
            None => Vec::new(),
        };
        let fixed = of_embedder.is_some_and(|of| of.fixed.contains(doc.0));
        put_entry(&mut out, found.iter().map(|(_, vector)| vector.as_slice()), !fixed);
    }
    let rest: Map<String, Value> = stored.and_then(|stored| serde_json::from_slice(stored).ok()).unwrap_or_default();
    for (name, value) in &rest {
        if out.len() > 1 {
            out.push(b',');
        }
        put_string(&mut out, name);
        out.push(b':');
        out.extend_from_slice(value.to_string().as_bytes());
    }
    out.push(b'}');
    Ok(out)
}

/// A document with its whole `_vectors`, where the index has such a field.
///
/// # Errors
/// [`PartitionError`].
pub async fn document(
    record: Record<'_>,
    names: &FieldsMap,
    vectors: &PartitionVectors,
    embedders: impl Iterator<Item = &String>,
    (number, doc): (DocId, LocalDocId),
) -> Result<RawDocument, PartitionError> {
    let mut document = record.to_raw(number);
    let Some(field) = names.id(VECTORS) else { return Ok(document) };
    let whole = shown(vectors, embedders, doc, document.get(field)).await?.into_boxed_slice();
    match document.fields.binary_search_by_key(&field, |(id, _)| *id) {
        Ok(at) => document.fields[at].1 = whole,
        Err(at) => document.fields.insert(at, (field, whole)),
    }
    Ok(document)
}
