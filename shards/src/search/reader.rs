//! A partition's reader as a search sees it.

use std::sync::Arc;

use charabia::{Language, Token};
use smallvec::SmallVec;

use super::kept_answers::KeptAnswers;
use super::part::{SearchPartition, StoredFields};
use crate::ids::{FieldId, LocalDocId, PartitionNo};
use crate::partition::reader::PartitionReader;
use crate::query::Cutter;
use crate::text::TextTokenizer;
use crate::vectors::PartitionVectors;

impl Cutter for TextTokenizer {
    fn tokens<'t>(&self, text: &'t str, languages: Option<&[Language]>) -> Vec<Token<'t>> {
        TextTokenizer::tokens(self, text, languages)
    }

    fn first_tokens<'t>(&self, text: &'t str, languages: Option<&[Language]>, count: usize) -> Vec<Token<'t>> {
        TextTokenizer::first_tokens(self, text, languages, count)
    }

    fn each_shown_token<'t>(&self, text: &'t str, languages: Option<&[Language]>, each: &mut dyn FnMut(Token<'t>)) {
        self.shown_tokens(text, languages).for_each(each);
    }

    fn languages(&self, field: &str) -> Option<&[Language]> {
        TextTokenizer::languages(self, field)
    }
}

impl SearchPartition for PartitionReader {
    fn place(&self) -> (PartitionNo, u16) {
        (self.number(), self.partition_count())
    }

    fn with_record(&self, doc: LocalDocId, each: &mut dyn FnMut(StoredFields<'_>)) -> Result<(), String> {
        let record = self.record(doc).map_err(|error| error.to_string())?;
        let record = record.ok_or_else(|| format!("document {} is not stored", doc.0))?;
        let fields: SmallVec<[(FieldId, &[u8]); 16]> = record.fields().collect();
        each(&fields);
        Ok(())
    }

    fn cutter(&self) -> &dyn Cutter {
        &**self.tokenizer()
    }

    fn cutter_aside(&self) -> Arc<dyn Cutter> {
        self.tokenizer().clone()
    }

    fn kept_answers(&self) -> Option<&KeptAnswers> {
        PartitionReader::kept_answers(self)
    }

    fn vectors(&self) -> Option<&PartitionVectors> {
        Some(PartitionReader::vectors(self))
    }
}
