//! Re-indexes a partition's documents after a change of settings.

use storage_engine::ReadTree;

use super::error::PartitionError;
use super::trees::{DICTIONARY, DOCUMENTS, POSTINGS, WORD_COUNTS};
use super::words::DocumentWords;
use super::writer::{PartitionWriter, ReindexParts};
use crate::document::primary_key::KeyFinder;
use crate::document::record::Record;
use crate::document::validate::Reserved;
use crate::error::UserError;
use crate::facets::Extractor;
use crate::facets::columns::{ReindexPlan, drop_field, drop_places};
use crate::fields::FieldsMap;
use crate::ids::LocalDocId;
use crate::settings::Settings;
use crate::text::dictionary::Dictionary;

/// Column entries dropped between two looks at the clock.
const DROP_STEP: usize = 256;
/// Gathered changes are written when they take this much memory.
const GATHER_BYTES_MAX: usize = 192 << 20;

/// Whether the words of documents, or their positions, are others under `new` settings. Distances and prefixes are computed when
/// searching, so their settings do not count.
pub fn words_change(old: &Settings, new: &Settings) -> bool {
    let names = |settings: &Settings| -> std::collections::BTreeSet<String> {
        settings.searchable_attributes.iter().cloned().collect()
    };
    let (old_typos, new_typos) = (&old.typo_tolerance, &new.typo_tolerance);
    names(old) != names(new)
        || old.stop_words != new.stop_words
        || old.separator_tokens != new.separator_tokens
        || old.non_separator_tokens != new.non_separator_tokens
        || old.dictionary != new.dictionary
        || old.localized_attributes.as_deref().unwrap_or_default()
            != new.localized_attributes.as_deref().unwrap_or_default()
        || old_typos.disable_on_numbers != new_typos.disable_on_numbers
        || old_typos.disable_on_attributes != new_typos.disable_on_attributes
}

/// Whether a change of settings asks for anything to be redone.
pub fn is_needed(fields: &FieldsMap, old: &Settings, new: &Settings) -> bool {
    words_change(old, new) || ReindexPlan::between(fields, old, new) != ReindexPlan::default()
}

pub(super) async fn reindex(writer: &mut PartitionWriter, old: &Settings) -> Result<(), PartitionError> {
    let parts = writer.parts();
    let plan = ReindexPlan::between(&parts.facts.fields, old, &parts.facts.settings);
    let words = words_change(old, &parts.facts.settings);
    if parts.documents.is_empty() {
        return Ok(());
    }
    if let Some(gained) = Reserved::gained(old, &parts.facts.settings) {
        check_stored(writer, &gained).await?;
    }
    let parts = writer.parts();
    for field in &plan.drop {
        while !drop_field(&mut *parts.txn, *field, DROP_STEP)? {
            parts.runtime.yield_now().await;
        }
    }
    for place in &plan.drop_places {
        while !drop_places(&mut *parts.txn, *place, DROP_STEP)? {
            parts.runtime.yield_now().await;
        }
    }
    if words {
        for tree in [POSTINGS, DICTIONARY, WORD_COUNTS] {
            parts.txn.clear(tree).await?;
        }
        *parts.dictionary = Dictionary::default();
    }
    if words || plan.reads_documents() {
        read_documents(writer, &plan, words).await?;
    }
    Ok(())
}

async fn read_documents(writer: &mut PartitionWriter, plan: &ReindexPlan, words: bool) -> Result<(), PartitionError> {
    let documents: Vec<u32> = writer.parts().documents.iter().collect();
    let settings = writer.parts().facts.settings.clone();
    let primary_key = writer.parts().facts.primary_key.clone();
    let mut extractor = Extractor::only(&settings, plan.add.iter().copied()).with_key(primary_key.as_deref());
    let (nothing, mut of_document) = (DocumentWords::default(), DocumentWords::default());
    for doc in documents {
        let ReindexParts { runtime, txn, facts, words: reader, postings, columns, .. } = writer.parts();
        let key = doc.to_be_bytes();
        let bytes = txn.get(DOCUMENTS, &key)?.ok_or(PartitionError::Damaged("set of documents"))?;
        let record = Record::parse(bytes)?;
        if plan.reads_documents() {
            let new = extractor.extract(&facts.fields, record.fields());
            columns.add(LocalDocId(doc), None, Some(&new));
        }
        if words {
            reader.read_aside(&*runtime, &facts.fields, record, &mut postings.terms, &mut of_document).await?;
            postings.add(doc, &nothing, &of_document);
            if !of_document.counts.is_empty() {
                txn.put(WORD_COUNTS, &key, &of_document.counts)?;
            }
        }
        let full = postings.memory_bytes() + columns.pending_bytes() > GATHER_BYTES_MAX;
        if runtime.should_yield() {
            runtime.yield_now().await;
        }
        if full {
            writer.flush().await?;
        }
    }
    // The changes that follow must find each document's words in place.
    writer.flush().await
}

/// Checks the fields of stored documents that count from now on. All documents are looked at, and of those at fault the one whose
/// error sorts first is told: which that is does not depend on the number of partitions.
async fn check_stored(writer: &mut PartitionWriter, gained: &Reserved) -> Result<(), PartitionError> {
    let documents: Vec<u32> = writer.parts().documents.iter().collect();
    let ReindexParts { runtime, txn, facts, .. } = writer.parts();
    let (names, key) = (&facts.fields, facts.primary_key.as_deref().unwrap_or_default());
    let mut refused: Option<UserError> = None;
    for doc in documents {
        let bytes = txn.get(DOCUMENTS, &doc.to_be_bytes())?.ok_or(PartitionError::Damaged("set of documents"))?;
        let record = Record::parse(bytes)?;
        let named = record.fields().filter_map(|(field, text)| Some((names.name(field)?, text)));
        let id = || KeyFinder::new(key).id(record.fields(), names).unwrap_or_default();
        if let Err(error) = gained.check_stored(named, id) {
            refused = Some(error.or_sooner(refused));
        }
        if runtime.should_yield() {
            runtime.yield_now().await;
        }
    }
    refused.map_or(Ok(()), |error| Err(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_that_change_words_ask_for_them() {
        let old = Settings { searchable_attributes: vec!["a".into(), "b".into()], ..Settings::default() };
        let order = Settings { searchable_attributes: vec!["b".into(), "a".into()], ..old.clone() };
        assert!(!words_change(&old, &order));
        let fewer = Settings { searchable_attributes: vec!["b".into()], ..old.clone() };
        assert!(words_change(&old, &fewer));
        let shown = Settings { displayed_attributes: vec!["a".into()], ranking_rules: Vec::new(), ..old.clone() };
        assert!(!words_change(&old, &shown));
        let stop = Settings { stop_words: ["the".to_owned()].into(), ..old.clone() };
        assert!(words_change(&old, &stop));
    }
}
