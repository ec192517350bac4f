//! A cache of query embeddings.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Longer texts are not kept.
const TEXT_BYTES_MAX: usize = 2000;
/// Embedders that are remembered at once on one core.
const EMBEDDERS_MAX: usize = 64;

/// For each embedder the vectors of the texts used last.
pub(super) struct QueryCache {
    entries_max: usize,
    embedders: Lru<String, Lru<String, Vec<f32>>>,
}

impl QueryCache {
    /// Keeps so many entries for each embedder; with 0 it keeps nothing.
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries_max, embedders: Lru::default() }
    }

    /// The vector of a text. `identity` names the embedder and everything that its vectors depend on.
    pub(super) fn get(&mut self, identity: &str, text: &str) -> Option<Vec<f32>> {
        self.embedders.get(identity)?.get(text).cloned()
    }

    /// Keeps the vector of a text.
    pub(super) fn put(&mut self, identity: &str, text: &str, vector: &[f32]) {
        if self.entries_max == 0 || text.len() > TEXT_BYTES_MAX {
            return;
        }
        let entries_max = self.entries_max;
        if self.embedders.get(identity).is_none() {
            self.embedders.put(identity.to_owned(), Lru::default(), EMBEDDERS_MAX);
        }
        if let Some(texts) = self.embedders.get(identity) {
            texts.put(text.to_owned(), vector.to_vec(), entries_max);
        }
    }
}

/// A map that forgets what was not used for the longest time.
struct Lru<K, V> {
    entries: HashMap<K, (u64, V), ahash::RandomState>,
    order: BTreeMap<u64, K>,
    clock: u64,
}

impl<K, V> Default for Lru<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::default(), order: BTreeMap::new(), clock: 0 }
    }
}

impl<K: Hash + Eq + Clone, V> Lru<K, V> {
    fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: std::borrow::Borrow<Q>,
    {
        let (moment, value) = self.entries.get_mut(key)?;
        self.clock += 1;
        if let Some(key) = self.order.remove(moment) {
            self.order.insert(self.clock, key);
        }
        *moment = self.clock;
        Some(value)
    }

    fn put(&mut self, key: K, value: V, entries_max: usize) {
        self.clock += 1;
        if let Some((moment, _)) = self.entries.insert(key.clone(), (self.clock, value)) {
            self.order.remove(&moment);
        }
        self.order.insert(self.clock, key);
        while self.entries.len() > entries_max
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_stays() {
        let mut cache = QueryCache::new(2);
        cache.put("e", "a", &[1.0]);
        cache.put("e", "b", &[2.0]);
        assert_eq!(cache.get("e", "a"), Some(vec![1.0]));
        cache.put("e", "c", &[3.0]);
        assert_eq!((cache.get("e", "b"), cache.get("e", "a"), cache.get("f", "a")), (None, Some(vec![1.0]), None));
        cache.put("e", "a", &[4.0]);
        assert_eq!((cache.get("e", "a"), cache.get("e", "c")), (Some(vec![4.0]), Some(vec![3.0])));
        cache.put("f", "a", &[5.0]);
        assert_eq!((cache.get("f", "a"), cache.get("e", "a")), (Some(vec![5.0]), Some(vec![4.0])));
    }

    #[test]
    fn long_texts_and_embedders_without_number_are_not_kept() {
        let mut cache = QueryCache::new(1);
        cache.put("e", &"x".repeat(2001), &[1.0]);
        assert_eq!(cache.get("e", &"x".repeat(2001)), None);
        (0..100).for_each(|number| cache.put(&number.to_string(), "a", &[1.0]));
        assert_eq!(cache.embedders.entries.len(), EMBEDDERS_MAX);
        let mut off = QueryCache::new(0);
        off.put("e", "a", &[1.0]);
        assert_eq!(off.get("e", "a"), None);
    }
}
