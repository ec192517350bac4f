//! Embedding the documents of a batch: connects the partitions, which know whose texts must be checked, with the host, which
//! turns texts into vectors.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use super::messages::{Answer, PartitionQuestion, Place};
use super::types::EngineError;
use super::{Engine, all_done, answer_as};
use crate::document::Record;
use crate::document::primary_key::KeyFinder;
use crate::error::UserError;
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::index::Catalog;
use crate::partition::PartitionError;
use crate::partition::reader::PartitionReader;
use crate::runtime::Checkpoint;
use crate::runtime::steps::doing;
use crate::settings::Settings;
use crate::stages::{Stage, Stages};
use crate::vectors::change::{context, facts_change, fields_for, fragments, is_user_provided, slots};
use crate::vectors::host::DOCUMENTS_PER_REQUEST;
use crate::vectors::writer::{CarriedVectors, WantedText};
use crate::vectors::{DocumentEmbedding, EmbedDocument, EmbedRequest, EmbedderFacts, EmbedderState, EmbedderStates};

/// Bytes of documents that one partition hands over at once, and at least one document.
const PART_BYTES: usize = 512 << 10;
/// Bytes of vectors gathered for one partition before they are sent.
const CARRY_BYTES: usize = 512 << 10;

/// What one partition has still to give.
struct Part {
    place: Place,
    ready: VecDeque<(DocId, WantedText)>,
    /// Where it goes on; `None` when there is no more.
    next: Option<LocalDocId>,
}

impl Engine {
    /// What is known of the embedders of new settings: the host is asked about those that are new or changed.
    pub(super) async fn embedder_states(
        &self,
        catalog: &Catalog,
        settings: &Settings,
    ) -> Result<Arc<EmbedderStates>, EngineError> {
        if settings.embedders == catalog.settings.embedders {
            return Ok(catalog.embedders.clone());
        }
        let mut states = EmbedderStates::new();
        for (name, embedder) in &settings.embedders {
            let before = catalog.settings.embedders.get(name);
            let known = catalog.embedders.get(name).cloned();
            let known_slots = known.as_ref().map_or(&[][..], |state| &state.slots);
            let slots = slots(known_slots, &fragments(embedder));
            let facts = match known.filter(|_| !facts_change(before, embedder)) {
                Some(known) => known.facts,
                None => self.embedder_facts(name, embedder).await?,
            };
            states.insert(name.clone(), EmbedderState { facts, slots });
        }
        Ok(Arc::new(states))
    }

    async fn embedder_facts(&self, name: &str, embedder: &Value) -> Result<EmbedderFacts, EngineError> {
        if is_user_provided(embedder) {
            let dimensions = embedder.get("dimensions").and_then(Value::as_u64);
            let dimensions = dimensions.and_then(|dimensions| u32::try_from(dimensions).ok()).unwrap_or(0);
            return Ok(EmbedderFacts { dimensions });
        }
        match self.embedders.get() {
            Some(host) => Ok(host.prepare(name, &Arc::new(embedder.clone())).await?),
            // Documents are refused when it comes to their texts.
            None => Ok(EmbedderFacts::default()),
        }
    }

    /// Embeds the texts that the states being built ask for.
    pub(super) async fn embed_texts(
        &self,
        first: Place,
        touched: &[PartitionNo],
        (before, next): (&Catalog, &Catalog),
        (stages, looked_at): (&Stages, u64),
    ) -> Result<(), EngineError> {
        let hosted = next.settings.embedders.iter().filter(|(_, embedder)| !is_user_provided(embedder));
        let hosted: Vec<(&String, &Value)> = hosted.collect();
        if hosted.is_empty() {
            return Ok(());
        }
        doing("embeddings");
        stages.begin(Stage::Embedding, looked_at * hosted.len() as u64, &*self.runtime);
        let fields = fields_for(&next.settings, &next.fields);
        let fields_before = fields_for(
            &Settings { embedders: next.settings.embedders.clone(), ..(*before.settings).clone() },
            &next.fields,
        );
        for (name, embedder) in hosted {
            let empty = EmbedRequest {
                name: name.as_str().into(),
                context: context(embedder, &fields),
                before: context(before.settings.embedders.get(name).unwrap_or(embedder), &fields_before),
                slots: Arc::new(next.embedders.get(name).map(|state| state.slots.clone()).unwrap_or_default()),
                documents: Vec::new(),
            };
            let mut parts: Vec<Part> = touched
                .iter()
                .map(|number| Place { partition: *number, ..first })
                .map(|place| Part { place, ready: VecDeque::new(), next: Some(LocalDocId(0)) })
                .collect();
            loop {
                let taken = self.next_texts(&mut parts, &empty.name, next.partition_count()).await?;
                if taken.is_empty() {
                    break;
                }
                let documents = taken.len() as u64;
                self.embed(first, next, &empty, taken).await?;
                stages.advance(documents);
            }
        }
        Ok(())
    }

    /// The next documents by rising number, whatever partition they are in; none at the end.
    async fn next_texts(
        &self,
        parts: &mut [Part],
        name: &Arc<str>,
        partition_count: u16,
    ) -> Result<Vec<(DocId, WantedText)>, EngineError> {
        let mut taken = Vec::new();
        while taken.len() < DOCUMENTS_PER_REQUEST {
            let hungry = parts.iter_mut().filter(|part| part.ready.is_empty()).filter_map(|part| {
                let from = part.next.take()?;
                let count = DOCUMENTS_PER_REQUEST;
                let question = PartitionQuestion::Wanted { name: name.clone(), from, count, bytes: PART_BYTES };
                Some(async move {
                    let answer = self.ask_partition(part.place, question).await;
                    let found = answer_as!(answer, Answer::Wanted(found) => found)?;
                    part.next = found.last().map(|last| LocalDocId(last.doc.0 + 1));
                    let number = |text: WantedText| (text.doc.global(part.place.partition, partition_count), text);
                    part.ready = found.into_iter().map(number).collect();
                    Ok::<_, EngineError>(())
                })
            });
            all_done(hungry).await?;
            let filled = parts.iter_mut().filter(|part| !part.ready.is_empty());
            let least = filled.min_by_key(|part| part.ready.front().map(|(doc, _)| *doc));
            let Some(text) = least.and_then(|part| part.ready.pop_front()) else { break };
            taken.push(text);
        }
        Ok(taken)
    }

    /// Has the host embed documents and gives the partitions their vectors.
    async fn embed(
        &self,
        first: Place,
        next: &Catalog,
        empty: &EmbedRequest,
        taken: Vec<(DocId, WantedText)>,
    ) -> Result<(), EngineError> {
        let host = self.embedders.get().ok_or_else(|| no_host(&empty.name))?;
        let mut finder = KeyFinder::new(next.primary_key.as_deref().unwrap_or_default());
        let mut request = empty.clone();
        let mut checkpoint = Checkpoint::default();
        for (doc, text) in &taken {
            let record = Record::parse(&text.record).map_err(PartitionError::from)?;
            let before = text.before.as_deref().map(Record::parse).transpose().map_err(PartitionError::from)?;
            request.documents.push(EmbedDocument {
                id: finder.id(record.fields(), &next.fields)?,
                document: record.to_raw(*doc),
                before: before.map(|before| before.to_raw(*doc)),
            });
            checkpoint.tick(&*self.runtime).await;
        }
        let results = host.embed(request).await?;
        if results.len() != taken.len() {
            let message = format!("While embedding documents for embedder `{}`: vectors are missing.", empty.name);
            return Err(UserError::new("vector_embedding_error", message).into());
        }
        let mut by_partition: Vec<Vec<(LocalDocId, DocumentEmbedding)>> =
            vec![Vec::new(); usize::from(next.partition_count())];
        for ((doc, _), result) in taken.iter().zip(results) {
            let count = next.partition_count();
            by_partition[usize::from(doc.partition(count).0)].push((doc.local(count), result));
        }
        let sent = by_partition.into_iter().enumerate().filter(|(_, results)| !results.is_empty());
        let sent = sent.map(|(number, results)| {
            let place = Place { partition: PartitionNo(number as u16), ..first };
            let question = PartitionQuestion::Embedded(empty.name.clone(), results);
            async move { answer_as!(self.ask_partition(place, question).await, Answer::Done => ()) }
        });
        all_done(sent).await.map(drop)
    }

    /// Sends the vectors of an index of one partition to those of a new layout, whose documents are there already.
    pub(super) async fn send_vectors(
        &self,
        first: Place,
        count: u16,
        old: &PartitionReader,
    ) -> Result<(), EngineError> {
        let mut carried: Vec<Vec<CarriedVectors>> = vec![Vec::new(); usize::from(count)];
        let mut bytes = 0;
        for (name, vectors) in old.vectors().0.iter() {
            for number in old.documents() {
                let found = vectors.numbered(number).await.map_err(PartitionError::from)?;
                let (user, fixed) = (vectors.user.contains(number), vectors.fixed.contains(number));
                if found.is_empty() && !user && !fixed {
                    continue;
                }
                bytes += 64 + found.iter().map(|(_, vector)| vector.len() * 4).sum::<usize>();
                let doc = DocId(number);
                let of_document =
                    CarriedVectors { doc: doc.local(count), name: name.clone(), user, fixed, vectors: found };
                carried[usize::from(doc.partition(count).0)].push(of_document);
                if bytes > CARRY_BYTES {
                    bytes = 0;
                    self.send_carried(first, &mut carried).await?;
                }
            }
        }
        self.send_carried(first, &mut carried).await
    }

    async fn send_carried(&self, first: Place, carried: &mut [Vec<CarriedVectors>]) -> Result<(), EngineError> {
        let sent =
            carried.iter_mut().enumerate().filter(|(_, carried)| !carried.is_empty()).map(|(number, carried)| {
                let place = Place { partition: PartitionNo(number as u16), ..first };
                let question = PartitionQuestion::Carry(std::mem::take(carried));
                async move { answer_as!(self.ask_partition(place, question).await, Answer::Done => ()) }
            });
        all_done(sent).await.map(drop)
    }
}

fn no_host(name: &str) -> UserError {
    let message = format!("The embedder `{name}` cannot be used: this server embeds no texts.");
    UserError::new("vector_embedding_error", message)
}
