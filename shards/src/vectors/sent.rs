//! `_vectors` as documents bring it: checked, its numbers read once, and taken apart into what goes to the vectors and what stays
//! in the document.
//!
//! What goes to the vectors travels as bytes, one entry after another, by rising name:
//!
//! ```text
//! varint, bytes          the embedder's name
//! u8                     1: vectors are given, 2: regenerate, or both
//! if vectors are given:
//! varint, varint         vectors, numbers in each
//! f32 (little endian)    all numbers
//! ```

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{EmbedderFacts, numbers};
use crate::document::json::{JsonReader, Unnamed, put_string};
use crate::error::UserError;
use crate::partition::PartitionError;
use crate::text::postings::{put_varint, take_varint};

/// Vectors of one document for one embedder that are kept; further ones are dropped.
pub const VECTORS_MAX: usize = 256;

const GIVEN: u8 = 1;
const REGENERATE: u8 = 2;

/// What is kept of an index's embedders, by name.
pub type Embedders = BTreeMap<String, EmbedderFacts>;

/// What a document says about one embedder.
#[derive(Clone, Debug, PartialEq)]
pub struct SentEntry {
    /// The vectors that come with the document (none: it shall have none); `None` when it says nothing about them.
    pub vectors: Option<Vec<Vec<f32>>>,
    /// Whether they are to be generated again.
    pub regenerate: bool,
}

/// `_vectors` of one document, taken apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentVectors {
    /// For embedders of the index, as bytes.
    pub entries: Vec<u8>,
    /// The JSON object of the other entries; `None` when there are none.
    pub rest: Option<Vec<u8>>,
}

/// Takes apart the value of `_vectors` in the document `id`.
///
/// # Errors
/// `invalid_vectors_type`, `invalid_vector_dimensions`; `internal` where the value is no object, as the interface has it.
pub fn read(json: &[u8], embedders: &Embedders, id: &str) -> Result<SentVectors, UserError> {
    let Ok(members) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(json) else {
        let message = format!("The `_vectors` field in the document with the id: `{id}` is not an object.");
        return Err(UserError::new("internal", message));
    };
    let (mut sent, mut wrong_length) = (SentVectors::default(), None);
    for (name, value) in members {
        let parsed = entry(value.get(), embedders.contains_key(&name)).map_err(|why| {
            let message =
                format!("Bad embedder configuration in the document with id: `{id}`. `_vectors.{name}` {why}");
            UserError::new("invalid_vectors_type", message)
        })?;
        match embedders.get(&name) {
            Some(facts) => {
                // The form of all entries is looked at before the length of any.
                wrong_length = wrong_length.or(check_dimensions(&parsed, facts.dimensions, &name, id).err());
                put_entry(&mut sent.entries, &name, &parsed);
            }
            None => put_rest(sent.rest.get_or_insert_with(|| b"{".to_vec()), &name, value.get()),
        }
    }
    if let Some(rest) = &mut sent.rest {
        rest.push(b'}');
    }
    wrong_length.map_or(Ok(sent), Err)
}

/// Checks the length of vectors that a document brings.
///
/// # Errors
/// `invalid_vector_dimensions`.
pub fn check_dimensions(entry: &SentEntry, dimensions: u32, name: &str, id: &str) -> Result<(), UserError> {
    let wrong = |vector: &&Vec<f32>| vector.len() != dimensions as usize;
    let Some(vector) = entry.vectors.iter().flatten().find(wrong) else { return Ok(()) };
    let message = format!(
        "Invalid vector dimensions in document with id `{id}` in `._vectors.{name}`: expected {dimensions}, found {}.",
        vector.len()
    );
    Err(UserError::new("invalid_vector_dimensions", message))
}

/// Reads the JSON of one entry. The vectors of an entry that is not `wanted` are not looked at.
pub fn entry(json: &str, wanted: bool) -> Result<SentEntry, String> {
    let given = |vectors| SentEntry { vectors: Some(vectors), regenerate: false };
    match json.as_bytes().first() {
        Some(b'n') => Ok(given(Vec::new())),
        Some(b'[') if wanted => Ok(given(lists(json)?)),
        Some(b'[') => Ok(given(Vec::new())),
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(json).map_err(|error| error.to_string())?;
            let shape = || "must have `regenerate` (a boolean), and nothing else but `embeddings`.".to_owned();
            let mut entry = SentEntry { vectors: None, regenerate: false };
            let mut complete = false;
            for (name, value) in members {
                match (name.as_str(), value.get()) {
                    ("regenerate", "true" | "false") => {
                        entry.regenerate = value.get() == "true";
                        complete = true;
                    }
                    ("embeddings", "null") => {}
                    ("embeddings", list) if list.starts_with('[') && wanted => entry.vectors = Some(lists(list)?),
                    ("embeddings", _) if !wanted => entry.vectors = Some(Vec::new()),
                    _ => return Err(shape()),
                }
            }
            if complete { Ok(entry) } else { Err(shape()) }
        }
        _ => Err("is neither a vector, nor a list of vectors, nor an object.".to_owned()),
    }
}

/// One vector, or a list of vectors.
fn lists(json: &str) -> Result<Vec<Vec<f32>>, String> {
    let wrong = || "is neither a vector nor a list of vectors.".to_owned();
    let nested = json[1..].trim_start().starts_with('[');
    let mut found: Vec<Vec<f32>> = match numbers::lists(json.as_bytes()) {
        Some(lists) => lists,
        None if nested => serde_json::from_str(json).map_err(|_| wrong())?,
        None => vec![serde_json::from_str(json).map_err(|_| wrong())?],
    };
    if !nested {
        found.retain(|vector| !vector.is_empty());
    }
    if found.iter().flatten().any(|number| !number.is_finite()) {
        return Err("holds a number that is too large.".to_owned());
    }
    found.truncate(VECTORS_MAX);
    Ok(found)
}

fn put_entry(out: &mut Vec<u8>, name: &str, entry: &SentEntry) {
    put_varint(out, name.len() as u32);
    out.extend_from_slice(name.as_bytes());
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(flag(entry.vectors.is_some(), GIVEN) | flag(entry.regenerate, REGENERATE));
    if let Some(vectors) = &entry.vectors {
        put_varint(out, vectors.len() as u32);
        put_varint(out, vectors.first().map_or(0, Vec::len) as u32);
        vectors.iter().flatten().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }
}

/// Appends a member that stays in the document. Entries without vectors are written as the interface shows them.
fn put_rest(out: &mut Vec<u8>, name: &str, json: &str) {
    if out.len() > 1 {
        out.push(b',');
    }
    put_string(out, name);
    out.push(b':');
    match json.as_bytes().first() {
        Some(b'n') => out.extend_from_slice(b"[]"),
        Some(b'{') => {
            let mut members: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
            members.entry("embeddings").or_insert(Value::Null);
            out.extend_from_slice(Value::Object(members).to_string().as_bytes());
        }
        // Documents hold values in their canonical spelling.
        _ => {
            let mut value = Vec::with_capacity(json.len());
            match JsonReader::new(json.as_bytes()).copy_value(&mut value, &mut Unnamed, (), 0) {
                Ok(()) => out.extend_from_slice(&value),
                Err(_) => out.extend_from_slice(json.as_bytes()),
            }
        }
    }
}

/// An entry with the name of its embedder and its own bytes.
pub type NamedEntry<'a> = (&'a str, SentEntry, &'a [u8]);

/// Entries as bytes, read one after another.
pub struct Entries<'a>(pub &'a [u8]);

impl<'a> Entries<'a> {
    /// The next entry with its name and its own bytes.
    ///
    /// # Errors
    /// [`PartitionError::Damaged`].
    pub fn next_entry(&mut self) -> Result<Option<NamedEntry<'a>>, PartitionError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let whole = self.0;
        let (name, entry) = self.parse().ok_or(PartitionError::Damaged("list of vectors"))?;
        Ok(Some((name, entry, &whole[..whole.len() - self.0.len()])))
    }

    fn parse(&mut self) -> Option<(&'a str, SentEntry)> {
        let name_len = take_varint(&mut self.0)? as usize;
        let name = std::str::from_utf8(self.take(name_len)?).ok()?;
        let flags = self.take(1)?[0];
        let mut entry = SentEntry { vectors: None, regenerate: flags & REGENERATE != 0 };
        if flags & GIVEN != 0 {
            let count = take_varint(&mut self.0)? as usize;
            let dimensions = take_varint(&mut self.0)? as usize;
            let numbers = self.take(count.checked_mul(dimensions)?.checked_mul(4)?)?;
            let number = |bytes: &[u8]| bytes.try_into().map_or(0.0, f32::from_le_bytes);
            let vector = |bytes: &[u8]| bytes.chunks_exact(4).map(number).collect();
            entry.vectors = Some(numbers.chunks_exact((dimensions * 4).max(1)).map(vector).collect());
        }
        Some((name, entry))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

/// The entry of one embedder.
///
/// # Errors
/// [`PartitionError::Damaged`].
pub fn find(entries: &[u8], name: &str) -> Result<Option<SentEntry>, PartitionError> {
    let mut entries = Entries(entries);
    while let Some((other, entry, _)) = entries.next_entry()? {
        if other == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// What a document keeps of `_vectors` (see [`SentVectors::rest`]) when an update brings more of it: the members of `new`, and those
/// of `old` that it does not name.
pub fn merge_kept(old: &[u8], new: &[u8]) -> Vec<u8> {
    let members = |json| serde_json::from_slice::<BTreeMap<String, &RawValue>>(json).unwrap_or_default();
    let mut merged = members(old);
    merged.extend(members(new));
    let mut out = vec![b'{'];
    for (name, value) in merged {
        if out.len() > 1 {
            out.push(b',');
        }
        put_string(&mut out, &name);
        out.push(b':');
        out.extend_from_slice(value.get().as_bytes());
    }
    out.push(b'}');
    out
}

/// What a document that was sent twice says: `new` where it says anything.
///
/// # Errors
/// [`PartitionError::Damaged`].
pub fn merge(old: &[u8], new: &[u8]) -> Result<Vec<u8>, PartitionError> {
    if old.is_empty() || new.is_empty() {
        return Ok(if new.is_empty() { old } else { new }.to_vec());
    }
    let mut merged: BTreeMap<&str, &[u8]> = BTreeMap::new();
    for (at, entries) in [old, new].into_iter().enumerate() {
        let mut entries = Entries(entries);
        while let Some((name, entry, bytes)) = entries.next_entry()? {
            // Neither vectors nor the wish for them: nothing changes for a document that is there.
            if at == 0 || entry.vectors.is_some() || entry.regenerate {
                merged.insert(name, bytes);
            }
        }
    }
    Ok(merged.into_values().flatten().copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embedders() -> Embedders {
        Embedders::from([("m".into(), EmbedderFacts { dimensions: 2 })])
    }

    fn code(json: &str) -> Result<SentVectors, &'static str> {
        read(json.as_bytes(), &embedders(), "1").map_err(|error| error.code)
    }

    fn entry_of(json: &str) -> SentEntry {
        find(&code(json).unwrap().entries, "m").unwrap().unwrap()
    }

    #[test]
    fn every_shape_is_read() {
        let given = |vectors: &[&[f32]], regenerate| SentEntry {
            vectors: Some(vectors.iter().map(|vector| vector.to_vec()).collect()),
            regenerate,
        };
        assert_eq!(entry_of(r#"{"m":[1,2.5]}"#), given(&[&[1.0, 2.5]], false));
        assert_eq!(entry_of(r#"{"m":[[1,2],[3,4]]}"#), given(&[&[1.0, 2.0], &[3.0, 4.0]], false));
        assert_eq!(entry_of(r#"{"m":null}"#), given(&[], false));
        assert_eq!(entry_of(r#"{"m":{"embeddings":[[1,2]],"regenerate":true}}"#), given(&[&[1.0, 2.0]], true));
        assert_eq!(entry_of(r#"{"m":{"regenerate":true}}"#), SentEntry { vectors: None, regenerate: true });
        assert_eq!(entry_of(r#"{"m":{"embeddings":[],"regenerate":false}}"#), given(&[], false));
    }

    #[test]
    fn wrong_shapes_are_refused() {
        for (json, wanted) in [
            (r#"{"m":[1,2,3]}"#, "invalid_vector_dimensions"),
            (r#"{"m":[[]]}"#, "invalid_vector_dimensions"),
            (r#"{"m":"x"}"#, "invalid_vectors_type"),
            (r#"{"m":[1,null]}"#, "invalid_vectors_type"),
            (r#"{"m":[[1,2],3]}"#, "invalid_vectors_type"),
            (r#"{"m":[[[1,2]]]}"#, "invalid_vectors_type"),
            (r#"{"m":{"embeddings":[1,2]}}"#, "invalid_vectors_type"),
            (r#"{"m":{"embeddings":{},"regenerate":true}}"#, "invalid_vectors_type"),
            (r#"{"m":[1e300,0]}"#, "invalid_vectors_type"),
            (r#"{"other":true}"#, "invalid_vectors_type"),
            (r#"{"m":[1],"other":true}"#, "invalid_vectors_type"),
            ("[1]", "internal"),
        ] {
            assert_eq!(code(json), Err(wanted), "{json}");
        }
    }

    #[test]
    fn other_names_stay_in_the_document() {
        let sent = code(r#"{"a":null,"b":[9,9,9],"c":{"regenerate":true},"m":[1,2]}"#).unwrap();
        let rest = String::from_utf8(sent.rest.unwrap()).unwrap();
        assert_eq!(rest, r#"{"a":[],"b":[9,9,9],"c":{"regenerate":true,"embeddings":null}}"#);
        // Nobody reads them as vectors before there is an embedder of that name.
        let odd = r#"{"a":[1,"x"],"b":{"embeddings":"x","regenerate":true}}"#;
        assert_eq!(code(odd).unwrap().rest.as_deref(), Some(odd.as_bytes()));
        assert_eq!(code("{}").unwrap(), SentVectors::default());
    }

    #[test]
    fn what_is_said_later_counts() {
        let read = |json: &str| code(json).unwrap().entries;
        let (first, second) = (read(r#"{"m":[1,2]}"#), read(r#"{"m":[3,4]}"#));
        assert_eq!(merge(&first, &second).unwrap(), second);
        assert_eq!(merge(&first, &[]).unwrap(), first);
        assert_eq!(merge(&first, &read(r#"{"m":{"regenerate":false}}"#)).unwrap(), first);
    }
}
