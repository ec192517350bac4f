//! The top documents by sort criteria.

use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::SortCriterion;
use super::keys::{KeyReader, SortKey, SortKeys, Target};
use crate::facets::columns::{ColumnError, Columns, Cut, FieldOrder, FieldValue, Flag, Mark, take_common};
use crate::facets::source::FacetSource;
use crate::ids::{FieldId, LocalDocId};
use crate::rank::runs::sorted;
use crate::runtime::pause_at;

/// Up to this many candidates their keys are read one by one in any case.
const READ_CANDIDATES: u64 = 1000;
/// Documents read between two looks at whether others wait.
const DOCUMENTS_PER_LOOK: usize = 32;

/// Pieces of a field that are passed over between two such looks.
const PIECES_PER_LOOK: usize = 32;

/// How documents with several values, or with none, are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortMode {
    /// Once each, at the best value; those without one come last.
    Search,
    /// As the documents routes do: twice if the field holds numbers and strings, not at all if it is there without a value;
    /// last if it is not there.
    Documents,
}

/// The first `limit` places in order, with their keys: partitions merge by keys, then by the documents' numbers in the
/// index. Documents with equal keys come in the order of their numbers.
pub async fn sorted_page(
    source: &dyn FacetSource,
    criteria: &[SortCriterion],
    candidates: &RoaringBitmap,
    limit: usize,
    mode: SortMode,
    pace: &dyn Pace,
) -> Result<Vec<(SortKeys, LocalDocId)>, ColumnError> {
    if is_walk_better(candidates.len(), limit as u64, source.documents().len())
        && let Some(page) = walk(source, criteria, candidates, limit, (mode, pace)).await?
    {
        return Ok(page);
    }
    read(&KeyReader::new(source, criteria), candidates, limit, (mode, pace)).await
}

/// Marks along the order of the documents routes, see [`Columns::marks`]; `None` where there are none, also where places do not
/// follow from one field.
pub async fn sort_marks(
    source: &dyn FacetSource,
    criteria: &[SortCriterion],
    candidates: &RoaringBitmap,
    page_end: u64,
    pace: &dyn Pace,
) -> Result<Option<Vec<Mark>>, ColumnError> {
    let Some(order) = only_order(source, criteria) else { return Ok(None) };
    source.columns().held_by(source.resident_fields()).marks(order, candidates, (page_end, page_end), pace).await
}

/// As [`sorted_page`] on the documents routes, without the places before a cut; and how many these are. `None` where there are no
/// marks.
pub async fn sorted_page_behind(
    source: &dyn FacetSource,
    criteria: &[SortCriterion],
    cut: &Cut,
    (candidates, limit): (&RoaringBitmap, usize),
    pace: &dyn Pace,
) -> Result<Option<(Vec<(SortKeys, LocalDocId)>, u64)>, ColumnError> {
    let Some(order) = only_order(source, criteria) else { return Ok(None) };
    let columns = source.columns().held_by(source.resident_fields());
    let (mode, rest) = (SortMode::Documents, KeyReader::new(source, &[]));
    let before = columns.before(order, cut, candidates, pace).await?;
    let behind = Some((cut, &before.documents));
    let walk =
        Walk { columns, field: order.field, descending: order.descending, behind, candidates, rest, limit, mode };
    Ok(Some((walk.run(pace).await?, before.count)))
}

/// The field that alone decides the order, if one does.
fn only_order(source: &dyn FacetSource, criteria: &[SortCriterion]) -> Option<FieldOrder> {
    let (first, rest) = KeyReader::new(source, criteria).split_first();
    let Some((Target::Field(Some(field)), descending)) = first.filter(|_| rest.is_empty()) else { return None };
    Some(FieldOrder { field, descending, twice: true })
}

/// Walks the values of the first criterion; `None` if that is not a field of the index.
pub(super) async fn walk(
    source: &dyn FacetSource,
    criteria: &[SortCriterion],
    candidates: &RoaringBitmap,
    limit: usize,
    (mode, pace): (SortMode, &dyn Pace),
) -> Result<Option<Vec<(SortKeys, LocalDocId)>>, ColumnError> {
    let (first, rest) = KeyReader::new(source, criteria).split_first();
    let Some((Target::Field(Some(field)), descending)) = first else { return Ok(None) };
    let columns = source.columns().held_by(source.resident_fields());
    let (mut cut, none) = (None, RoaringBitmap::new());
    // A filter may have left out the documents that come first.
    if candidates.len() < source.documents().len()
        && let Some(mut pieces) = columns.piece_walk(field, descending, 0, pace).await?
    {
        while pieces.seek(candidates, PIECES_PER_LOOK).is_some_and(|found| found.is_empty()) {
            pause_at(0, 1, pace).await;
        }
        cut = pieces.cut()?;
    }
    let behind = cut.as_ref().map(|cut| (cut, &none));
    let walk = Walk { columns, field, descending, behind, candidates, rest, limit, mode };
    walk.run(pace).await.map(Some)
}

/// A walk over the field's values meets a candidate every `documents / candidates` documents, until it has `limit`; reading
/// costs one look-up for each candidate.
fn is_walk_better(candidates: u64, limit: u64, documents: u64) -> bool {
    candidates > READ_CANDIDATES && limit.saturating_mul(documents) < candidates.saturating_mul(candidates)
}

/// The least places met so far.
struct Least<'r> {
    reader: &'r KeyReader<'r>,
    places: BinaryHeap<(SortKeys, LocalDocId)>,
    limit: usize,
    mode: SortMode,
}

impl<'r> Least<'r> {
    fn new(reader: &'r KeyReader<'r>, limit: usize, mode: SortMode) -> Self {
        Self { reader, places: BinaryHeap::new(), limit, mode }
    }

    /// Reads the keys of a document and keeps them if they are among the least.
    fn add(&mut self, document: LocalDocId) -> Result<(), ColumnError> {
        let places = match self.mode {
            SortMode::Search => vec![self.reader.best(document)?],
            SortMode::Documents => self.reader.places(document, self.limit)?,
        };
        for keys in places {
            if self.places.len() < self.limit {
                self.places.push((keys, document));
            } else if let Some(mut greatest) = self.places.peek_mut()
                && (&keys, document) < (&greatest.0, greatest.1)
            {
                *greatest = (keys, document);
            }
        }
        Ok(())
    }
}

/// Reads the keys of every candidate and keeps the least.
pub(super) async fn read(
    reader: &KeyReader<'_>,
    candidates: &RoaringBitmap,
    limit: usize,
    (mode, pace): (SortMode, &dyn Pace),
) -> Result<Vec<(SortKeys, LocalDocId)>, ColumnError> {
    let mut least = Least::new(reader, limit, mode);
    least.places.reserve(limit.min(candidates.len() as usize));
    for (number, document) in candidates.iter().map(LocalDocId).enumerate() {
        if number % DOCUMENTS_PER_LOOK == 0 && pace.due() {
            pace.pause().await;
        }
        least.add(document)?;
    }
    Ok(sorted(least.places.into_vec(), Ord::cmp, pace).await)
}

/// Walks the values of the first criterion's field in order.
struct Walk<'c> {
    columns: Columns<'c>,
    field: FieldId,
    descending: bool,
    /// Where to begin, and the documents that come before with values of the same kind.
    behind: Option<(&'c Cut, &'c RoaringBitmap)>,
    candidates: &'c RoaringBitmap,
    /// The other criteria.
    rest: KeyReader<'c>,
    limit: usize,
    mode: SortMode,
}

/// Candidates that are equal in the first criterion.
type Group = (SortKey, RoaringBitmap);

/// What a walk has met.
struct Met {
    groups: Vec<Group>,
    /// Candidates that may still come in a group.
    remaining: RoaringBitmap,
    /// So many documents are still to be met.
    missing: u64,
}

impl Met {
    /// Takes the documents of one value that were not met before.
    fn take(&mut self, key: SortKey, documents: RoaringBitmap) -> ControlFlow<()> {
        if self.missing == 0 || self.remaining.is_empty() {
            return ControlFlow::Break(());
        }
        let group = take_common(&mut self.remaining, documents);
        self.push(key, group);
        ControlFlow::Continue(())
    }

    fn push(&mut self, key: SortKey, group: RoaringBitmap) {
        if !group.is_empty() {
            self.missing = self.missing.saturating_sub(group.len());
            self.groups.push((key, group));
        }
    }
}

impl Walk<'_> {
    /// Groups are read after the walk that met them: the keys of a large one take long, and a visit cannot pause.
    async fn run(self, pace: &dyn Pace) -> Result<Vec<(SortKeys, LocalDocId)>, ColumnError> {
        let mut page = Vec::with_capacity(self.limit.min(self.candidates.len() as usize));
        let (mut wanted, mut done) = (self.limit as u64, 0);
        loop {
            let (groups, is_over) = self.groups(wanted, pace).await?;
            let count = groups.len();
            for (key, group) in groups.into_iter().skip(done) {
                if page.len() >= self.limit {
                    break;
                }
                self.append(key, &group, &mut page, pace).await?;
            }
            if is_over || page.len() >= self.limit {
                return Ok(page);
            }
            // The other criteria have dropped documents. Walking on means walking anew, so much farther.
            (wanted, done) = (wanted.saturating_mul(2), count);
        }
    }

    /// The first groups, with at least `wanted` documents if there are so many; and whether there are no others.
    async fn groups(&self, wanted: u64, pace: &dyn Pace) -> Result<(Vec<Group>, bool), ColumnError> {
        let (columns, order, descending) = (self.columns, (self.field, self.descending), self.descending);
        let from = self.behind.map(|(cut, _)| cut);
        let mut met = Met { groups: Vec::new(), remaining: self.remaining(false), missing: wanted };
        let mut values = 0;
        let mut visit = |bits: &u64, documents: RoaringBitmap| {
            values += 1;
            Ok(met.take(SortKey::of_bits(*bits, descending), documents))
        };
        columns.walk_numbers(order, from, &mut visit, pace).await?;
        if self.mode == SortMode::Documents {
            met.remaining = self.remaining(true);
        }
        if met.missing > 0 {
            let mut visit = |value: &str, documents: RoaringBitmap| {
                values += 1;
                Ok(met.take(SortKey::string(value, descending), documents))
            };
            columns.walk_strings(order, from, &mut visit, pace).await?;
        }
        columns.add_walked(self.field, values);
        if met.missing == 0 {
            return Ok((met.groups, false));
        }
        let without = match self.mode {
            SortMode::Search => std::mem::take(&mut met.remaining),
            SortMode::Documents => self.candidates - columns.flagged(self.field, Flag::Exists)?,
        };
        met.push(SortKey::Missing, without);
        Ok((met.groups, true))
    }

    /// The candidates that may come with a number, or with a string.
    fn remaining(&self, of_strings: bool) -> RoaringBitmap {
        match self.behind {
            Some((Cut(Some(FieldValue::Number(_))), before)) if !of_strings => self.candidates - before,
            Some((Cut(Some(FieldValue::String(_))), before)) if of_strings => self.candidates - before,
            _ => self.candidates.clone(),
        }
    }

    /// Appends the documents of a group, as far as the page has room.
    async fn append(
        &self,
        key: SortKey,
        group: &RoaringBitmap,
        page: &mut Vec<(SortKeys, LocalDocId)>,
        pace: &dyn Pace,
    ) -> Result<(), ColumnError> {
        let room = self.limit - page.len();
        if self.rest.is_empty() {
            for document in group.iter().take(room) {
                page.push((SortKeys::from_iter([key.clone()]), LocalDocId(document)));
                pause_at(page.len(), DOCUMENTS_PER_LOOK, pace).await;
            }
            return Ok(());
        }
        for (mut keys, document) in read(&self.rest, group, room, (self.mode, pace)).await? {
            keys.insert(0, key.clone());
            page.push((keys, document));
            pause_at(page.len(), DOCUMENTS_PER_LOOK, pace).await;
        }
        Ok(())
    }
}
