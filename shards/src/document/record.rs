//! The stored form of a document.
//!
//! ```text
//! varint n               fields
//! n x (varint, varint)   FieldId and length of the value, rising by FieldId
//! n values               canonical JSON text
//! ```
//!
//! Fields are in the order in which the index first met their names, which is the order in which answers show them.

use crate::document::json::put_string;
use crate::fields::FieldsMap;
use crate::ids::{DocId, FieldId};
use crate::text::postings::{put_varint, take_varint};
use crate::vectors::sent::merge_kept;

/// A document as the index keeps it: its top-level fields in the index's order, each with its JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDocument {
    /// The document's number.
    pub doc: DocId,
    /// Field and value, rising by field.
    pub fields: Vec<(FieldId, Box<[u8]>)>,
}

/// A stored document, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    count: u32,
    heads: &'a [u8],
    values: &'a [u8],
}

/// The stored bytes are not a record: the file was damaged in a way that page checksums did not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("document record is damaged")]
pub struct DamagedRecord;

impl<'a> Record<'a> {
    /// Reads the head of a record and checks that its parts fit.
    pub fn parse(mut bytes: &'a [u8]) -> Result<Self, DamagedRecord> {
        let count = take_varint(&mut bytes).ok_or(DamagedRecord)?;
        let heads = bytes;
        let mut total = 0usize;
        for _ in 0..count {
            take_varint(&mut bytes).filter(|field| *field <= u32::from(u16::MAX)).ok_or(DamagedRecord)?;
            total += take_varint(&mut bytes).ok_or(DamagedRecord)? as usize;
        }
        let heads = &heads[..heads.len() - bytes.len()];
        if total == bytes.len() { Ok(Self { count, heads, values: bytes }) } else { Err(DamagedRecord) }
    }

    /// How many fields the document has.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Bytes of names' numbers, lengths and values.
    pub fn byte_len(&self) -> usize {
        self.heads.len() + self.values.len()
    }

    /// Whether the document has no field.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The fields with their JSON text, rising by field.
    pub fn fields(&self) -> RecordFields<'a> {
        RecordFields { heads: self.heads, values: self.values }
    }

    /// The JSON text of one field.
    pub fn get(&self, field: FieldId) -> Option<&'a [u8]> {
        self.fields().find(|(id, _)| *id == field).map(|(_, value)| value)
    }

    /// A copy with its own bytes.
    pub fn to_raw(&self, doc: DocId) -> RawDocument {
        RawDocument { doc, fields: self.fields().map(|(field, value)| (field, value.into())).collect() }
    }

    /// Appends the document as a JSON object.
    pub fn write_json(&self, names: &FieldsMap, out: &mut Vec<u8>) {
        write_fields(self.fields(), names, out);
    }
}

/// The fields of a record, see [`Record::fields`].
#[derive(Clone, Debug)]
pub struct RecordFields<'a> {
    heads: &'a [u8],
    values: &'a [u8],
}

impl<'a> Iterator for RecordFields<'a> {
    type Item = (FieldId, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let field = FieldId(take_varint(&mut self.heads)? as u16);
        let len = take_varint(&mut self.heads)?;
        let (value, rest) = self.values.split_at_checked(len as usize)?;
        self.values = rest;
        Some((field, value))
    }
}

impl RawDocument {
    /// The JSON text of one field.
    pub fn get(&self, field: FieldId) -> Option<&[u8]> {
        let at = self.fields.binary_search_by_key(&field, |(id, _)| *id).ok()?;
        Some(&self.fields[at].1)
    }

    /// Appends the document as a JSON object.
    pub fn write_json(&self, names: &FieldsMap, out: &mut Vec<u8>) {
        write_fields(self.fields.iter().map(|(field, value)| (*field, value.as_ref())), names, out);
    }
}

/// Appends fields as a JSON object.
pub fn write_fields<'v>(fields: impl Iterator<Item = (FieldId, &'v [u8])>, names: &FieldsMap, out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (field, value)) in fields.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        put_string(out, names.name(field).unwrap_or_default());
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.push(b'}');
}

/// Appends a record. `fields` must rise by field.
pub fn put_record<'v>(out: &mut Vec<u8>, fields: impl ExactSizeIterator<Item = (FieldId, &'v [u8])> + Clone) {
    put_varint(out, fields.len() as u32);
    for (field, value) in fields.clone() {
        put_varint(out, u32::from(field.0));
        put_varint(out, value.len() as u32);
    }
    for (_, value) in fields {
        out.extend_from_slice(value);
    }
}

/// Appends the record of `old` with the fields of `new` put in place of its own. Of `vectors`, the field of `_vectors`, the
/// members are put in place one by one: what was kept under names that `new` does not have stays.
pub fn put_merged(out: &mut Vec<u8>, old: Record<'_>, new: Record<'_>, vectors: Option<FieldId>) {
    let both = vectors.and_then(|field| Some(merge_kept(old.get(field)?, new.get(field)?)));
    let mut old = old.fields().peekable();
    let mut fields: smallvec::SmallVec<[(FieldId, &[u8]); 16]> = smallvec::SmallVec::new();
    for (field, value) in new.fields() {
        while let Some(earlier) = old.next_if(|(id, _)| *id < field) {
            fields.push(earlier);
        }
        old.next_if(|(id, _)| *id == field);
        let value = if Some(field) == vectors { both.as_deref().unwrap_or(value) } else { value };
        fields.push((field, value));
    }
    fields.extend(old);
    put_record(out, fields.iter().copied());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Model = BTreeMap<u16, Vec<u8>>;

    fn record(model: &Model) -> Vec<u8> {
        let mut out = Vec::new();
        put_record(&mut out, model.iter().map(|(field, value)| (FieldId(*field), value.as_slice())));
        out
    }

    fn model() -> impl Strategy<Value = Model> {
        prop::collection::btree_map(0..300u16, prop::collection::vec(any::<u8>(), 0..200), 0..8)
    }

    fn read(bytes: &[u8]) -> Model {
        Record::parse(bytes).unwrap().fields().map(|(field, value)| (field.0, value.to_vec())).collect()
    }

    proptest! {
        #[test]
        fn merging_is_that_of_maps(old in model(), new in model()) {
            let (old_bytes, new_bytes) = (record(&old), record(&new));
            prop_assert_eq!(read(&old_bytes), old.clone());
            let mut merged = Vec::new();
            put_merged(&mut merged, Record::parse(&old_bytes).unwrap(), Record::parse(&new_bytes).unwrap(), None);
            let mut expected = old;
            expected.extend(new);
            prop_assert_eq!(merged, record(&expected));
        }

        #[test]
        fn damaged_records_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(record) = Record::parse(&bytes) {
                prop_assert_eq!(record.fields().count(), record.len());
            }
        }
    }

    /// `_vectors` holds what was sent for embedders that there are not yet. An update that brings vectors for one of them
    /// must leave those for the others.
    #[test]
    fn members_of_vectors_are_merged_one_by_one() {
        let of =
            |fields: &[(u16, &str)]| record(&fields.iter().map(|(id, text)| (*id, text.as_bytes().into())).collect());
        let old = of(&[(1, r#"{"a":[1],"b":[2.50]}"#), (2, r#"{"x":1}"#)]);
        let new = of(&[(1, r#"{"b":[],"c":{"regenerate":true,"embeddings":null}}"#), (2, r#"{"y":2}"#)]);
        let mut merged = Vec::new();
        put_merged(&mut merged, Record::parse(&old).unwrap(), Record::parse(&new).unwrap(), Some(FieldId(1)));
        let both = r#"{"a":[1],"b":[],"c":{"regenerate":true,"embeddings":null}}"#;
        assert_eq!(merged, of(&[(1, both), (2, r#"{"y":2}"#)]));
        // Without `_vectors` on one side there is nothing to merge.
        let plain = of(&[(2, "3")]);
        merged.clear();
        put_merged(&mut merged, Record::parse(&old).unwrap(), Record::parse(&plain).unwrap(), Some(FieldId(1)));
        assert_eq!(merged, of(&[(1, r#"{"a":[1],"b":[2.50]}"#), (2, "3")]));
    }

    #[test]
    fn documents_are_written_by_splicing() {
        let mut names = FieldsMap::default();
        let (a, b) = (names.insert("a\"").unwrap(), names.insert("b").unwrap());
        let mut bytes = Vec::new();
        put_record(&mut bytes, [(a, b"1".as_slice()), (b, b"[null]")].into_iter());
        let (record, mut out) = (Record::parse(&bytes).unwrap(), Vec::new());
        record.write_json(&names, &mut out);
        assert_eq!(out, br#"{"a\"":1,"b":[null]}"#);
        assert_eq!(record.to_raw(DocId(0)).get(b), Some(b"[null]".as_slice()));
        assert_eq!(record.get(FieldId(9)), None);
    }
}
