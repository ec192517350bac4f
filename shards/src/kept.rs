//! A bounded cache map that evicts a little at a time.
//!
//! Clearing a full map is simple and rare, but freeing tens of thousands of small values takes tens of milliseconds, as does
//! rehashing a growing map, and meanwhile nobody else has the core. So this map consists of many small ones, chosen by the key's
//! hash: each grows on its own, and room is made by clearing one after another.

use std::borrow::Borrow;
use std::hash::Hash;

use ahash::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Maps that one is made of: a full cache of 16 MB of small things frees about a thousand of them at once.
pub const SHELVES: usize = 128;

/// A map whose things weigh no more than a bound together.
pub struct Kept<K, V> {
    /// None until something is kept: most maps of most epochs stay empty.
    shelves: Vec<Shelf<K, V>>,
    hasher: RandomState,
    weight: usize,
    /// The shelf whose turn it is to be emptied.
    next: usize,
}

struct Shelf<K, V> {
    things: HashTable<Thing<K, V>>,
    weight: usize,
}

struct Thing<K, V> {
    key: K,
    value: V,
    weight: usize,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self { shelves: Vec::new(), hasher: RandomState::new(), weight: 0, next: 0 }
    }
}

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Self {
        Self { things: HashTable::new(), weight: 0 }
    }
}

/// The shelf of a hash: told by other bits than those by which a shelf finds its things, which are the lowest and the highest.
fn shelf_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHELVES
}

impl<K: Hash + Eq, V> Kept<K, V> {
    /// What is kept of a key.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let shelf = self.shelves.get(shelf_of(hash))?;
        shelf.things.find(hash, |thing| thing.key.borrow() == key).map(|thing| &thing.value)
    }

    /// Takes out what is kept of a key.
    pub fn take<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let shelf = self.shelves.get_mut(shelf_of(hash))?;
        let found = shelf.things.find_entry(hash, |thing| thing.key.borrow() == key).ok()?;
        let (thing, _) = found.remove();
        shelf.weight -= thing.weight;
        self.weight -= thing.weight;
        Some(thing.value)
    }

    /// Keeps a thing, in the place of another of this key, and forgets others until all weigh `weight_max` at most. What alone
    /// weighs more is not kept.
    pub fn keep(&mut self, key: K, thing: V, weight: usize, weight_max: usize) {
        if weight > weight_max {
            return;
        }
        while self.weight + weight > weight_max && self.forget_some() {}
        if self.shelves.is_empty() {
            self.shelves.resize_with(SHELVES, Shelf::default);
        }
        let hash = self.hasher.hash_one(&key);
        let shelf = &mut self.shelves[shelf_of(hash)];
        let hasher = |thing: &Thing<K, V>| self.hasher.hash_one(&thing.key);
        let before = match shelf.things.entry(hash, |thing| thing.key == key, hasher) {
            Entry::Occupied(mut there) => {
                std::mem::replace(there.get_mut(), Thing { key, value: thing, weight }).weight
            }
            Entry::Vacant(place) => {
                place.insert(Thing { key, value: thing, weight });
                0
            }
        };
        shelf.weight = shelf.weight + weight - before;
        self.weight = self.weight + weight - before;
    }

    /// Forgets a bounded part of what is kept; false when nothing is.
    pub fn forget_some(&mut self) -> bool {
        for _ in 0..self.shelves.len() {
            let shelf = &mut self.shelves[self.next];
            self.next = (self.next + 1) % SHELVES;
            if !shelf.things.is_empty() {
                self.weight -= shelf.weight;
                *shelf = Shelf::default();
                return true;
            }
        }
        false
    }

    /// Forgets the keys that are `gone` in one of the [`SHELVES`].
    pub fn forget_where(&mut self, shelf: usize, gone: impl Fn(&K) -> bool) {
        let Some(shelf) = self.shelves.get_mut(shelf) else { return };
        let before = shelf.weight;
        shelf.things.retain(|thing| {
            let is_gone = gone(&thing.key);
            shelf.weight -= if is_gone { thing.weight } else { 0 };
            !is_gone
        });
        self.weight -= before - shelf.weight;
        if shelf.things.is_empty() {
            *shelf = Shelf::default();
        }
    }

    /// What all of it weighs.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// All that is kept.
    #[cfg(test)]
    pub fn things(&self) -> impl Iterator<Item = &V> {
        self.shelves.iter().flat_map(|shelf| &shelf.things).map(|thing| &thing.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_leaves_shelf_by_shelf() {
        let mut kept = Kept::default();
        for key in 0..1_000_usize {
            kept.keep(key, key, 1 + key % 3, usize::MAX);
        }
        let mut before = kept.weight();
        for shelf in 0..SHELVES {
            kept.forget_where(shelf, |key| key % 2 == 0);
            assert!(before - kept.weight() < 100, "a little at a time");
            before = kept.weight();
        }
        assert_eq!(kept.weight(), (1..1_000).step_by(2).map(|key| 1 + key % 3).sum::<usize>());
        assert!((0..1_000).all(|key| kept.get(&key).is_some() == (key % 2 == 1)));
        Kept::<usize, ()>::default().forget_where(0, |_| true);
    }

    /// To make room for one thing may not take as long as to free all others.
    #[test]
    fn a_full_map_forgets_little_at_once() {
        let (mut kept, max) = (Kept::default(), 100_000);
        for key in 0..300_000_usize {
            let before = kept.weight();
            kept.keep(key, key, 1, max);
            assert_eq!(kept.get(&key), Some(&key));
            assert!(kept.weight() <= max && kept.weight() + 4 * max / SHELVES > before, "{key}");
        }
        assert!(kept.weight() > max - 4 * max / SHELVES);
        assert_eq!(kept.things().count(), kept.weight());
        let mut steps = 0;
        while kept.forget_some() {
            steps += 1;
        }
        // The shelf that was emptied last may have got nothing since.
        assert!(steps == SHELVES || steps == SHELVES - 1, "{steps}");
        assert_eq!((kept.weight(), kept.things().count()), (0, 0));
    }

    #[test]
    fn weights_are_those_of_what_is_there() {
        let mut kept = Kept::default();
        kept.keep("a", 1, 10, 100);
        kept.keep("a", 2, 30, 100);
        kept.keep("b", 3, 5, 100);
        assert_eq!((kept.get("a"), kept.weight()), (Some(&2), 35));
        kept.keep("c", 4, 101, 100);
        assert_eq!((kept.get("c"), kept.weight()), (None, 35));
        assert_eq!((kept.take("a"), kept.take("a"), kept.weight()), (Some(2), None, 5));
        kept.keep("d", 5, 100, 100);
        assert_eq!((kept.get("b"), kept.get("d"), kept.weight()), (None, Some(&5), 100));
    }
}
