//! Reads all documents of an index in order, a few at a time, from any number of partitions.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::try_join_all;

use super::messages::{Answer, Place, ReadQuestion};
use super::types::{EngineError, IndexView};
use super::{Engine, answer_as};
use crate::document::RawDocument;
use crate::ids::{LocalDocId, PartitionNo};

/// Bytes of documents that one partition hands over at once, and at least one document.
const PART_BYTES: usize = 512 << 10;

/// A walk over all documents of one state of an index, by rising number. It holds some hundred kilobytes for each partition.
#[derive(Debug)]
pub struct DocumentScan {
    view: Arc<IndexView>,
    parts: Vec<Part>,
    vectors: bool,
}

/// What one partition has still to give.
#[derive(Debug)]
struct Part {
    ready: VecDeque<RawDocument>,
    /// Where it goes on; `None` when there is no more.
    next: Option<LocalDocId>,
}

impl DocumentScan {
    /// A walk from the first document on.
    pub fn new(view: Arc<IndexView>) -> Self {
        let part = || Part { ready: VecDeque::new(), next: Some(LocalDocId(0)) };
        Self { parts: std::iter::repeat_with(part).take(view.partitions.len()).collect(), view, vectors: false }
    }

    /// The same with all vectors of the documents under `_vectors`.
    pub fn with_vectors(self) -> Self {
        Self { vectors: true, ..self }
    }

    /// The state that is read; its names are those of the documents' fields.
    pub fn view(&self) -> &Arc<IndexView> {
        &self.view
    }
}

/// Takes the documents whose place in the order is certain.
fn take_ready(parts: &mut [Part]) -> Vec<RawDocument> {
    let mut taken = Vec::new();
    // A partition that has more, but none here, may have the next one.
    while parts.iter().all(|part| !part.ready.is_empty() || part.next.is_none()) {
        let first = |part: &Part| part.ready.front().map(|document| document.doc);
        let next = parts.iter_mut().filter(|part| !part.ready.is_empty()).min_by_key(|part| first(part));
        let Some(document) = next.and_then(|part| part.ready.pop_front()) else { break };
        taken.push(document);
    }
    taken
}

impl Engine {
    /// The next documents of a walk; none at its end.
    ///
    /// # Errors
    /// [`EngineError::Gone`] when the state that is read is kept no longer.
    pub async fn scan(&self, scan: &mut DocumentScan) -> Result<Vec<RawDocument>, EngineError> {
        loop {
            let taken = take_ready(&mut scan.parts);
            if !taken.is_empty() || scan.parts.iter().all(|part| part.next.is_none()) {
                return Ok(taken);
            }
            let vectors = scan.vectors;
            let (id, layout, epoch) = (scan.view.id, scan.view.layout, scan.view.epoch);
            let asked = scan.parts.iter_mut().zip(0..).filter(|(part, _)| part.ready.is_empty()).filter_map(
                |(part, number)| {
                    let from = part.next.take()?;
                    let place = Place { index: id, layout, partition: PartitionNo(number) };
                    Some(async move {
                        let question = ReadQuestion::Scan { from, bytes: PART_BYTES, vectors };
                        let answer = self.ask_to_read(place, epoch, question).await;
                        let (documents, next) =
                            answer_as!(answer, Answer::Scanned(documents, next) => (documents, next))?;
                        (part.ready, part.next) = (documents.into(), next);
                        Ok::<_, EngineError>(())
                    })
                },
            );
            try_join_all(asked).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DocId;

    fn part(docs: &[u32], next: Option<u32>) -> Part {
        let document = |doc: &u32| RawDocument { doc: DocId(*doc), fields: Vec::new() };
        Part { ready: docs.iter().map(document).collect(), next: next.map(LocalDocId) }
    }

    /// A document that is handed over too early would stand before a smaller one of another partition.
    #[test]
    fn documents_wait_for_smaller_ones() {
        let mut parts = [part(&[0, 3, 9], None), part(&[1, 4], Some(7))];
        let taken = |parts: &mut [Part]| take_ready(parts).iter().map(|document| document.doc.0).collect::<Vec<_>>();
        assert_eq!(taken(&mut parts), [0, 1, 3, 4]);
        parts[1] = part(&[], None);
        assert_eq!(taken(&mut parts), [9]);
        assert!(taken(&mut parts).is_empty());
    }
}
