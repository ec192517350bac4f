//! The slow twin of a partition's inverted index for tests: documents as JSON, every lookup a full scan.

use std::collections::BTreeMap;
use std::rc::Rc;

use charabia::{SeparatorKind, TokenKind};
use roaring::RoaringBitmap;
use serde_json::Value;

use super::context::Cutter;
use super::source::{FieldTable, Reach, TermSource};
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::rank::champions::ChampionLists;
use crate::settings::Settings;
use crate::text::textbook::distance;

/// An index in memory.
#[derive(Default)]
pub(crate) struct NaiveSource {
    pub fields: FieldsMap,
    docs: Rc<RoaringBitmap>,
    terms: BTreeMap<String, BTreeMap<u32, BTreeMap<FieldId, Vec<u16>>>>,
    counts: BTreeMap<(u32, FieldId), usize>,
    champions: ChampionLists,
}

/// Where the next word of a field goes.
#[derive(Default)]
struct Cursor {
    next: u32,
    counted: usize,
}

impl NaiveSource {
    /// Adds a document under a number that is free.
    pub fn add(&mut self, doc: u32, value: &Value, settings: &Settings, cutter: &dyn Cutter) {
        Rc::make_mut(&mut self.docs).insert(doc);
        let mut cursors: BTreeMap<FieldId, Cursor> = BTreeMap::new();
        self.value(doc, "", value, settings, cutter, &mut cursors);
        for (field, cursor) in cursors {
            self.counts.insert((doc, field), cursor.counted);
        }
    }

    fn value(
        &mut self,
        doc: u32,
        path: &str,
        value: &Value,
        settings: &Settings,
        cutter: &dyn Cutter,
        cursors: &mut BTreeMap<FieldId, Cursor>,
    ) {
        // What has no value of its own takes the place of one, as null does: that which is empty, and a member with parts.
        let is_empty = |value: &Value| {
            value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
        };
        if is_empty(value) && !path.is_empty() {
            return self.value(doc, path, &Value::Null, settings, cutter, cursors);
        }
        match value {
            Value::Object(object) => {
                let nested = !path.is_empty();
                for (key, value) in object {
                    let path = if nested { format!("{path}.{key}") } else { key.clone() };
                    self.fields.insert(&path);
                    if nested && (value.is_array() || value.is_object()) {
                        self.value(doc, &path, &Value::Null, settings, cutter, cursors);
                    }
                    self.value(doc, &path, value, settings, cutter, cursors);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.value(doc, path, item, settings, cutter, cursors);
                }
            }
            leaf => self.leaf(doc, path, leaf, settings, cutter, cursors),
        }
    }

    /// Takes in a value that has no others in it.
    fn leaf(
        &mut self,
        doc: u32,
        path: &str,
        value: &Value,
        settings: &Settings,
        cutter: &dyn Cutter,
        cursors: &mut BTreeMap<FieldId, Cursor>,
    ) {
        let Some(field) = self.fields.insert(path) else { return };
        if settings.searchable_weight(path).is_none() {
            return;
        }
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string().replace('+', ""),
        };
        let cursor = cursors.entry(field).or_default();
        let mut position = cursor.next;
        let mut last = position;
        // No step before the first word, but over what divides it from an accent of which nothing is left.
        let (mut begun, mut step) = (false, 0);
        let languages = if value.is_string() { cutter.languages(path) } else { None };
        for token in cutter.tokens(&text, languages) {
            match token.kind {
                TokenKind::Separator(_) if !begun => {}
                TokenKind::Separator(kind) => step = step.max(if kind == SeparatorKind::Hard { 8 } else { 1 }),
                _ if token.lemma().is_empty() => begun = true,
                kind => {
                    position += step;
                    (begun, step) = (true, 1);
                    if kind == TokenKind::Word && position <= 0xffff && token.lemma().len() <= 250 {
                        cursor.counted += 1;
                        last = position;
                        let docs = self.terms.entry(token.lemma().to_owned()).or_default();
                        docs.entry(doc).or_default().entry(field).or_default().push(position as u16);
                    }
                }
            }
        }
        cursor.next = last + 8;
    }
}

impl TermSource for NaiveSource {
    fn documents(&self) -> &Rc<RoaringBitmap> {
        &self.docs
    }

    fn champions(&self) -> Option<&ChampionLists> {
        Some(&self.champions)
    }

    fn term_docs(&self, term: &str) -> Rc<RoaringBitmap> {
        Rc::new(self.terms.get(term).map(|docs| docs.keys().copied().collect()).unwrap_or_default())
    }

    fn packed(&self, term: &str, docs: &[u32], out: &mut Vec<u64>) {
        let Some(of_term) = self.terms.get(term) else { return };
        for (doc, fields) in docs.iter().filter_map(|doc| of_term.get_key_value(doc)) {
            for (field, positions) in fields {
                let base = u64::from(*doc) << 32 | u64::from(field.0) << 16;
                out.extend(positions.iter().map(|position| base | u64::from(*position)));
            }
        }
    }

    fn prefixed(&self, prefix: &str, each: &mut dyn FnMut(&str) -> bool) {
        let _ = self.terms.keys().filter(|word| word.starts_with(prefix)).all(|word| each(word));
    }

    fn similar(&self, word: &str, reach: Reach, fields: &FieldTable, each: &mut dyn FnMut(&str, u8) -> bool) {
        for candidate in self.terms.keys().filter(|candidate| self.is_tolerant(candidate, fields)) {
            let edits = distance(word, reach.prefix, reach.distance_max.into(), candidate);
            if edits.is_some_and(|edits| !each(candidate, edits as u8)) {
                return;
            }
        }
    }

    fn is_tolerant(&self, term: &str, fields: &FieldTable) -> bool {
        let docs = self.terms.get(term).into_iter().flat_map(|docs| docs.values());
        !fields.is_exact_word(term) && docs.flat_map(|fields| fields.keys()).any(|field| fields.is_tolerant(*field))
    }

    fn word_count(&self, doc: u32, field: FieldId) -> Option<u8> {
        self.counts.get(&(doc, field)).filter(|count| **count <= 30).map(|count| *count as u8)
    }
}
