//! Accepted changes, from the moment they are promised to the moment nobody asks for them any more.
//!
//! [`task`] is one change and its fate, [`batch`] some of them that were processed together. [`queue`] finds tasks,
//! [`batches`] finds batches, both from compact indexes in memory. [`batcher`] decides what is processed next.

pub mod batch;
pub mod batcher;
pub mod batches;
pub mod bitmap;
pub mod column;
pub mod filter;
pub mod kind;
pub mod queue;
pub mod task;
pub mod view;
mod work;
pub mod worker;
