//! Where templates find values by their names. Unlike the frames of the library these lend values out and copy none, so that
//! objects keep their order.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};

use liquid_core::error::{Error, Result};
use liquid_core::model::{KString, KStringCow, KStringRef, ScalarCow, Value, ValueCow, find, try_find};
use liquid_core::runtime::{PartialStore, Registers, Runtime};
use liquid_core::{ObjectView, ValueView};

use super::super::view::View;

/// What every template finds, and above it the variables that it makes.
pub(super) struct Root<'g, R> {
    parent: R,
    globals: &'g dyn ObjectView,
    /// The newest value of each variable, by its place.
    variables: RefCell<HashMap<KString, usize>>,
    values: Kept,
}

/// Some values more, for a part of a template.
pub(super) struct Scope<'v, R, V> {
    pub(super) parent: R,
    pub(super) values: &'v V,
}

/// Values that stay where they are once they are kept, so that they can be lent out while others come.
struct Kept {
    count: Cell<usize>,
    /// Each has room for twice as many as the one before it.
    blocks: [OnceCell<Box<[OnceCell<View>]>>; usize::BITS as usize],
}

impl<'g, R: Runtime> Root<'g, R> {
    pub(super) fn new(parent: R, globals: &'g dyn ObjectView) -> Self {
        let values = Kept { count: Cell::new(0), blocks: [const { OnceCell::new() }; usize::BITS as usize] };
        Self { parent, globals, variables: RefCell::default(), values }
    }

    fn variable(&self, name: &str) -> Option<&View> {
        let place = *self.variables.borrow().get(name)?;
        self.values.at(place)
    }
}

impl Kept {
    /// Keeps a value; gives its place.
    fn keep(&self, value: View) -> usize {
        let place = self.count.replace(self.count.get() + 1);
        let (block, at) = Self::split(place);
        let block = self.blocks[block].get_or_init(|| (0..1 << block).map(|_| OnceCell::new()).collect());
        let is_new = block[at].set(value).is_ok();
        assert!(is_new, "each place is used once");
        place
    }

    fn at(&self, place: usize) -> Option<&View> {
        let (block, at) = Self::split(place);
        self.blocks[block].get()?.get(at)?.get()
    }

    /// The block of a place, and the place in that.
    fn split(place: usize) -> (usize, usize) {
        let block = (place + 1).ilog2() as usize;
        (block, place + 1 - (1 << block))
    }
}

/// What the one below does.
macro_rules! passed_down {
    () => {
        fn partials(&self) -> &dyn PartialStore {
            self.parent.partials()
        }
        fn name(&self) -> Option<KStringRef<'_>> {
            self.parent.name()
        }
        fn set_index(&self, name: KString, value: Value) -> Option<Value> {
            self.parent.set_index(name, value)
        }
        fn get_index<'a>(&'a self, name: &str) -> Option<ValueCow<'a>> {
            self.parent.get_index(name)
        }
        fn registers(&self) -> &Registers {
            self.parent.registers()
        }
    };
}

impl<R: Runtime> Runtime for Root<'_, R> {
    fn roots(&self) -> BTreeSet<KStringCow<'_>> {
        let mut names = self.parent.roots();
        names.extend(self.globals.keys());
        names.extend(self.variables.borrow().keys().map(|name| KStringCow::from(name.clone())));
        names
    }

    fn try_get(&self, path: &[ScalarCow<'_>]) -> Option<ValueCow<'_>> {
        let (name, within) = path.split_first()?;
        let name = name.to_kstr();
        if let Some(value) = self.variable(&name) {
            try_find(value, within)
        } else if self.globals.contains_key(&name) {
            try_find(self.globals.as_value(), path)
        } else {
            self.parent.try_get(path)
        }
    }

    fn get(&self, path: &[ScalarCow<'_>]) -> Result<ValueCow<'_>> {
        let Some((name, within)) = path.split_first() else { return self.parent.get(path) };
        let name = name.to_kstr();
        if let Some(value) = self.variable(&name) {
            let unknown = || Error::with_msg("Unknown index").context("variable", name.to_string());
            try_find(value, within).ok_or_else(unknown)
        } else if self.globals.contains_key(&name) {
            find(self.globals.as_value(), path)
        } else {
            self.parent.get(path)
        }
    }

    fn set_global(&self, name: KString, value: Value) -> Option<Value> {
        let place = self.values.keep(View::from_copy(value));
        self.variables.borrow_mut().insert(name, place);
        // The value before is of no use to anyone.
        None
    }

    passed_down!();
}

impl<R: Runtime, V: ObjectView> Runtime for Scope<'_, R, V> {
    fn roots(&self) -> BTreeSet<KStringCow<'_>> {
        let mut names = self.parent.roots();
        names.extend(self.values.keys());
        names
    }

    fn try_get(&self, path: &[ScalarCow<'_>]) -> Option<ValueCow<'_>> {
        let is_here = path.first().is_some_and(|name| self.values.contains_key(&name.to_kstr()));
        if is_here { try_find(self.values.as_value(), path) } else { self.parent.try_get(path) }
    }

    fn get(&self, path: &[ScalarCow<'_>]) -> Result<ValueCow<'_>> {
        let is_here = path.first().is_some_and(|name| self.values.contains_key(&name.to_kstr()));
        if is_here { find(self.values.as_value(), path) } else { self.parent.get(path) }
    }

    fn set_global(&self, name: KString, value: Value) -> Option<Value> {
        self.parent.set_global(name, value)
    }

    passed_down!();
}
