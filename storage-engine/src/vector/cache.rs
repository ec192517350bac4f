//! What is kept of a file's parts: numbered, at most as many as a budget allows, the least used given up first (the CLOCK
//! algorithm: a hand passes over the parts and takes the first that was not used since it last came by).

use std::cell::RefCell;
use std::rc::Rc;

struct Slot<T: ?Sized> {
    value: Rc<T>,
    used: bool,
}

struct Slots<T: ?Sized> {
    slots: Vec<Option<Slot<T>>>,
    held: usize,
    hand: usize,
}

/// Parts of a file by number.
pub struct ClockCache<T: ?Sized> {
    inner: RefCell<Slots<T>>,
    capacity: usize,
}

impl<T: ?Sized> ClockCache<T> {
    /// Keeps at most `capacity` parts.
    pub fn new(capacity: usize) -> Self {
        Self { inner: RefCell::new(Slots { slots: Vec::new(), held: 0, hand: 0 }), capacity }
    }

    /// Parts kept at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The part, if it is kept.
    pub fn get(&self, number: u32) -> Option<Rc<T>> {
        let mut inner = self.inner.borrow_mut();
        let slot = inner.slots.get_mut(number as usize)?.as_mut()?;
        slot.used = true;
        Some(slot.value.clone())
    }

    /// What `look` finds in the part, if that is kept.
    #[inline]
    pub fn with<R>(&self, number: u32, look: impl FnOnce(&T) -> R) -> Option<R> {
        let mut inner = self.inner.borrow_mut();
        let slot = inner.slots.get_mut(number as usize)?.as_mut()?;
        slot.used = true;
        Some(look(&slot.value))
    }

    /// Whether the part is kept.
    pub fn contains(&self, number: u32) -> bool {
        self.inner.borrow().slots.get(number as usize).is_some_and(Option::is_some)
    }

    /// Keeps the part, giving up others where the budget is reached.
    pub fn put(&self, number: u32, value: Rc<T>) {
        if self.capacity == 0 {
            return;
        }
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        if inner.slots.len() <= number as usize {
            inner.slots.resize_with(number as usize + 1, || None);
        }
        if inner.slots[number as usize].is_none() {
            while inner.held >= self.capacity {
                let hand = inner.hand;
                inner.hand = (hand + 1) % inner.slots.len();
                match &mut inner.slots[hand] {
                    Some(slot) if slot.used => slot.used = false,
                    kept @ Some(_) => {
                        *kept = None;
                        inner.held -= 1;
                    }
                    None => {}
                }
            }
            inner.held += 1;
        }
        inner.slots[number as usize] = Some(Slot { value, used: true });
    }

    /// Gives up a part that is about to change.
    pub fn forget(&self, number: u32) {
        let mut inner = self.inner.borrow_mut();
        if inner.slots.get_mut(number as usize).and_then(Option::take).is_some() {
            inner.held -= 1;
        }
    }

    /// Parts kept.
    pub fn held(&self) -> usize {
        self.inner.borrow().held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_and_what_is_used_stays() {
        let cache = ClockCache::new(3);
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

    #[test]
    fn no_budget_keeps_nothing() {
        let cache = ClockCache::new(0);
        cache.put(1, Rc::new(1));
        assert_eq!((cache.held(), cache.get(1)), (0, None));
    }
}
