//! Yielding inside loops over many small items.

use std::future::Future;
use std::pin::Pin;

use storage_engine::vector::Pace;

use super::Runtime;

/// Lets others run when they wait for the core.
pub async fn pause(pace: &dyn Pace) {
    if pace.due() {
        pace.pause().await;
    }
}

/// The same once in `every` items; `at` counts them.
pub async fn pause_at(at: usize, every: usize, pace: &dyn Pace) {
    if at.is_multiple_of(every) {
        pause(pace).await;
    }
}

/// The pace of a core.
pub struct RuntimePace<'r>(pub &'r dyn Runtime);

impl Pace for RuntimePace<'_> {
    fn due(&self) -> bool {
        self.0.should_yield()
    }

    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        self.0.yield_now()
    }
}
