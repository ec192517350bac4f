//! Distinct: groups of documents that share a value, of which at most one is returned.

use ahash::AHashSet;
use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use crate::error::UserError;
use crate::facets::columns::{BlockUnion, ColumnError, DistinctValues, DocValues};
use crate::facets::source::FacetSource;
use crate::ids::LocalDocId;
use crate::settings::Settings;

/// One value that a group is made of, the same on every partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupValue {
    /// `normalise::number_bits`: `1` and `1.0` are one group.
    Number(u64),
    /// A normalised string.
    String(Box<str>),
}

/// Checks that a request's own `distinct` may be used: the attribute must be filterable. The setting needs no check.
pub fn check_distinct(field: &str, settings: &Settings, code: &'static str) -> Result<(), UserError> {
    let filter = settings.filterable(field).map(|features| features.filter);
    if filter.is_some_and(|filter| filter.equality || filter.comparison) {
        return Ok(());
    }
    let told = settings.filterable_told();
    Err(UserError::new(
        code,
        format!("attribute `{field}` is not filterable and thus cannot be used as distinct; {told}"),
    ))
}

/// The values of a document on the distinct field. A document without any belongs to no group and is always kept.
pub fn group_values(
    source: &dyn FacetSource,
    field: &str,
    document: LocalDocId,
) -> Result<Vec<GroupValue>, ColumnError> {
    let Some(field) = source.fields().id(field) else { return Ok(Vec::new()) };
    Ok(source.columns().values(field, document)?.map(groups_of).unwrap_or_default())
}

/// The groups that a document's values on the distinct field make.
pub fn groups_of(values: DocValues<'_>) -> Vec<GroupValue> {
    let numbers = values.numbers().map(GroupValue::Number);
    numbers.chain(values.strings().map(|(value, _)| GroupValue::String(value.into()))).collect()
}

/// Adds the documents of the partition that have this value.
pub fn add_members(
    source: &dyn FacetSource,
    field: &str,
    value: &GroupValue,
    members: &mut BlockUnion,
) -> Result<(), ColumnError> {
    let Some(field) = source.fields().id(field) else { return Ok(()) };
    match value {
        GroupValue::Number(bits) => source.columns().add_with_number(field, *bits, members),
        GroupValue::String(value) => source.columns().add_with_string(field, value, members),
    }
}

/// The groups of these documents, told apart by their values where partitions are to be added up (`notes`). `None` when a document
/// is in several groups: then the order of the documents decides which are left.
pub async fn count_groups(
    source: &dyn FacetSource,
    field: &str,
    documents: &RoaringBitmap,
    notes: bool,
    pace: &dyn Pace,
) -> Result<Option<DistinctValues>, ColumnError> {
    let Some(field) = source.fields().id(field) else { return Ok(Some(DistinctValues::default())) };
    source.columns().distinct_values(field, (documents, source.documents()), notes, pace).await
}

/// The groups met so far while walking documents in their final order.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    taken: AHashSet<GroupValue>,
}

impl Groups {
    /// Whether the next document is kept: none of its values was taken before. It then takes all of them; a document that
    /// is dropped takes none.
    pub fn admit(&mut self, values: Vec<GroupValue>) -> bool {
        if values.iter().any(|value| self.taken.contains(value)) {
            return false;
        }
        self.taken.extend(values);
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facets::test_support::{Facets, filterable};

    #[test]
    fn any_shared_value_makes_a_group() {
        let documents = [
            json!({"g": ["a", 1]}),
            json!({"g": "A "}),
            json!({"g": 1.0}),
            json!({"g": "1"}),
            json!({"g": null}),
            json!({"h": 1}),
            json!({"g": ["b", "a"]}),
            json!({"g": "b"}),
        ];
        let facets = Facets::with(filterable(&["g"]), documents);
        let mut groups = Groups::default();
        let values = |document| group_values(&facets, "g", LocalDocId(document)).expect("memory does not fail");
        let kept: Vec<u32> = (0..8).filter(|document| groups.admit(values(*document))).collect();
        assert_eq!(kept, [0, 3, 4, 5, 7], "a dropped document takes nothing");
        let mut members = BlockUnion::default();
        for value in values(0) {
            add_members(&facets, "g", &value, &mut members).expect("memory does not fail");
        }
        assert_eq!(members.finish().iter().collect::<Vec<_>>(), [0, 1, 2, 6]);
        assert!(
            check_distinct("g", &facets.settings, "c").is_ok() && check_distinct("h", &facets.settings, "c").is_err()
        );
    }
}
