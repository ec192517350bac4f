//! Formatting of hits: selected attributes, highlighting, cropping, positions of matches.
//!
//! A [`FormatPlan`] is built once per search and is plain data; [`HitWriter`] writes hits with it on the core that owns the
//! document. A hit that is shown whole is spliced from the stored JSON without being parsed.

pub mod crop;
pub mod hit;
pub mod matcher;
pub mod plan;
pub mod select;
pub mod text;

pub use hit::{FederationMark, HitExtras, HitWriter, MergingMark};
pub use matcher::{MatchWords, TextMatch};
pub use plan::FormatPlan;
