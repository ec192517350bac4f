//! Facet distribution: how many of the matching documents have each value, and the minimum and maximum of numbers.
//!
//! Each partition counts ([`count_facets`]), the counts are merged ([`FacetCounts::merged`]), and the result is sorted and
//! truncated ([`FacetCounts::finish`]). It does not depend on how documents are partitioned.

mod count;
mod counts;
mod finish;
#[cfg(test)]
mod tests;

pub use count::count_facets;
pub use counts::FacetCounts;
pub use finish::{Distribution, FacetValues};

use crate::error::UserError;
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::settings::{FacetOrder, Settings, covers_subtree};

/// Up to this many matching documents their values are read one by one, and numbers are ordered as text.
pub const EXACT_DOCUMENTS_MAX: u64 = 3000;

/// Which facets to count and how to show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FacetPlan {
    /// In alphabetical order.
    pub facets: Vec<PlannedFacet>,
    /// `maxValuesPerFacet`.
    pub values_max: u64,
    /// Whether every string is wanted, however many numbers a partition has.
    pub all_strings: bool,
}

/// One facet to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFacet {
    /// The field.
    pub field: FieldId,
    /// Its path.
    pub name: String,
    /// The order of its values.
    pub order: FacetOrder,
}

/// Checks that every name can be a facet; fails with `code`. A `*` in the list switches the check off.
pub fn check_facets(names: &[String], settings: &Settings, code: &'static str) -> Result<(), UserError> {
    if names.iter().any(|name| name == "*") {
        return Ok(());
    }
    match names.iter().find(|name| !is_facet(settings, name)) {
        Some(name) => {
            let told = settings.filterable_told();
            Err(UserError::new(code, format!("attribute `{name}` is not filterable and thus no facet; {told}")))
        }
        None => Ok(()),
    }
}

fn is_facet(settings: &Settings, field: &str) -> bool {
    settings.filterable(field).is_some_and(|features| features.filter.equality || features.filter.comparison)
}

impl FacetPlan {
    /// The facets that names (checked before) stand for: each with all fields below it, `*` for all, as far as the index
    /// has met them.
    pub fn new(names: &[String], fields: &FieldsMap, settings: &Settings) -> Self {
        let all = names.iter().any(|name| name == "*");
        let wanted =
            |name: &str| (all || names.iter().any(|chosen| covers_subtree(chosen, name))) && is_facet(settings, name);
        // Only a facet that was named itself has an order of its own, and only where nothing was named `*`.
        let order = |name: &str| {
            let is_named = !all && names.iter().any(|chosen| chosen == name);
            settings.faceting.order(if is_named { name } else { "*" })
        };
        let mut facets: Vec<_> = fields
            .iter()
            .filter(|(_, name)| wanted(name))
            .map(|(field, name)| PlannedFacet { field, name: name.to_owned(), order: order(name) })
            .collect();
        facets.sort_by(|left, right| left.name.cmp(&right.name));
        Self { facets, values_max: settings.faceting.max_values_per_facet, all_strings: false }
    }
}
