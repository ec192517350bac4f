//! Tasks: accepted changes, from the moment they are acknowledged until they are deleted.
//!
//! [`task`] is one change and its outcome, [`batch`] a group of tasks that were processed together. [`queue`] looks up tasks and
//! [`batches`] looks up batches, both from compact in-memory indexes. [`batcher`] decides what is processed next.

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
