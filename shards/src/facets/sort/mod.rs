//! Sorting: criteria, their validation, and keys that merge across partitions.

mod keys;
mod parse;
#[cfg(test)]
mod tests;
mod top;

pub use keys::{SortKey, SortKeys, SortValue, sort_keys};
pub use parse::{check_sort, check_sort_points, check_sort_rule, parse_sort, parse_sort_parameter};
pub use top::{SortMode, sort_marks, sorted_page, sorted_page_behind};

use crate::facets::geo::GeoPoint;

/// One criterion: a field or a place, and a direction.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct SortCriterion {
    /// What is compared.
    pub by: SortBy,
    /// Greatest value, or farthest point, first. Documents without one come last in both directions.
    pub descending: bool,
}

/// What a criterion compares.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum SortBy {
    /// The values on a dotted path: numbers come before strings in both directions.
    Field(String),
    /// The distance to a place.
    Point {
        /// The place.
        point: GeoPoint,
        /// Whether it was written in plain decimals: only then hits show `_geoDistance`.
        is_plain: bool,
    },
}

impl SortCriterion {
    /// By a field, as the ranking rules `field:asc` and `field:desc` do.
    pub fn field(name: impl Into<String>, descending: bool) -> Self {
        Self { by: SortBy::Field(name.into()), descending }
    }

    /// Bytes of its text.
    pub fn bytes(&self) -> usize {
        if let SortBy::Field(name) = &self.by { name.len() } else { 0 }
    }
}
