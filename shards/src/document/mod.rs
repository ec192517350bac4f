//! Documents: reading them from request bodies, validating them, and their stored form.

pub mod csv;
mod ids;
pub mod json;
mod members;
pub mod names;
pub mod payload;
pub mod primary_key;
pub mod record;
pub mod validate;
pub mod walk;

pub use ids::DocumentIds;
pub use payload::{PayloadCheck, PayloadError, PayloadFormat, check};
pub use record::{RawDocument, Record};
