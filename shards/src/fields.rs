//! Field names of an index and their numbers.

use std::sync::Arc;

use ahash::AHashMap;

use crate::ids::FieldId;

/// Most names one index may hold; beyond it a document is refused with `max_fields_limit_exceeded`.
pub const FIELDS_MAX: usize = 65_535;

/// Every dotted path that any document of the index has had, numbered by first sight: parents, children and top-level
/// names alike. Names are never taken out, so a number stays valid for the life of the index.
#[derive(Clone, Debug, Default)]
pub struct FieldsMap {
    names: Vec<Arc<str>>,
    ids: AHashMap<Arc<str>, FieldId>,
}

impl FieldsMap {
    /// The number of a path, if the index has met it.
    pub fn id(&self, name: &str) -> Option<FieldId> {
        self.ids.get(name).copied()
    }

    /// The path of a number. `None` only for a number of another index.
    pub fn name(&self, id: FieldId) -> Option<&str> {
        self.names.get(usize::from(id.0)).map(AsRef::as_ref)
    }

    /// The number of a path, given one now if it is new; `None` when the index is at [`FIELDS_MAX`].
    pub fn insert(&mut self, name: &str) -> Option<FieldId> {
        if let Some(id) = self.ids.get(name) {
            return Some(*id);
        }
        if self.names.len() >= FIELDS_MAX {
            return None;
        }
        let id = FieldId(self.names.len() as u16);
        let name: Arc<str> = name.into();
        self.names.push(name.clone());
        self.ids.insert(name, id);
        Some(id)
    }

    /// Takes out the names that were inserted when the map had `len` names or more. For undoing insertions before anyone has
    /// used their numbers.
    pub fn truncate(&mut self, len: usize) {
        for name in self.names.drain(len.min(self.names.len())..) {
            self.ids.remove(&name);
        }
    }

    /// All paths with their numbers, in order of first sight.
    pub fn iter(&self) -> impl Iterator<Item = (FieldId, &str)> {
        self.names.iter().enumerate().map(|(at, name)| (FieldId(at as u16), name.as_ref()))
    }

    /// How many paths the index has met.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether the index has met no path yet.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}
