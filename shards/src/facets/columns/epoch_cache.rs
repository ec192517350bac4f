//! A cache of what is derived from the columns of one epoch.
//!
//! Each thing is built by one search on behalf of all, once searches have read so much without it that building it pays. The next
//! epoch takes it over: what a batch of changes touched of it is read again by the search that needs it next.

use std::cell::RefCell;
use std::hash::Hash;
use std::rc::Rc;

use ahash::AHashMap;
use roaring::RoaringBitmap;

/// What can be cached.
pub(super) trait Derived: Clone {
    /// What searches read before it is first built.
    const READS_MIN: u64;

    /// To read a part again takes so many times as long as it takes among all others.
    const PART_COST: u64;

    /// Bytes in memory, about.
    fn bytes(&self) -> usize;

    /// How many parts it has that can be read again on their own.
    fn parts(&self) -> u64;
}

/// Things by their keys.
pub(super) struct EpochCache<K, T>(RefCell<Slots<K, T>>);

struct Slots<K, T> {
    by_key: AHashMap<K, Slot<T>>,
    bytes: usize,
}

enum Slot<T> {
    /// It is not there.
    Unbuilt(Reads),
    /// A search builds it.
    Building,
    TooLarge,
    Built(Rc<T>),
    /// It was built at an epoch before, and these of its parts are no longer right.
    Stale(Rc<T>, RoaringBitmap),
}

/// What searches have read without a thing, in its own measure.
#[derive(Clone, Copy)]
pub(super) struct Reads {
    pub count: u64,
    /// It is to be built from so much on.
    pub needed: u64,
}

impl Reads {
    /// Whether enough was read.
    pub fn are_enough(self) -> bool {
        self.count >= self.needed
    }
}

/// What a search is told that asks for a thing.
pub(super) enum Asked<'c, K: Hash + Eq + Clone, T: Derived> {
    Built(Rc<T>),
    /// It is not there, and need not be built now.
    Missing,
    /// Whoever asked is to build it.
    Build(Builder<'c, K, T>),
}

/// What came of building.
pub(super) enum Outcome<T> {
    Built(T),
    /// Building takes longer than what was read so far is worth.
    TooSoon,
    TooLarge,
}

/// Lets others build the thing if building fails or is dropped half-way, as it is when its client has gone.
pub(super) struct Builder<'c, K: Hash + Eq + Clone, T: Derived> {
    cache: &'c EpochCache<K, T>,
    key: K,
    /// What was read so far.
    pub reads: Reads,
    stale: Option<(Rc<T>, RoaringBitmap)>,
}

impl<K: Hash + Eq + Clone, T: Derived> Default for EpochCache<K, T> {
    fn default() -> Self {
        Self(RefCell::new(Slots { by_key: AHashMap::new(), bytes: 0 }))
    }
}

impl<T: Derived> Slot<T> {
    fn unread() -> Self {
        Self::Unbuilt(Reads { count: 0, needed: T::READS_MIN })
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Built(thing) | Self::Stale(thing, _) => thing.bytes(),
            Self::Unbuilt(_) | Self::Building | Self::TooLarge => 0,
        }
    }
}

impl<K: Hash + Eq + Clone, T: Derived> Slots<K, T> {
    fn set(&mut self, key: K, slot: Slot<T>) {
        self.bytes += slot.bytes();
        let before = self.by_key.insert(key, slot);
        self.bytes -= before.map_or(0, |before| before.bytes());
    }
}

impl<K: Hash + Eq + Clone, T: Derived> EpochCache<K, T> {
    /// Bytes of all things, about.
    pub fn bytes(&self) -> usize {
        self.0.borrow().bytes
    }

    /// Forgets one of them; false when there is none.
    pub fn forget_some(&self) -> bool {
        let mut slots = self.0.borrow_mut();
        let Some(key) = slots.by_key.keys().next().cloned() else { return false };
        let gone = slots.by_key.remove(&key);
        slots.bytes -= gone.map_or(0, |gone| gone.bytes());
        true
    }

    /// The thing, if it is there and right.
    pub fn built(&self, key: &K) -> Option<Rc<T>> {
        match self.0.borrow().by_key.get(key)? {
            Slot::Built(thing) => Some(thing.clone()),
            _ => None,
        }
    }

    /// Whether it would take too much memory.
    pub fn is_too_large(&self, key: &K) -> bool {
        matches!(self.0.borrow().by_key.get(key), Some(Slot::TooLarge))
    }

    /// Asks for a thing, which is built if `pays` says so, unless all things together have `bytes_max` already.
    pub fn ask(&self, key: K, bytes_max: usize, pays: impl FnOnce(&mut Reads) -> bool) -> Asked<'_, K, T> {
        let mut slots = self.0.borrow_mut();
        let is_full = slots.bytes >= bytes_max;
        let (reads, stale) = match slots.by_key.entry(key.clone()).or_insert_with(Slot::unread) {
            Slot::Built(thing) => return Asked::Built(thing.clone()),
            Slot::Building | Slot::TooLarge => return Asked::Missing,
            Slot::Unbuilt(reads) => match pays(reads) && !is_full {
                true => (*reads, None),
                false => return Asked::Missing,
            },
            Slot::Stale(thing, parts) => {
                (Reads { count: 0, needed: T::READS_MIN }, Some((thing.clone(), std::mem::take(parts))))
            }
        };
        slots.set(key.clone(), Slot::Building);
        Asked::Build(Builder { cache: self, key, reads, stale })
    }

    /// Tells that searches have read more without a thing.
    pub fn add_reads(&self, key: K, count: u64) {
        if let Slot::Unbuilt(reads) = self.0.borrow_mut().by_key.entry(key).or_insert_with(Slot::unread) {
            reads.count = reads.count.saturating_add(count);
        }
    }

    /// The cache of the next epoch: `touched` says which parts of a thing are other ones there, `None` where these are too many.
    pub fn renewed(&self, touched: impl Fn(&K, &T) -> Option<RoaringBitmap>) -> Self {
        let slots = self.0.borrow();
        let mut next = Slots { by_key: AHashMap::new(), bytes: 0 };
        for (key, slot) in &slots.by_key {
            let nothing = RoaringBitmap::new();
            let (thing, before) = match slot {
                Slot::Built(thing) => (thing, &nothing),
                Slot::Stale(thing, parts) => (thing, parts),
                Slot::Unbuilt(reads) => {
                    next.set(key.clone(), Slot::Unbuilt(*reads));
                    continue;
                }
                Slot::Building | Slot::TooLarge => continue,
            };
            let Some(parts) = touched(key, thing).map(|parts| parts | before) else { continue };
            if parts.len().saturating_mul(T::PART_COST) > thing.parts() {
                continue;
            }
            let is_right = parts.is_empty();
            let thing = thing.clone();
            next.set(key.clone(), if is_right { Slot::Built(thing) } else { Slot::Stale(thing, parts) });
        }
        Self(RefCell::new(next))
    }
}

impl<K: Hash + Eq + Clone, T: Derived> Builder<'_, K, T> {
    /// What was built at an epoch before, and the parts of it to be read again.
    pub fn take_stale(&mut self) -> Option<(T, RoaringBitmap)> {
        // Once the epoch before is forgotten nobody else has it.
        self.stale.take().map(|(thing, parts)| (Rc::unwrap_or_clone(thing), parts))
    }

    /// Ends building; the thing, if it was built.
    pub fn end(self, outcome: Outcome<T>) -> Option<Rc<T>> {
        let (slot, thing) = match outcome {
            Outcome::Built(thing) => {
                let thing = Rc::new(thing);
                (Slot::Built(thing.clone()), Some(thing))
            }
            Outcome::TooSoon => {
                let Reads { count, needed } = self.reads;
                (Slot::Unbuilt(Reads { count, needed: needed.max(count).saturating_mul(2) }), None)
            }
            Outcome::TooLarge => (Slot::TooLarge, None),
        };
        // Where it was forgotten meanwhile somebody else may have built it, too.
        self.cache.0.borrow_mut().set(self.key.clone(), slot);
        thing
    }
}

impl<K: Hash + Eq + Clone, T: Derived> Drop for Builder<'_, K, T> {
    fn drop(&mut self) {
        if let Some(slot @ Slot::Building) = self.cache.0.borrow_mut().by_key.get_mut(&self.key) {
            *slot = Slot::Unbuilt(self.reads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Ten(u32);

    impl Derived for Ten {
        const READS_MIN: u64 = 5;
        const PART_COST: u64 = 3;

        fn bytes(&self) -> usize {
            10
        }

        fn parts(&self) -> u64 {
            10
        }
    }

    type Cache = EpochCache<&'static str, Ten>;

    fn build(cache: &Cache, key: &'static str) -> Option<Rc<Ten>> {
        match cache.ask(key, 100, |reads| reads.are_enough()) {
            Asked::Built(ten) => Some(ten),
            Asked::Missing => None,
            Asked::Build(builder) => builder.end(Outcome::Built(Ten(0))),
        }
    }

    #[test]
    fn things_are_built_once_that_pays() {
        let cache = Cache::default();
        assert!(build(&cache, "a").is_none());
        cache.add_reads("a", 5);
        let Asked::Build(builder) = cache.ask("a", 100, |reads| reads.are_enough()) else { panic!("it pays") };
        assert!(build(&cache, "a").is_none(), "somebody builds it");
        drop(builder);
        let Asked::Build(builder) = cache.ask("a", 100, |reads| reads.are_enough()) else { panic!("others build it") };
        assert!(builder.end(Outcome::TooSoon).is_none() && build(&cache, "a").is_none());
        cache.add_reads("a", 5);
        assert!(build(&cache, "a").is_some() && cache.built(&"a").is_some());
        assert!(matches!(cache.ask("b", 10, |_| true), Asked::Missing), "no room");
        let Asked::Build(builder) = cache.ask("b", 100, |_| true) else { panic!("it pays") };
        assert!(builder.end(Outcome::TooLarge).is_none() && cache.is_too_large(&"b") && !cache.is_too_large(&"a"));
        assert_eq!(cache.bytes(), 10);
        while cache.forget_some() {}
        assert!(cache.bytes() == 0 && cache.built(&"a").is_none() && !cache.is_too_large(&"b"));
    }

    #[test]
    fn the_next_epoch_takes_over_what_is_right() {
        let cache = Cache::default();
        for key in ["same", "touched", "changed"] {
            cache.add_reads(key, 9);
            build(&cache, key);
        }
        cache.add_reads("unbuilt", 9);
        let touched = |key: &&str, _: &Ten| match *key {
            "same" => Some(RoaringBitmap::new()),
            "touched" => Some([7].into()),
            _ => None,
        };
        let next =
            cache.renewed(touched).renewed(|key, ten| touched(key, ten).map(|parts| parts | RoaringBitmap::from([8])));
        assert_eq!((cache.bytes(), next.bytes()), (30, 20));
        assert!(
            next.built(&"touched").is_none() && build(&next, "changed").is_none() && build(&next, "unbuilt").is_some()
        );
        let Asked::Build(mut builder) = next.ask("touched", 0, |_| false) else { panic!("it was built") };
        let (Ten(times), parts) = builder.take_stale().expect("it was built");
        assert_eq!((times, parts), (0, [7, 8].into()));
        builder.end(Outcome::Built(Ten(times + 1)));
        assert_eq!(
            (next.built(&"touched").map(|ten| ten.0), cache.built(&"touched").map(|ten| ten.0)),
            (Some(1), Some(0))
        );
        // Of four of ten parts all of it is read sooner.
        assert_eq!(next.renewed(|_, _| Some([1, 2, 3, 4].into())).bytes(), 0);
    }
}
