//! Sort keys: what documents are compared by, the same on every partition.

use std::cmp::Reverse;

use ahash::AHashSet;
use smallvec::{SmallVec, smallvec};

use super::{SortBy, SortCriterion};
use crate::facets::columns::{ColumnError, Columns, Flag};
use crate::facets::geo::GeoPoint;
use crate::facets::normalise::{number_bits, number_of_bits};
use crate::facets::source::FacetSource;
use crate::ids::{FieldId, LocalDocId};

/// Criteria that may each put a document in two places on the documents routes; under further ones it has its best place only. A
/// document's places double with each, and there is no end to the criteria of a request.
const DOUBLING_CRITERIA_MAX: usize = 6;

/// A document's key for one criterion. Keys of one criterion compare in its direction: least comes first. Numbers precede
/// strings in both directions, and documents without a value come last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SortKey {
    /// Order-preserving bits of a number or of a distance in metres; inverted when descending.
    Number(u64),
    /// A normalised string, ascending.
    String(Box<str>),
    /// A normalised string, descending.
    StringDescending(Reverse<Box<str>>),
    /// No value.
    Missing,
}

/// A document's keys for all criteria: a later one decides when all before it are equal.
pub type SortKeys = SmallVec<[SortKey; 2]>;

/// What a key was made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SortValue<'k> {
    /// A number, or a distance in metres.
    Number(f64),
    /// A normalised string.
    String(&'k str),
    /// No value.
    Missing,
}

impl SortKey {
    /// The key of a number or distance.
    pub fn number(number: f64, descending: bool) -> Self {
        Self::of_bits(number_bits(number), descending)
    }

    pub(super) fn of_bits(bits: u64, descending: bool) -> Self {
        Self::Number(if descending { !bits } else { bits })
    }

    pub(super) fn string(value: &str, descending: bool) -> Self {
        if descending { Self::StringDescending(Reverse(value.into())) } else { Self::String(value.into()) }
    }

    /// The value, given the direction of the key's criterion.
    pub fn value(&self, descending: bool) -> SortValue<'_> {
        match self {
            Self::Number(bits) => SortValue::Number(number_of_bits(if descending { !bits } else { *bits })),
            Self::String(value) | Self::StringDescending(Reverse(value)) => SortValue::String(value),
            Self::Missing => SortValue::Missing,
        }
    }
}

/// The keys of each document, in the documents' order. A document with several values counts with its best one for the
/// direction; a number is better than any string.
pub fn sort_keys(
    source: &dyn FacetSource,
    criteria: &[SortCriterion],
    documents: impl IntoIterator<Item = LocalDocId>,
) -> Result<Vec<SortKeys>, ColumnError> {
    let reader = KeyReader::new(source, criteria);
    documents.into_iter().map(|document| reader.best(document)).collect()
}

/// Reads keys of single documents.
pub(super) struct KeyReader<'s> {
    columns: Columns<'s>,
    criteria: Vec<(Target, bool)>,
    /// So many of the criteria, the first ones, may put a document in two places.
    doubling: usize,
}

#[derive(Clone, Copy)]
pub(super) enum Target {
    /// `None`: the index has not met the field.
    Field(Option<FieldId>),
    Point(GeoPoint),
}

impl<'s> KeyReader<'s> {
    /// A criterion that came before is left out: it orders nothing, and makes keys longer.
    pub fn new(source: &'s dyn FacetSource, criteria: &[SortCriterion]) -> Self {
        let mut met = AHashSet::new();
        let mut different = Vec::new();
        for SortCriterion { by, descending } in criteria {
            let (target, identity) = match by {
                SortBy::Field(name) => {
                    let field = source.fields().id(name);
                    (Target::Field(field), (Some(field), 0, 0))
                }
                SortBy::Point { point, .. } => {
                    (Target::Point(*point), (None, point.lat.to_bits(), point.lng.to_bits()))
                }
            };
            if met.insert((identity, *descending)) {
                different.push((target, *descending));
            }
        }
        Self { columns: source.columns(), criteria: different, doubling: DOUBLING_CRITERIA_MAX }
    }

    /// Without the first criterion, which must be there; and that one.
    pub fn split_first(mut self) -> (Option<(Target, bool)>, Self) {
        let first = if self.criteria.is_empty() { None } else { Some(self.criteria.remove(0)) };
        self.doubling -= 1;
        (first, self)
    }

    /// Whether no criterion is left.
    pub fn is_empty(&self) -> bool {
        self.criteria.is_empty()
    }

    /// The keys by which a search places a document.
    pub fn best(&self, document: LocalDocId) -> Result<SortKeys, ColumnError> {
        let keys = |(target, descending): &(Target, bool)| {
            let (number, string) = self.candidates(*target, *descending, document)?;
            Ok(number.or(string).unwrap_or(SortKey::Missing))
        };
        self.criteria.iter().map(keys).collect()
    }

    /// The first `limit` places of a document on the documents routes, in order: one among the numbers and one among the strings
    /// if it has both, for each criterion; none if it has the field of a criterion but no value there.
    pub fn places(&self, document: LocalDocId, limit: usize) -> Result<Vec<SortKeys>, ColumnError> {
        let mut places: Vec<SortKeys> = vec![smallvec![]];
        for (at, (target, descending)) in self.criteria.iter().enumerate() {
            let (number, string) = self.candidates(*target, *descending, document)?;
            let mut keys: SmallVec<[SortKey; 2]> = number.into_iter().chain(string).collect();
            if keys.is_empty() && !self.drops(*target, document)? {
                keys.push(SortKey::Missing);
            }
            if at >= self.doubling {
                keys.truncate(1);
            }
            let extended = places.iter().flat_map(|place| {
                keys.iter().map(move |key| {
                    let mut place = place.clone();
                    place.push(key.clone());
                    place
                })
            });
            // A number precedes a string, so places come in order, and what is cut off can no longer come to the front.
            places = extended.take(limit).collect();
        }
        Ok(places)
    }

    /// Whether a document without a value still has the field: null, empty, an object or nothing but such things.
    fn drops(&self, target: Target, document: LocalDocId) -> Result<bool, ColumnError> {
        match target {
            Target::Field(Some(field)) => self.columns.is_flagged(field, Flag::Exists, document),
            _ => Ok(false),
        }
    }

    /// The best number and the best string.
    fn candidates(
        &self,
        target: Target,
        descending: bool,
        document: LocalDocId,
    ) -> Result<(Option<SortKey>, Option<SortKey>), ColumnError> {
        let field = match target {
            Target::Point(place) => {
                let distance = self.columns.point(document)?.map(|point| place.distance_m(point));
                return Ok((distance.map(|distance| SortKey::number(distance, descending)), None));
            }
            Target::Field(None) => return Ok((None, None)),
            Target::Field(Some(field)) => field,
        };
        let Some(values) = self.columns.values(field, document)? else { return Ok((None, None)) };
        let number = if descending { values.numbers().next_back() } else { values.numbers().next() };
        let string = if descending { values.strings().last() } else { values.strings().next() };
        Ok((
            number.map(|bits| SortKey::of_bits(bits, descending)),
            string.map(|(value, _)| SortKey::string(value, descending)),
        ))
    }
}
