//! A cache for numbered parts of a file, bounded by a budget. Eviction uses the CLOCK algorithm: a hand passes over the parts
//! and evicts the first one not used since its last pass.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

struct Slot<T: ?Sized> {
    number: u32,
    used: bool,
    value: Rc<T>,
}

/// The parts that are kept lie side by side, so that the hand never passes over those that are not: of a file that is much larger
/// than memory these are nearly all.
struct Slots<T: ?Sized> {
    /// For each number one more than its place in `kept`, 0 for what is not there.
    places: Vec<u32>,
    kept: Vec<Slot<T>>,
    /// The place that is looked at next.
    hand: usize,
}

impl<T: ?Sized> Slots<T> {
    #[inline(always)]
    fn get(&self, number: u32) -> Option<&Slot<T>> {
        self.kept.get(self.place(number)?)
    }

    #[inline(always)]
    fn get_mut(&mut self, number: u32) -> Option<&mut Slot<T>> {
        let place = self.place(number)?;
        self.kept.get_mut(place)
    }

    #[inline(always)]
    fn place(&self, number: u32) -> Option<usize> {
        Some(self.places.get(number as usize)?.checked_sub(1)? as usize)
    }

    /// Notes where the part at `place` is.
    fn settle(&mut self, place: usize) {
        self.places[self.kept[place].number as usize] = place as u32 + 1;
    }

    fn remove(&mut self, place: usize) {
        let slot = self.kept.swap_remove(place);
        self.places[slot.number as usize] = 0;
        if place < self.kept.len() {
            self.settle(place);
        }
    }

    /// Gives up the first part that was not used since the hand last came by. There is one at least.
    fn give_up_one(&mut self) {
        loop {
            if self.hand >= self.kept.len() {
                self.hand = 0;
            }
            if !std::mem::take(&mut self.kept[self.hand].used) {
                break;
            }
            self.hand += 1;
        }
        self.remove(self.hand);
    }

    /// Adds a part behind the hand, in the place of what was given up last.
    fn add(&mut self, slot: Slot<T>) {
        let (number, last) = (slot.number as usize, self.kept.len());
        if self.places.len() <= number {
            self.places.resize(number + 1, 0);
        }
        let place = self.hand.min(last);
        self.kept.push(slot);
        self.kept.swap(place, last);
        self.settle(place);
        self.settle(last);
        self.hand = place + 1;
    }
}

/// Parts of a file by number.
pub struct ClockCache<T: ?Sized> {
    inner: RefCell<Slots<T>>,
    room: Room,
}

/// How much a cache may keep.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Parts at most.
    pub parts: usize,
    /// Bytes of each.
    pub part_bytes: u64,
    /// Bytes that all caches of this thread, which are those of one core, may keep together.
    pub all_bytes: u64,
    /// Bytes that they may keep together with what is [`Pinned`] on this thread.
    pub with_pinned_bytes: u64,
    /// Parts that this one may keep beyond that.
    pub least: usize,
}

thread_local! {
    /// Bytes that the caches of this thread keep.
    static KEPT_BYTES: Cell<u64> = const { Cell::new(0) };
    /// Sum of what is pinned on this thread.
    static PINNED_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Bytes that are always in memory, which leave the caches of this thread less.
#[derive(Default)]
pub struct Pinned {
    bytes: Cell<u64>,
}

impl Pinned {
    /// Sets how many they are now. Caches follow when they next take something up.
    pub fn set(&self, bytes: u64) {
        let before = self.bytes.replace(bytes);
        PINNED_BYTES.set((PINNED_BYTES.get() + bytes).saturating_sub(before));
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl<T: ?Sized> Drop for ClockCache<T> {
    fn drop(&mut self) {
        let kept = self.held() as u64 * self.room.part_bytes;
        KEPT_BYTES.set(KEPT_BYTES.get().saturating_sub(kept));
    }
}

impl<T: ?Sized> ClockCache<T> {
    /// Keeps nothing yet.
    pub fn new(room: Room) -> Self {
        Self { inner: RefCell::new(Slots { places: Vec::new(), kept: Vec::new(), hand: 0 }), room }
    }

    /// Parts kept at most.
    pub fn capacity(&self) -> usize {
        self.room.parts
    }

    /// The part, if it is kept.
    pub fn get(&self, number: u32) -> Option<Rc<T>> {
        let mut inner = self.inner.borrow_mut();
        let slot = inner.get_mut(number)?;
        slot.used = true;
        Some(slot.value.clone())
    }

    /// What `look` finds in the part, if that is kept.
    #[inline]
    pub fn with<R>(&self, number: u32, look: impl FnOnce(&T) -> R) -> Option<R> {
        let mut inner = self.inner.borrow_mut();
        let slot = inner.get_mut(number)?;
        slot.used = true;
        Some(look(&slot.value))
    }

    /// As [`Self::with`], but does not count as use.
    #[inline]
    pub fn peek<R>(&self, number: u32, look: impl FnOnce(&T) -> R) -> Option<R> {
        Some(look(&self.inner.borrow().get(number)?.value))
    }

    /// Whether the part is kept.
    pub fn contains(&self, number: u32) -> bool {
        self.inner.borrow().get(number).is_some()
    }

    /// Keeps the part, giving up others where the budget is reached.
    pub fn put(&self, number: u32, value: Rc<T>) {
        if self.room.parts == 0 {
            return;
        }
        let mut inner = self.inner.borrow_mut();
        if let Some(slot) = inner.get_mut(number) {
            (slot.value, slot.used) = (value, true);
            return;
        }
        let bytes = self.room.part_bytes;
        let most = self.most_bytes();
        let full = |held: usize| held >= self.room.least.max(1) && KEPT_BYTES.get() + bytes > most;
        while inner.kept.len() >= self.room.parts || full(inner.kept.len()) {
            inner.give_up_one();
            KEPT_BYTES.set(KEPT_BYTES.get().saturating_sub(bytes));
        }
        inner.add(Slot { number, used: true, value });
        KEPT_BYTES.set(KEPT_BYTES.get() + bytes);
    }

    /// Keeps the part where nothing need be given up for it; whether it did.
    pub fn put_if_room(&self, number: u32, value: Rc<T>) -> bool {
        let fits = self.contains(number) || self.room() > self.held();
        if fits {
            self.put(number, value);
        }
        fits
    }

    /// Parts that this cache could hold beside what other caches of this thread hold now.
    pub fn room(&self) -> usize {
        let others = KEPT_BYTES.get().saturating_sub(self.held() as u64 * self.room.part_bytes);
        let parts = self.most_bytes().saturating_sub(others) / self.room.part_bytes.max(1);
        self.room.parts.min(usize::try_from(parts).unwrap_or(usize::MAX).max(self.room.least))
    }

    /// Bytes that all caches of this thread may keep now.
    fn most_bytes(&self) -> u64 {
        self.room.all_bytes.min(self.room.with_pinned_bytes.saturating_sub(PINNED_BYTES.get()))
    }

    /// Gives up a part that is about to change.
    pub fn forget(&self, number: u32) {
        let mut inner = self.inner.borrow_mut();
        if let Some(place) = inner.place(number) {
            inner.remove(place);
            KEPT_BYTES.set(KEPT_BYTES.get().saturating_sub(self.room.part_bytes));
        }
    }

    /// Parts kept.
    pub fn held(&self) -> usize {
        self.inner.borrow().kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(parts: usize) -> Room {
        Room { parts, part_bytes: 10, all_bytes: u64::MAX, with_pinned_bytes: u64::MAX, least: 1 }
    }

    /// What one cache keeps, another of the same thread cannot; each keeps something.
    #[test]
    fn caches_of_a_thread_share_a_budget() {
        let room = Room { all_bytes: 100, ..room(8) };
        let (first, second) = (ClockCache::new(room), ClockCache::new(room));
        for number in 0..8 {
            first.put(number, Rc::new(number));
        }
        for number in 0..8 {
            second.put(number, Rc::new(number));
        }
        assert_eq!((first.held(), second.held(), second.contains(7)), (8, 2, true));
        drop(first);
        for number in 0..8 {
            second.put(number, Rc::new(number));
        }
        assert_eq!(second.held(), 8);
        let third = ClockCache::new(Room { all_bytes: 0, ..room });
        third.put(1, Rc::new(1));
        third.put(2, Rc::new(2));
        assert_eq!((third.held(), third.contains(2)), (1, true));
    }

    /// Where there is no room, neither by number of parts nor by what others keep, nothing is given up.
    #[test]
    fn what_needs_room_is_kept_only_where_there_is_some() {
        let shared = Room { all_bytes: 60, ..room(4) };
        let (first, second) = (ClockCache::new(shared), ClockCache::new(shared));
        let kept =
            |cache: &ClockCache<u32>| (0..8).filter(|number| cache.put_if_room(*number, Rc::new(*number))).count();
        assert_eq!((first.room(), kept(&first), first.held(), first.contains(3)), (4, 4, 4, true));
        assert_eq!((second.room(), kept(&second), first.held()), (2, 2, 4));
        assert!(first.put_if_room(2, Rc::new(9)) && first.get(2).as_deref() == Some(&9), "what is kept is replaced");
        assert_eq!(kept(&ClockCache::new(room(0))), 0);
    }

    /// What is pinned leaves less, also to caches that are full already.
    #[test]
    fn what_is_pinned_leaves_less() {
        let cache = ClockCache::new(Room { with_pinned_bytes: 100, ..room(20) });
        let fill = |from: u32| (from..from + 20).for_each(|number| cache.put(number, Rc::new(number)));
        fill(0);
        assert_eq!(cache.held(), 10);
        let pinned = Pinned::default();
        pinned.set(40);
        pinned.set(70);
        fill(20);
        assert_eq!(cache.held(), 3);
        pinned.set(1000);
        fill(40);
        assert_eq!(cache.held(), 1);
        drop(pinned);
        fill(60);
        assert_eq!(cache.held(), 10);
    }

    #[test]
    fn the_budget_holds_and_what_is_used_stays() {
        let cache = ClockCache::new(room(3));
        for number in [10, 20, 30] {
            cache.put(number, Rc::new(number));
        }
        cache.put(40, Rc::new(40));
        assert_eq!(cache.held(), 3);
        assert!(cache.get(40).is_some() && !cache.contains(10), "the hand took the first");
        assert_eq!(cache.get(20).as_deref(), Some(&20));
        cache.put(50, Rc::new(50));
        assert!(cache.contains(20) && !cache.contains(30), "20 was used since the hand came by, 30 was not");
        cache.forget(20);
        cache.forget(20);
        assert_eq!(cache.held(), 2);
    }

    /// Whatever is put and forgotten, each part that is kept is found under its number, and no other.
    #[test]
    fn parts_are_found_under_their_numbers() {
        let cache = ClockCache::new(room(7));
        let mut seed = 1u32;
        for _ in 0..3000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = seed >> 16 & 31;
            match seed >> 28 {
                0..3 => cache.forget(number),
                3..8 => drop(cache.get(number)),
                _ => cache.put(number, Rc::new(number)),
            }
            let found: Vec<u32> = (0..40).filter(|number| cache.contains(*number)).collect();
            assert!(found.len() == cache.held() && found.len() <= 7);
            assert!(found.iter().all(|number| cache.peek(*number, |value| value == number) == Some(true)));
        }
        assert_eq!(cache.held(), 7);
    }

    #[test]
    fn no_budget_keeps_nothing() {
        let cache = ClockCache::new(room(0));
        cache.put(1, Rc::new(1));
        assert_eq!((cache.held(), cache.get(1)), (0, None));
    }
}
