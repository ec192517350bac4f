//! An in-memory partition for tests: documents as JSON values, columns in ordered maps.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::pin::Pin;
use std::rc::Rc;

use roaring::RoaringBitmap;
use serde_json::Value;
use storage_engine::vector::Pace;
use storage_engine::{Doomed, TreeId};

use super::columns::{
    ColumnError, ColumnRead, ColumnWrite, ColumnWriter, Columns, FactChanges, ResidentFields, store::Entry,
};
use super::extract::{Extractor, Facts};
use super::source::FacetSource;
use crate::fields::FieldsMap;
use crate::ids::{DocId, LocalDocId};
use crate::settings::{FilterableRule, Settings};

/// Ordered trees in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemColumns {
    pub entries: BTreeMap<(u8, Vec<u8>), Vec<u8>>,
}

impl ColumnRead for MemColumns {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, ColumnError> {
        Ok(self.entries.get(&(tree.0, key.to_vec())).map(Vec::as_slice))
    }

    fn scan(&self, tree: TreeId, from: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        for ((_, key), value) in self.entries.range((tree.0, from.to_vec())..(tree.0 + 1, Vec::new())) {
            if entry(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn scan_back(&self, tree: TreeId, before: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        let range = (Bound::Included((tree.0, Vec::new())), Bound::Excluded((tree.0, before.to_vec())));
        for ((_, key), value) in self.entries.range(range).rev() {
            if entry(key, value)? == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

impl ColumnWrite for MemColumns {
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), ColumnError> {
        assert!((1..=1024).contains(&key.len()), "key of {} bytes", key.len());
        self.entries.insert((tree.0, key.to_vec()), value.to_vec());
        Ok(())
    }

    fn delete_run(&mut self, tree: TreeId, keys: &[&[u8]], doomed: &mut Doomed<'_>) -> Result<(), ColumnError> {
        assert!(keys.is_sorted_by(|a, b| a < b), "keys rise");
        for (at, key) in keys.iter().enumerate() {
            let place = (tree.0, key.to_vec());
            if self.entries.get(&place).is_some_and(|value| doomed(at, value)) {
                self.entries.remove(&place);
            }
        }
        Ok(())
    }
}

/// A partition in memory.
#[derive(Clone)]
pub struct Facets {
    pub fields: FieldsMap,
    pub settings: Settings,
    pub columns: MemColumns,
    pub documents: RoaringBitmap,
    /// The documents as they were given.
    pub json: BTreeMap<u32, Value>,
    pub resident: Rc<ResidentFields>,
}

/// Settings with these plainly filterable (and sortable) fields.
pub fn filterable(names: &[&str]) -> Settings {
    Settings {
        filterable_attributes: names.iter().map(|name| FilterableRule::Name((*name).into())).collect(),
        sortable_attributes: names.iter().map(|name| (*name).into()).collect(),
        ..Settings::default()
    }
}

impl Facets {
    pub fn new(settings: Settings) -> Self {
        Self {
            fields: FieldsMap::default(),
            settings,
            columns: MemColumns::default(),
            documents: RoaringBitmap::new(),
            json: BTreeMap::new(),
            resident: Rc::default(),
        }
    }

    /// With these documents, numbered from 0.
    pub fn with(settings: Settings, documents: impl IntoIterator<Item = Value>) -> Self {
        let mut facets = Self::new(settings);
        facets.put(documents.into_iter().enumerate().map(|(at, json)| (at as u32, Some(json))));
        facets
    }

    /// A document's facts, its paths being met.
    pub fn facts(&mut self, document: &Value) -> Facts {
        let members = document.as_object().expect("documents are objects");
        for (name, value) in members {
            meet(&mut self.fields, name, value);
        }
        let raw: Vec<_> = members
            .iter()
            .map(|(name, value)| (self.fields.id(name).expect("just met"), value.to_string().into_bytes()))
            .collect();
        let document = raw.iter().map(|(field, json)| (*field, json.as_slice()));
        Extractor::new(&self.settings).with_key(Some("id")).extract(&self.fields, document)
    }

    /// Sets or deletes documents in one batch.
    pub fn put(&mut self, documents: impl IntoIterator<Item = (u32, Option<Value>)>) {
        let mut writer = ColumnWriter::new();
        for (number, json) in documents {
            let old = self.json.get(&number).cloned().map(|json| self.facts(&json));
            let new = json.as_ref().map(|json| self.facts(json));
            if number % 2 == 0 {
                writer.add(LocalDocId(number), old.as_ref(), new.as_ref());
            } else {
                // As those of long documents come.
                let mut changes = FactChanges::between(LocalDocId(number), old.as_ref(), new.as_ref());
                while !writer.add_some(&mut changes, 2) {}
            }
            match json {
                Some(json) => {
                    self.json.insert(number, json);
                    self.documents.insert(number);
                }
                None => {
                    self.json.remove(&number);
                    self.documents.remove(number);
                }
            }
        }
        while !writer.flush_some(&mut self.columns, 7).expect("memory does not fail") {}
        self.resident = Rc::new(self.resident.after(&writer.take_touched()));
    }
}

/// Gives numbers to all paths of a value.
fn meet(fields: &mut FieldsMap, path: &str, value: &Value) {
    fields.insert(path).expect("few fields");
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| meet(fields, &format!("{path}.{name}"), value))
        }
        Value::Array(elements) => elements.iter().for_each(|value| meet(fields, path, value)),
        _ => {}
    }
}

impl FacetSource for Facets {
    fn columns(&self) -> Columns<'_> {
        Columns::new(&self.columns)
    }

    fn resident_fields(&self) -> Option<&ResidentFields> {
        Some(&self.resident)
    }

    fn fields(&self) -> &FieldsMap {
        &self.fields
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn documents(&self) -> &RoaringBitmap {
        &self.documents
    }

    fn global(&self, document: LocalDocId) -> DocId {
        DocId(document.0)
    }
}

impl Facets {
    /// The documents of one partition of several, with those of a set that are there.
    pub fn part(&self, number: u32, count: u32, set: &RoaringBitmap) -> (Self, RoaringBitmap) {
        let mut part = Self { fields: self.fields.clone(), ..Self::new(self.settings.clone()) };
        let own = self.json.iter().filter(|(document, _)| **document % count == number);
        part.put(own.map(|(document, json)| (document / count, Some(json.clone()))));
        let set = set.iter().filter(|document| document % count == number).map(|document| document / count).collect();
        (part, set)
    }
}

/// A partition of several, which knows the numbers of its documents among all.
pub struct Part<'f> {
    pub facets: &'f Facets,
    pub number: u32,
    pub count: u32,
}

impl FacetSource for Part<'_> {
    fn columns(&self) -> Columns<'_> {
        self.facets.columns()
    }

    fn fields(&self) -> &FieldsMap {
        &self.facets.fields
    }

    fn settings(&self) -> &Settings {
        &self.facets.settings
    }

    fn documents(&self) -> &RoaringBitmap {
        &self.facets.documents
    }

    fn global(&self, document: LocalDocId) -> DocId {
        DocId(document.0 * self.count + self.number)
    }
}

/// Counts pauses, one of which is always due.
#[derive(Default)]
pub struct Pauses(pub Cell<usize>);

impl Pace for Pauses {
    fn due(&self) -> bool {
        true
    }

    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        self.0.set(self.0.get() + 1);
        Box::pin(std::future::ready(()))
    }
}

/// Others always wait.
pub(crate) struct Busy;

impl Pace for Busy {
    fn due(&self) -> bool {
        true
    }

    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(futures_lite::future::yield_now())
    }
}
