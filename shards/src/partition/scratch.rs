//! What a writer reads of one document after another, in memory that all of them use.

use super::words::{DocumentWords, LONG_DOCUMENT_BYTES};
use crate::document::record::{DamagedRecord, Record};

/// What is read of one document after another.
#[derive(Default)]
pub(super) struct Scratch {
    /// Words of `old_record`.
    pub old: DocumentWords,
    /// Words of `new_record`.
    pub new: DocumentWords,
    /// The record that it has; empty where it has none, as the next one.
    pub old_record: Vec<u8>,
    /// The record that it is to have.
    pub new_record: Vec<u8>,
}

impl Scratch {
    /// Whether the words of one are better cut on another thread.
    pub fn has_long_record(&self) -> bool {
        self.old_record.len().max(self.new_record.len()) > LONG_DOCUMENT_BYTES
    }

    /// Both records with the place of their words.
    pub fn records(&mut self) -> [(&[u8], &mut DocumentWords); 2] {
        [(&self.old_record, &mut self.old), (&self.new_record, &mut self.new)]
    }
}

/// The record in these bytes, if there are any.
pub(super) fn parsed(bytes: &[u8]) -> Result<Option<Record<'_>>, DamagedRecord> {
    if bytes.is_empty() { Ok(None) } else { Record::parse(bytes).map(Some) }
}
