//! The control plane: tasks, index names, API keys and feature switches of the instance.
//!
//! It has one writer, [`plane::ControlPlane`] on core 0. Every core has a [`handle::ControlHandle`], which sends requests to core
//! 0 and keeps the immutable [`state::ControlState`] that core 0 last published. A change is durable, and known to every core,
//! before it is acknowledged.
//!
//! On disk, `log/` holds accepted tasks with their payloads ([`storage::tasklog`]) and `control.store` holds finished ones
//! ([`storage::store`]). A batch that changed an index is finished by that index's own commit; after a crash [`open`] brings the
//! store up to date with it, so nothing is applied twice and nothing accepted is lost.

mod acknowledge;
mod change;
pub mod engine;
pub mod features;
pub mod handle;
pub mod inbox;
pub mod indexes;
pub mod message;
mod open;
pub mod plane;
mod query;
mod register;
pub mod spare_files;
pub mod state;
pub mod storage;
#[cfg(test)]
pub(crate) mod testing;

pub use features::{Features, FeaturesPatch};
pub use handle::{CONTROL_CORE, ControlHandle};
pub use message::{ControlChange, ControlError, ListQuery, Selection};
pub(crate) use plane::indexes_folder;
pub use plane::{ControlConfig, ControlPlane};
pub use state::ControlState;
