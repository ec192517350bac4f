//! Numbers the names that documents bring along.

use ahash::AHashMap;

use crate::document::json::{NameError, Names};
use crate::fields::FieldsMap;
use crate::ids::FieldId;

/// What is below this field is stored unread: vectors are no fields.
pub const VECTORS: &str = "_vectors";

/// A point, whose two numbers are fields wherever there is one, whatever it holds.
const POINT: &str = "_geo";

/// Gives numbers to the names of documents, top-level and nested, in the order of first sight. Remembers for each parent which
/// child names it has seen, so that a known name costs one lookup and no dotted path is put together.
pub struct FieldNames<'m> {
    map: &'m mut FieldsMap,
    /// By parent number + 1 (0: the document itself).
    children: Vec<AHashMap<Box<str>, FieldId>>,
    /// By field: the last object that had it. Two members with the same field and the same object are the same name.
    last_object: Vec<u32>,
    objects: u32,
}

/// An object, or a place where one may stand.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// `None`: the document itself.
    parent: Option<FieldId>,
    object: u32,
    /// Names below are not numbered.
    opaque: bool,
}

impl<'m> FieldNames<'m> {
    /// Adds new names to `map`.
    pub fn new(map: &'m mut FieldsMap) -> Self {
        Self { map, children: Vec::new(), last_object: Vec::new(), objects: 0 }
    }

    /// The names known so far.
    pub fn map(&self) -> &FieldsMap {
        self.map
    }

    /// Forgets all names that got their numbers when the index had `len` names or more.
    pub fn truncate(&mut self, len: usize) {
        self.map.truncate(len);
        self.children.clear();
        self.last_object.clear();
    }

    /// The number of a top-level name, and the scope of its value.
    pub fn top_level(&mut self, name: &str) -> Result<(FieldId, Scope), NameError> {
        let field = self.child(None, name)?;
        if name == POINT {
            self.child(Some(field), "lat")?;
            self.child(Some(field), "lng")?;
        }
        Ok((field, Scope { parent: Some(field), object: 0, opaque: name == VECTORS }))
    }

    fn child(&mut self, parent: Option<FieldId>, name: &str) -> Result<FieldId, NameError> {
        let slot = parent.map_or(0, |field| usize::from(field.0) + 1);
        if let Some(field) = self.children.get(slot).and_then(|children| children.get(name)) {
            return Ok(*field);
        }
        let field = match parent.and_then(|field| self.map.name(field)) {
            Some(path) => {
                let path = [path, ".", name].concat();
                self.map.insert(&path)
            }
            None => self.map.insert(name),
        };
        let field = field.ok_or(NameError::Full)?;
        if self.children.len() <= slot {
            self.children.resize_with(slot + 1, AHashMap::new);
        }
        self.children[slot].insert(name.into(), field);
        Ok(field)
    }
}

impl Names for FieldNames<'_> {
    type Scope = Scope;

    fn member(&mut self, scope: Scope, name: &str) -> Result<Scope, NameError> {
        if scope.opaque {
            return Ok(scope);
        }
        let field = self.child(scope.parent, name)?;
        let at = usize::from(field.0);
        if self.last_object.len() <= at {
            self.last_object.resize(at + 1, 0);
        }
        if self.last_object[at] == scope.object {
            return Err(NameError::Repeated);
        }
        self.last_object[at] = scope.object;
        Ok(Scope { parent: Some(field), object: 0, opaque: false })
    }

    fn object(&mut self, scope: Scope) -> Scope {
        // Counting up to 2^32 objects takes a batch of many gigabytes; after that repeated names are looked for afresh.
        self.objects = self.objects.wrapping_add(1).max(1);
        Scope { object: self.objects, ..scope }
    }
}
