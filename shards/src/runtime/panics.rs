//! Panics as values. A bug in one task must not take the core down; a panic is logged once, where it is caught.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

/// The message of a panic that was caught.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Panicked(pub String);

/// What a panic said, for the log.
pub fn panic_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}

/// Runs a future to its end or its panic. What the future held is dropped either way; state it shares with others must be
/// left consistent between its awaits, as everywhere on a core.
pub async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|payload| Panicked(panic_text(&*payload)))
}
