//! Filters, facets, sort and distinct, and the columns they read.
//!
//! A document's *facts* ([`extract`]) are what these features need to know about it. [`columns`] stores them in the trees of a
//! partition, both inverted (which documents have this value) and by document (which values it has). [`filter`] evaluates to
//! bitmaps, [`sort`] to keys that merge across partitions, [`distribution`] to counts that merge.
//!
//! Everything here is synchronous and pure over a snapshot: callers on an executor decide when to yield.

pub mod columns;
pub mod distinct;
pub mod distribution;
pub mod extract;
pub mod facet_search;
pub mod filter;
pub mod folding;
pub mod geo;
pub mod normalise;
pub mod sort;
mod source;
#[cfg(test)]
pub(crate) mod test_support;

pub use columns::{ColumnWriter, Columns};
pub use extract::{Extractor, Facts};
pub use filter::{
    Filter, FilterFeatureSet, parse_filter, parse_filter_in_steps, parse_filter_parameter, parse_filter_text,
};
pub use sort::{SortBy, SortCriterion, SortKey, parse_sort, parse_sort_parameter};
pub use source::{FacetError, FacetSource, in_network_shard};
