//! A search of one index: from the decoded request to the bytes of its hits.

pub mod answer;
pub mod request;

pub use answer::{FacetAnswer, SearchAnswer};
pub use request::{FormatRequest, MatchingStrategy, PageRequest, SearchRequest};
