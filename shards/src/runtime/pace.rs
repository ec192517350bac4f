//! Giving way inside loops over many small items.

use storage_engine::vector::Pace;

/// Lets others run when they wait, once in `every` items; `at` counts them.
pub async fn pause_at(at: usize, every: usize, pace: &dyn Pace) {
    if at.is_multiple_of(every) && pace.due() {
        pace.pause().await;
    }
}
