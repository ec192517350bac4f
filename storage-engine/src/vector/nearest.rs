//! The nearest documents of those that were offered.

use std::collections::HashMap;

use super::Neighbor;

/// The nearest so far: by distance, then by document, each document once.
pub(super) struct Nearest {
    limit: usize,
    pub found: Vec<Neighbor>,
    /// The distances of documents in `found`, where documents have several vectors.
    known: Option<HashMap<u32, f32>>,
}

impl Nearest {
    /// None yet; `several` where documents have several vectors.
    pub fn new(limit: usize, several: bool) -> Self {
        Self { limit, found: Vec::new(), known: several.then(HashMap::new) }
    }

    fn place(&self, doc: u32, distance: f32) -> usize {
        self.found.partition_point(|other| (other.distance, other.doc) < (distance, doc))
    }

    /// Takes a document's distance if it is among the nearest.
    pub fn offer(&mut self, doc: u32, distance: f32) {
        if self.place(doc, distance) >= self.limit {
            return;
        }
        if let Some(known) = &mut self.known {
            if known.get(&doc).is_some_and(|before| *before <= distance) {
                return;
            }
            if let Some(before) = known.insert(doc, distance) {
                self.found.remove(self.place(doc, before));
            }
        }
        self.found.insert(self.place(doc, distance), Neighbor { doc, distance });
        if self.found.len() > self.limit
            && let (Some(last), Some(known)) = (self.found.pop(), &mut self.known)
        {
            known.remove(&last.doc);
        }
    }

    /// Whether nothing at this distance or beyond can be among them.
    pub fn excludes(&self, distance: f32) -> bool {
        self.found.len() >= self.limit && self.found.last().is_none_or(|last| distance > last.distance)
    }
}
