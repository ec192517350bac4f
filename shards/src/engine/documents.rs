//! Reading stored documents, from any core.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use serde_json::Value;

use super::catalog_side::partitions;
use super::listing::{Listed, page_of};
use super::messages::{Answer, Listing, Place, ReadQuestion};
use super::types::{DocumentsPage, DocumentsQuery, EngineError, IndexView};
use super::{Engine, answer_as};
use crate::document::RawDocument;
use crate::error::UserError;
use crate::facets::columns::{Cut, DEEP_OFFSET, Mark};
use crate::facets::sort::{SortKeys, check_sort, check_sort_points};
use crate::facets::{Filter, SortCriterion, parse_filter, parse_sort};
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::runtime::{RuntimePace, pause_at};
use crate::sorted_lists::walk_window;

/// How often a read begins anew because the index has moved on too far in the meantime.
const ATTEMPTS_MAX: u32 = 3;
/// Documents that are sorted by owner, and back, between two looks at whether others wait.
const DOCUMENTS_PER_LOOK: usize = 256;
const FILTER_CODE: &str = "invalid_document_filter";
const SORT_CODE: &str = "invalid_document_sort";

/// A query that was checked against an index.
struct CheckedQuery {
    filter: Option<Filter>,
    sort: Vec<SortCriterion>,
    /// What is wrong with the order. Mistakes that only show while the filter is evaluated are reported before.
    refused: Option<UserError>,
}

impl Engine {
    /// The document of an external id; `None` when the index has none.
    pub async fn document(&self, index: &IndexView, id: &str) -> Result<Option<RawDocument>, EngineError> {
        let query = DocumentsQuery { ids: Some(vec![id.to_owned()]), limit: 1, ..DocumentsQuery::default() };
        let page = self.documents(index, query).await?;
        let known = index.fields.len();
        let document = page.documents.into_iter().next();
        // Names that the caller's view lacks came with a change after it; the caller must look again.
        match document {
            Some(document) if document.fields.iter().any(|(field, _)| usize::from(field.0) >= known) => {
                Err(EngineError::Gone)
            }
            document => Ok(document),
        }
    }

    /// A page of documents.
    pub async fn documents(&self, index: &IndexView, query: DocumentsQuery) -> Result<DocumentsPage, EngineError> {
        let mut found = self.documents_at(index, &query).await;
        for _ in 1..ATTEMPTS_MAX {
            if !matches!(found, Err(EngineError::Gone)) {
                break;
            }
            let latest = self.moved_on(index.id).await?;
            found = self.documents_at(&latest, &query).await;
        }
        found
    }

    async fn documents_at(&self, view: &IndexView, query: &DocumentsQuery) -> Result<DocumentsPage, EngineError> {
        let mut checked = check(view, query)?;
        if let Some(error) = checked.refused.take() {
            let none = DocumentsQuery { offset: 0, limit: 0, ..query.clone() };
            self.list(view, &none, CheckedQuery { sort: Vec::new(), ..checked }, None).await?;
            return Err(error.into());
        }
        let among = match &query.ids {
            Some(ids) => Some(self.look_up(view, ids).await?),
            None => None,
        };
        let (total, page) = self.list(view, query, checked, among).await?;
        let documents = self.fetch(view, &page, query.vectors).await?;
        Ok(DocumentsPage { documents, total, fields: view.fields.clone() })
    }

    /// The documents of external ids, by partition.
    async fn look_up(&self, view: &IndexView, ids: &[String]) -> Result<Vec<Vec<LocalDocId>>, EngineError> {
        let count = view.partition_count();
        let mut by_partition = vec![Vec::new(); usize::from(count)];
        let question = ReadQuestion::LookUp(ids.to_vec());
        let answer = self.ask_to_read(first(view), view.epoch, question).await;
        for doc in answer_as!(answer, Answer::Numbers(numbers) => numbers)?.into_iter().flatten() {
            by_partition[usize::from(doc.partition(count).0)].push(doc.local(count));
        }
        Ok(by_partition)
    }

    /// The total and the documents of the page, in order.
    async fn list(
        &self,
        view: &IndexView,
        query: &DocumentsQuery,
        checked: CheckedQuery,
        mut among: Option<Vec<Vec<LocalDocId>>>,
    ) -> Result<(u64, Vec<DocId>), EngineError> {
        let count = view.partition_count();
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (offset, limit) = (size(query.offset), size(query.limit));
        let behind = if among.is_none() { self.cut_before(view, query, &checked).await? } else { None };
        let before = behind.as_ref().map_or(0, |(_, before)| size(*before));
        // One partition alone knows what to pass over; of several each must name all that may come first.
        let is_alone = count == 1 && !checked.sort.is_empty() && behind.is_none();
        let (skip, wanted) = if is_alone { (offset, limit) } else { (0, offset.saturating_add(limit) - before) };
        let asked = partitions(first(view), count).map(|place| {
            let listing = Listing {
                among: among.as_mut().map(|among| std::mem::take(&mut among[usize::from(place.partition.0)])),
                behind: behind.as_ref().map(|(cut, _)| cut.clone()),
                skip,
                limit: wanted,
                ..listing(&place, count, query, &checked)
            };
            let question = ReadQuestion::List(Box::new(listing));
            async move {
                answer_as!(self.ask_to_read(place, view.epoch, question).await, Answer::Listed(total, docs) => (total, docs))
            }
        });
        let asked: Vec<_> = asked.collect();
        let (mut total, mut before, mut lists): (u64, u64, Vec<Vec<(SortKeys, DocId)>>) = (0, skip as u64, Vec::new());
        let mut numbers = Vec::new();
        for (part, docs) in try_join_all(asked).await? {
            total += part;
            match docs {
                Listed::Numbers(docs) => numbers.push(docs),
                Listed::Sorted(docs, passed) => {
                    before += passed;
                    lists.push(docs);
                }
            }
        }
        if !numbers.is_empty() {
            let page = page_of(&numbers, (offset, limit), &RuntimePace(&*self.runtime)).await;
            return Ok((total, page));
        }
        let window = (offset.saturating_sub(size(before)), limit);
        let mut page = Vec::with_capacity(lists.iter().map(Vec::len).sum::<usize>().min(limit));
        walk_window(lists, window, Ord::cmp, |(_, doc)| page.push(doc), &RuntimePace(&*self.runtime)).await;
        Ok((total, page))
    }

    /// For a page far behind in the order of a field, where its documents begin, and how many come before that at least.
    async fn cut_before(
        &self,
        view: &IndexView,
        query: &DocumentsQuery,
        checked: &CheckedQuery,
    ) -> Result<Option<(Cut, u64)>, EngineError> {
        let [criterion] = &*checked.sort else { return Ok(None) };
        if query.offset < DEEP_OFFSET {
            return Ok(None);
        }
        let count = view.partition_count();
        let page_end = usize::try_from(query.offset.saturating_add(query.limit)).unwrap_or(usize::MAX);
        let asked = partitions(first(view), count).map(|place| {
            let listing = Listing { limit: page_end, ..listing(&place, count, query, checked) };
            let question = ReadQuestion::Marks(Box::new(listing));
            async move { answer_as!(self.ask_to_read(place, view.epoch, question).await, Answer::Marks(marks) => marks) }
        });
        let asked: Vec<_> = asked.collect();
        let marks: Option<Vec<Vec<Mark>>> = try_join_all(asked).await?.into_iter().collect();
        Ok(marks.and_then(|marks| Cut::before_page(&marks, criterion.descending, query.offset)))
    }

    /// Stored documents, in the order given.
    async fn fetch(&self, view: &IndexView, docs: &[DocId], vectors: bool) -> Result<Vec<RawDocument>, EngineError> {
        let count = view.partition_count();
        let mut by_partition: BTreeMap<PartitionNo, Vec<LocalDocId>> = BTreeMap::new();
        let pace = RuntimePace(&*self.runtime);
        for (at, doc) in docs.iter().enumerate() {
            by_partition.entry(doc.partition(count)).or_default().push(doc.local(count));
            pause_at(at + 1, DOCUMENTS_PER_LOOK, &pace).await;
        }
        let asked = by_partition.into_iter().map(|(partition, docs)| async move {
            let place = Place { partition, ..first(view) };
            let question = ReadQuestion::Documents { docs, vectors };
            let answer = self.ask_to_read(place, view.epoch, question).await;
            answer_as!(answer, Answer::Documents(documents) => (partition, documents.into_iter()))
        });
        let mut found: BTreeMap<_, _> = try_join_all(asked).await?.into_iter().collect();
        let mut documents = Vec::with_capacity(docs.len());
        for (at, doc) in docs.iter().enumerate() {
            documents.extend(found.get_mut(&doc.partition(count)).and_then(Iterator::next));
            pause_at(at + 1, DOCUMENTS_PER_LOOK, &pace).await;
        }
        Ok(documents)
    }
}

/// A query as one partition sees it, all of it.
fn listing(place: &Place, count: u16, query: &DocumentsQuery, checked: &CheckedQuery) -> Listing {
    let from = query
        .after
        .map_or(0, |after| after.local(count).0.saturating_add(u32::from(place.partition <= after.partition(count))));
    Listing {
        from: LocalDocId(from),
        among: None,
        filter: checked.filter.clone(),
        sort: checked.sort.clone(),
        behind: None,
        skip: 0,
        limit: 0,
    }
}

fn first(view: &IndexView) -> Place {
    Place { index: view.id, layout: view.layout, partition: PartitionNo(0) }
}

fn check(view: &IndexView, query: &DocumentsQuery) -> Result<CheckedQuery, EngineError> {
    let filter = query.filter.as_ref().map(|filter| parse_filter(filter, FILTER_CODE)).transpose()?.flatten();
    if let Some(filter) = &filter {
        filter.check_attributes(&view.settings)?;
    }
    let sort = if query.sort.is_empty() {
        Vec::new()
    } else {
        parse_sort(&query.sort.iter().cloned().map(Value::from).collect(), SORT_CODE)?
    };
    let refused = check_sort(&sort, &view.settings, SORT_CODE);
    let refused = refused.and_then(|()| check_sort_points(&sort, &view.fields, SORT_CODE)).err();
    Ok(CheckedQuery { filter, sort, refused })
}
