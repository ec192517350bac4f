//! Limits the cost of rendering: loops and growing values could otherwise occupy a thread forever or fill the memory.

use std::collections::BTreeSet;

use liquid_core::error::{Error, Result};
use liquid_core::model::{KString, KStringCow, KStringRef, ScalarCow, Value, ValueCow, ValueView};
use liquid_core::runtime::{Interrupt, InterruptRegister, PartialStore, Registers, Runtime};

/// Elements of the template that are rendered, those of loops again in each round, and with them the bytes that are looked at,
/// [`STEP_BYTES`] of them for one element.
const STEPS_MAX: u64 = 1_000_000;
const STEP_BYTES: usize = 256;
/// Bytes of a value that a filter makes.
pub(super) const VALUE_BYTES_MAX: usize = 16 << 20;
/// Bytes of all values together that are assigned, those that others took the place of included.
const ASSIGNED_BYTES_MAX: usize = 64 << 20;
/// Bytes that a value takes besides its text.
pub(super) const VALUE_BYTES: usize = 32;

/// What a rendering has taken.
#[derive(Default)]
struct Taken {
    steps: u64,
    assigned_bytes: usize,
}

impl Taken {
    fn is_too_much(&self) -> bool {
        self.steps > STEPS_MAX || self.assigned_bytes > ASSIGNED_BYTES_MAX
    }
}

/// A runtime that counts what is rendered and looked at in it. Once that is too much, every template in it ends.
pub(super) struct Metered<R>(pub(super) R);

impl<R: Runtime> Metered<R> {
    /// The error of a rendering that has taken too much.
    pub(super) fn check(&self) -> Result<()> {
        if self.0.registers().get_mut::<Taken>().is_too_much() { Err(too_much()) } else { Ok(()) }
    }

    /// Counts, and says whether that is still allowed.
    fn take(&self, steps: u64) -> bool {
        let mut taken = self.0.registers().get_mut::<Taken>();
        taken.steps = taken.steps.saturating_add(steps);
        !taken.is_too_much()
    }

    fn look_at(&self, value: &ValueCow<'_>) -> bool {
        self.take(steps_of(value.as_view()))
    }
}

impl<R: Runtime> Runtime for Metered<R> {
    fn partials(&self) -> &dyn PartialStore {
        self.0.partials()
    }

    fn name(&self) -> Option<KStringRef<'_>> {
        self.0.name()
    }

    fn roots(&self) -> BTreeSet<KStringCow<'_>> {
        self.0.roots()
    }

    fn try_get(&self, path: &[ScalarCow<'_>]) -> Option<ValueCow<'_>> {
        self.0.try_get(path).filter(|value| self.look_at(value))
    }

    fn get(&self, path: &[ScalarCow<'_>]) -> Result<ValueCow<'_>> {
        let value = self.0.get(path)?;
        if self.look_at(&value) { Ok(value) } else { Err(too_much()) }
    }

    fn set_global(&self, name: KString, value: Value) -> Option<Value> {
        let is_too_much = {
            let mut taken = self.0.registers().get_mut::<Taken>();
            taken.assigned_bytes = taken.assigned_bytes.saturating_add(size(&value));
            taken.is_too_much()
        };
        self.0.set_global(name, if is_too_much { Value::Nil } else { value })
    }

    fn set_index(&self, name: KString, value: Value) -> Option<Value> {
        self.0.set_index(name, value)
    }

    fn get_index<'a>(&'a self, name: &str) -> Option<ValueCow<'a>> {
        self.0.get_index(name)
    }

    /// Templates ask for these after each of their elements.
    fn registers(&self) -> &Registers {
        if !self.take(1) {
            self.0.registers().get_mut::<InterruptRegister>().set(Interrupt::Break);
        }
        self.0.registers()
    }
}

/// Counts more steps.
///
/// # Errors
/// That it is too much.
pub(super) fn charge(runtime: &dyn Runtime, steps: u64) -> Result<()> {
    if Metered(runtime).take(steps) { Ok(()) } else { Err(too_much()) }
}

/// The steps that looking at a value counts for.
pub(super) fn steps_of(value: &dyn ValueView) -> u64 {
    1 + (size(value) / STEP_BYTES) as u64
}

/// About how many bytes a value takes.
pub(super) fn size(value: &dyn ValueView) -> usize {
    let within = if let Some(scalar) = value.as_scalar() {
        scalar.to_kstr().len()
    } else if let Some(items) = value.as_array() {
        items.values().map(size).sum()
    } else if let Some(fields) = value.as_object() {
        fields.iter().map(|(name, value)| name.len() + size(value)).sum()
    } else {
        0
    };
    VALUE_BYTES + within
}

/// The error of a rendering that takes too much.
pub(super) fn too_much() -> Error {
    Error::with_msg("the template takes too many steps or too much memory")
}
