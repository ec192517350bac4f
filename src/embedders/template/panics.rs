//! Panics of the library. Some filters compute with numbers of documents without looking at them first.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use liquid_core::error::{Error, Result};

thread_local! {
    /// Whether this thread renders a template. Panics are then errors of the document, about which the log says nothing.
    static RENDERS: Cell<bool> = const { Cell::new(false) };
}

/// What some work comes to; a panic is an error. Whatever the work changes is not to be looked at after that.
pub(super) fn caught(work: impl FnOnce() -> Result<()>) -> Result<()> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            if !RENDERS.get() {
                report(what);
            }
        }));
    });
    let before = RENDERS.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    RENDERS.set(before);
    result.unwrap_or_else(|panic| Err(Error::with_msg(told(&*panic))))
}

fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a filter cannot take these values").to_owned()
}
