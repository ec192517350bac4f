//! Request handlers of the core that owns a partition.

use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::home::PartitionHome;
use super::listing::{Listed, keep_first};
use super::messages::{Answer, EpochShare, Listing, PartitionQuestion, Place, ReadQuestion};
use super::search_side::RuntimePacer;
use super::{Engine, EngineError, StoreBytes};
use crate::document::RawDocument;
use crate::document::primary_key::{KeyFinder, is_valid};
use crate::facets::sort::{SortKeys, SortMode, sort_marks, sorted_page, sorted_page_behind};
use crate::facets::{FacetSource, Filter};
use crate::ids::{DocId, Epoch, LocalDocId};
use crate::index::draft::stored_number;
use crate::partition::PartitionError;
use crate::partition::reader::PartitionReader;
use crate::runtime::{Checkpoint, pause_at};

/// Documents that are named between two looks at whether others wait.
const DOCUMENTS_PER_LOOK: usize = 256;

/// Bounds what a partition keeps once a read of it ends, wherever that is.
struct KeptBounded<'e> {
    engine: &'e Engine,
    place: Place,
}

impl Drop for KeptBounded<'_> {
    fn drop(&mut self) {
        self.engine.bound_kept(self.place);
    }
}

impl Engine {
    /// Answers a question that only reads.
    pub(super) async fn read(&self, place: Place, epoch: Epoch, question: ReadQuestion) -> Result<Answer, EngineError> {
        let reader = self.partition(place)?.reader(epoch).ok_or(EngineError::Gone)?;
        // Also where it is dropped half-way: what it has kept stays.
        let _bounded = KeptBounded { engine: self, place };
        match question {
            ReadQuestion::Search(question) => self.search_part(reader, *question).await,
            other => Box::pin(self.read_documents(reader, other)).await,
        }
    }

    pub(super) async fn handle_partition(
        &self,
        place: Place,
        question: PartitionQuestion,
    ) -> Result<Answer, EngineError> {
        if let PartitionQuestion::Open(share) = question {
            return self.open_partition(place, &share).await;
        }
        if let PartitionQuestion::Forget = question {
            self.partitions.borrow_mut().remove(&place);
            self.forget_searches(move |asked| (asked.index, asked.layout) == (place.index, place.layout));
            return Ok(Answer::Done);
        }
        let home = self.partition(place)?;
        Ok(match question {
            PartitionQuestion::Begin { share, before, clear } => {
                home.begin(&share, &before, clear).await?;
                Answer::Done
            }
            PartitionQuestion::Apply(chunk) => {
                home.apply(&chunk).await?;
                Answer::Done
            }
            PartitionQuestion::Wanted { name, from, count, bytes } => {
                Answer::Wanted(home.wanted_texts(&name, from, (count, bytes))?)
            }
            PartitionQuestion::Embedded(name, results) => {
                home.take_embedded(&name, results).await?;
                Answer::Done
            }
            PartitionQuestion::Carry(carried) => {
                home.take_carried(carried).await?;
                Answer::Done
            }
            PartitionQuestion::Finish => Answer::Finished(home.finish().await?),
            PartitionQuestion::Commit(epoch) => {
                home.commit(epoch).await?;
                Answer::Done
            }
            PartitionQuestion::Abort(epoch) => {
                home.abort(epoch).await?;
                Answer::Done
            }
            PartitionQuestion::Publish(share) => {
                home.publish(&share);
                Answer::Published(StoreBytes::of(home.store()))
            }
            PartitionQuestion::Compact => {
                let (before, after) = home.compact().await?;
                Answer::Compacted(before, after)
            }
            PartitionQuestion::Open(_) | PartitionQuestion::Forget => Answer::Done,
        })
    }

    async fn open_partition(&self, place: Place, share: &EpochShare) -> Result<Answer, EngineError> {
        let path = place.file(&self.config.root);
        let home = PartitionHome::open(self.runtime.clone(), place.partition, path, share.epoch).await?;
        if self.config.preload_graphs {
            // A graph that cannot be read fails the searches that need it, as it does without this, and not the index.
            if let Err(error) = home.preload_graphs().await {
                tracing::warn!(%error, "cannot load a graph of vectors into memory");
            }
        }
        home.publish(share);
        let answer = Answer::PartitionOpened(home.documents(), StoreBytes::of(home.store()));
        let home = Rc::new(home);
        home.preload_aside();
        self.partitions.borrow_mut().insert(place, home);
        Ok(answer)
    }

    async fn read_documents(&self, reader: Rc<PartitionReader>, question: ReadQuestion) -> Result<Answer, EngineError> {
        Ok(match question {
            ReadQuestion::LookUp(ids) => {
                let mut numbers = Vec::with_capacity(ids.len());
                let mut checkpoint = Checkpoint::default();
                for id in &ids {
                    let number = if is_valid(id) { stored_number(reader.snapshot(), id)? } else { None };
                    numbers.push(number.map(DocId));
                    checkpoint.tick(&*self.runtime).await;
                }
                Answer::Numbers(numbers)
            }
            ReadQuestion::Choose { filter, primary_key } => {
                Answer::Chosen(self.choose(&reader, &filter, &primary_key).await?)
            }
            ReadQuestion::List(listing) => {
                let (total, first) = list(&reader, &listing, &RuntimePacer(self.runtime.clone())).await?;
                Answer::Listed(total, first)
            }
            ReadQuestion::Marks(listing) => {
                let pacer = RuntimePacer(self.runtime.clone());
                let (among, _) = listed(&reader, &listing, &pacer).await?;
                let page_end = listing.limit as u64;
                Answer::Marks(
                    sort_marks(&*reader, &listing.sort, &among, page_end, &pacer)
                        .await
                        .map_err(PartitionError::from)?,
                )
            }
            ReadQuestion::Documents { docs, vectors } => {
                let mut found = Vec::with_capacity(docs.len());
                let mut checkpoint = Checkpoint::default();
                for doc in docs {
                    let document = reader.document(doc, vectors).await?;
                    found.push(document.ok_or(PartitionError::Damaged("set of documents"))?);
                    checkpoint.tick(&*self.runtime).await;
                }
                Answer::Documents(found)
            }
            ReadQuestion::Scan { from, bytes, vectors } => {
                let (documents, next) = self.scan_part(&reader, from, bytes, vectors).await?;
                Answer::Scanned(documents, next)
            }
            ReadQuestion::Search(question) => self.search_part(reader, *question).await?,
        })
    }

    /// Documents from a number on, and where to go on.
    async fn scan_part(
        &self,
        reader: &PartitionReader,
        from: LocalDocId,
        bytes_max: usize,
        vectors: bool,
    ) -> Result<(Vec<RawDocument>, Option<LocalDocId>), EngineError> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut checkpoint = Checkpoint::default();
        for doc in reader.documents().range(from.0..).map(LocalDocId) {
            if bytes >= bytes_max {
                return Ok((found, Some(doc)));
            }
            let document = reader.document(doc, vectors).await?.ok_or(PartitionError::Damaged("set of documents"))?;
            bytes += document.fields.iter().map(|(_, value)| value.len()).sum::<usize>();
            found.push(document);
            checkpoint.tick(&*self.runtime).await;
        }
        Ok((found, None))
    }

    /// The documents that a filter admits, with their ids.
    async fn choose(
        &self,
        reader: &PartitionReader,
        filter: &Filter,
        primary_key: &str,
    ) -> Result<Vec<(DocId, String)>, EngineError> {
        let pacer = RuntimePacer(self.runtime.clone());
        let chosen = filter.evaluate(reader, &pacer).await.map_err(PartitionError::from)?;
        let mut finder = KeyFinder::new(primary_key);
        let mut found = Vec::with_capacity(chosen.len() as usize);
        let mut checkpoint = Checkpoint::default();
        for doc in chosen.iter().map(LocalDocId) {
            let record = reader.record(doc)?.ok_or(PartitionError::Damaged("set of documents"))?;
            found.push((reader.global(doc), finder.id(record.fields(), reader.fields())?));
            checkpoint.tick(&*self.runtime).await;
        }
        Ok(found)
    }
}

/// The documents of a listing that are in a partition, and how many these are with those before the first one wanted.
async fn listed(
    reader: &PartitionReader,
    listing: &Listing,
    pace: &dyn Pace,
) -> Result<(RoaringBitmap, u64), PartitionError> {
    let mut among: RoaringBitmap = match &listing.among {
        Some(docs) => docs.iter().map(|doc| doc.0).filter(|doc| reader.documents().contains(*doc)).collect(),
        None => reader.documents().clone(),
    };
    if let Some(filter) = &listing.filter {
        among &= filter.evaluate(reader, pace).await?;
    }
    let total = among.len();
    among.remove_range(..listing.from.0);
    Ok((among, total))
}

/// How many documents a listing has in a partition, and the first of them in order.
async fn list(reader: &PartitionReader, listing: &Listing, pace: &dyn Pace) -> Result<(u64, Listed), PartitionError> {
    let (mut among, total) = listed(reader, listing, pace).await?;
    let count = listing.skip.saturating_add(listing.limit);
    if listing.sort.is_empty() {
        keep_first(&mut among, count);
        return Ok((total, Listed::Numbers(among)));
    }
    if let Some(cut) = &listing.behind
        && let Some((page, before)) = sorted_page_behind(reader, &listing.sort, cut, (&among, count), pace).await?
    {
        return Ok((total, Listed::Sorted(named(reader, page, 0, pace).await, before)));
    }
    let page = sorted_page(reader, &listing.sort, &among, count, SortMode::Documents, pace).await?;
    Ok((total, Listed::Sorted(named(reader, page, listing.skip, pace).await, 0)))
}

/// The documents behind the first `skip` by their numbers in the index.
async fn named(
    reader: &PartitionReader,
    page: Vec<(SortKeys, LocalDocId)>,
    skip: usize,
    pace: &dyn Pace,
) -> Vec<(SortKeys, DocId)> {
    let mut named = Vec::with_capacity(page.len().saturating_sub(skip));
    for (at, (keys, doc)) in page.into_iter().enumerate() {
        if at >= skip {
            named.push((keys, FacetSource::global(reader, doc)));
        }
        pause_at(at + 1, DOCUMENTS_PER_LOOK, pace).await;
    }
    named
}
