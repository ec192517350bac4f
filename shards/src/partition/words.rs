//! The words of a document, as the inverted index wants them.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use charabia::Language;

use super::error::PartitionError;
use super::terms::{TermNo, Terms};
use crate::document::record::{Record, put_record};
use crate::document::walk::{Leaf, LeafVisitor, Paths, literal_text};
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::runtime::{Checkpoint, Runtime};
use crate::settings::{Settings, covers_subtree};
use crate::text::TextTokenizer;
use crate::text::postings::{put_occurrences, put_varint};
use crate::text::tokenizer::Piece;
use crate::text::words::{FieldCursor, is_numeric};

/// Word counts above this are not kept.
const WORD_COUNT_MAX: u32 = 30;
/// Documents of more bytes are cut on another thread: one of several megabytes takes seconds.
const LONG_DOCUMENT_BYTES: usize = 100 << 10;
/// Documents that are more work, as [`TextTokenizer::work`] has it, are cut in steps: it takes a tenth of a millisecond and more.
const ONE_STEP_WORK: usize = 8 << 10;

/// What the index does with the values of a field.
#[derive(Clone, Default)]
struct FieldRole {
    searchable: bool,
    /// It or something below it is searchable.
    enters: bool,
    /// Its words are only found as written.
    exact: bool,
    languages: Option<Rc<[Language]>>,
}

/// Turns documents into words under fixed settings.
pub struct WordReader {
    tokenizer: Rc<TextTokenizer>,
    settings: Arc<Settings>,
    /// By field; as long as the part of the names seen so far.
    roles: Vec<FieldRole>,
    paths: Paths,
    walk: WalkState,
}

#[derive(Default)]
struct WalkState {
    /// Term and place (field << 16 | position) of every word, in order of appearance.
    words: Vec<(TermNo, u32)>,
    /// By field: where its next value begins and how many words it has; only those in `touched` are of this document.
    cursors: Vec<(FieldCursor, u32)>,
    touched: Vec<FieldId>,
    scratch: String,
}

/// The words of one document, grouped by term.
#[derive(Default)]
pub struct DocumentWords {
    /// Term, where its occurrence list lies in `lists`, and whether an occurrence is tolerant; rising by term number.
    pub terms: Vec<(TermNo, std::ops::Range<u32>, bool)>,
    /// Encoded occurrence lists.
    pub lists: Vec<u8>,
    /// The stored form of the fields' word counts.
    pub counts: Vec<u8>,
    places: Vec<u32>,
}

impl DocumentWords {
    /// The encoded occurrence list that lies at `range`.
    pub fn list(&self, range: &std::ops::Range<u32>) -> &[u8] {
        &self.lists[range.start as usize..range.end as usize]
    }

    /// Forgets the document.
    pub fn clear(&mut self) {
        self.terms.clear();
        self.lists.clear();
        self.counts.clear();
    }
}

impl WordReader {
    /// A reader under these settings.
    pub fn new(settings: Arc<Settings>, tokenizer: Rc<TextTokenizer>) -> Self {
        Self { tokenizer, settings, roles: Vec::new(), paths: Paths::default(), walk: WalkState::default() }
    }

    /// Reads the words of a document into `out`, numbering new terms.
    pub fn read(
        &mut self,
        names: &FieldsMap,
        record: Record<'_>,
        terms: &mut Terms,
        out: &mut DocumentWords,
    ) -> Result<(), PartitionError> {
        out.clear();
        self.learn(names);
        self.walk.words.clear();
        let mut visitor =
            Visitor { tokenizer: &self.tokenizer, roles: &self.roles, walk: &mut self.walk, terms: &mut *terms };
        for (field, value) in record.fields() {
            self.paths.walk(names, field, value, &mut visitor)?;
        }
        self.group(terms, out);
        self.put_counts(out);
        Ok(())
    }

    /// As [`Self::read`], in short steps; a long document is cut on another thread, if one is free.
    pub async fn read_aside(
        &mut self,
        runtime: &dyn Runtime,
        names: &Arc<FieldsMap>,
        record: Record<'_>,
        terms: &mut Terms,
        out: &mut DocumentWords,
    ) -> Result<(), PartitionError> {
        if record.byte_len() > LONG_DOCUMENT_BYTES
            && let Some((known, words)) = self.cut_aside(runtime, names, record).await
        {
            let mut numbered = Vec::with_capacity(words.terms.len());
            let mut checkpoint = Checkpoint::default();
            for (term, range, tolerant) in words.terms {
                numbered.push((terms.number(known.text(term)), range, tolerant));
                checkpoint.tick(runtime).await;
            }
            numbered.sort_unstable_by_key(|(term, ..)| *term);
            *out = DocumentWords { terms: numbered, ..words };
            return Ok(());
        }
        if record.fields().map(|(_, value)| self.tokenizer.work(value)).sum::<usize>() <= ONE_STEP_WORK {
            return self.read(names, record, terms, out);
        }
        self.read_in_steps(runtime, names, record, terms, out).await
    }

    async fn read_in_steps(
        &mut self,
        runtime: &dyn Runtime,
        names: &FieldsMap,
        record: Record<'_>,
        terms: &mut Terms,
        out: &mut DocumentWords,
    ) -> Result<(), PartitionError> {
        out.clear();
        self.learn(names);
        self.walk.words.clear();
        let mut gathered = GatheringVisitor { roles: &self.roles, leaves: Vec::new() };
        for (field, value) in record.fields() {
            self.paths.walk(names, field, value, &mut gathered)?;
        }
        let leaves = gathered.leaves;
        let mut visitor =
            Visitor { tokenizer: &self.tokenizer, roles: &self.roles, walk: &mut self.walk, terms: &mut *terms };
        let mut checkpoint = Checkpoint::default();
        for (field, leaf) in &leaves {
            match leaf {
                None => visitor.leaf(*field, Leaf::Null),
                Some((text, true)) => visitor.leaf(*field, Leaf::Literal(text)),
                Some((text, false)) => visitor.text_in_steps(*field, text, runtime, &mut checkpoint).await,
            }
            checkpoint.look(runtime).await;
        }
        self.group(terms, out);
        self.put_counts(out);
        Ok(())
    }

    /// The words of a document, cut on another thread by a tokenizer of its own, with the terms that their numbers refer to;
    /// `None` when that did not work.
    async fn cut_aside(
        &self,
        runtime: &dyn Runtime,
        names: &Arc<FieldsMap>,
        record: Record<'_>,
    ) -> Option<(Terms, DocumentWords)> {
        let (settings, names, mut bytes) =
            (self.settings.clone(), names.clone(), Vec::with_capacity(record.byte_len()));
        let fields: Vec<_> = record.fields().collect();
        put_record(&mut bytes, fields.into_iter());
        let cut = Arc::new(OnceLock::new());
        let place = cut.clone();
        let job = Box::new(move || {
            let tokenizer = Rc::new(TextTokenizer::new(&settings));
            let (mut terms, mut words) = (Terms::default(), DocumentWords::default());
            let record = Record::parse(&bytes).map_err(PartitionError::from);
            let mut reader = WordReader::new(settings, tokenizer);
            // Whoever asked meets an error again, and tells it.
            if record.and_then(|record| reader.read(&names, record, &mut terms, &mut words)).is_ok() {
                let _ = place.set((terms, words));
            }
        });
        runtime.side_thread(job).await.ok()?;
        Arc::into_inner(cut).and_then(OnceLock::into_inner)
    }

    /// Looks at names that are new.
    fn learn(&mut self, names: &FieldsMap) {
        let numeric_fields = &self.settings.typo_tolerance.disable_on_attributes;
        for (_, name) in names.iter().skip(self.roles.len()) {
            let searchable = self.settings.searchable_weight(name).is_some();
            let below = |attribute: &String| covers_subtree(name, attribute);
            self.roles.push(FieldRole {
                searchable,
                enters: searchable || self.settings.searchable_attributes.iter().any(below),
                exact: numeric_fields.iter().any(|attribute| covers_subtree(attribute, name)),
                languages: self.tokenizer.languages(name).map(Rc::from),
            });
        }
        self.walk.cursors.resize(self.roles.len(), Default::default());
    }

    fn group(&mut self, terms: &Terms, out: &mut DocumentWords) {
        let numbers_exact = self.settings.typo_tolerance.disable_on_numbers;
        self.walk.words.sort_unstable();
        for of_term in self.walk.words.chunk_by(|a, b| a.0 == b.0) {
            let term = of_term[0].0;
            let start = out.lists.len() as u32;
            out.places.clear();
            out.places.extend(of_term.iter().map(|(_, place)| *place));
            out.places.dedup();
            put_occurrences(&mut out.lists, &out.places);
            let tolerant = |place: &u32| self.roles.get((place >> 16) as usize).is_some_and(|role| !role.exact);
            let numeric = numbers_exact && std::str::from_utf8(terms.text(term)).is_ok_and(is_numeric);
            out.terms.push((term, start..out.lists.len() as u32, !numeric && out.places.iter().any(tolerant)));
        }
    }

    fn put_counts(&mut self, out: &mut DocumentWords) {
        self.walk.touched.sort_unstable();
        let mut before = 0;
        for field in self.walk.touched.drain(..) {
            let (_, count) = std::mem::take(&mut self.walk.cursors[usize::from(field.0)]);
            if (1..=WORD_COUNT_MAX).contains(&count) {
                put_varint(&mut out.counts, u32::from(field.0) - before);
                out.counts.push(count as u8);
                before = u32::from(field.0);
            }
        }
    }
}

struct Visitor<'r> {
    tokenizer: &'r TextTokenizer,
    roles: &'r [FieldRole],
    walk: &'r mut WalkState,
    terms: &'r mut Terms,
}

impl Visitor<'_> {
    /// As [`LeafVisitor::leaf`], pausing between words where cutting takes long.
    async fn text_in_steps(&mut self, field: FieldId, text: &str, runtime: &dyn Runtime, checkpoint: &mut Checkpoint) {
        let at = usize::from(field.0);
        let Some(role) = self.roles.get(at).filter(|role| role.searchable) else { return };
        let languages = role.languages.as_deref();
        if self.tokenizer.takes_short_cut(text.as_bytes(), languages) {
            return self.leaf(field, Leaf::Text(text));
        }
        let WalkState { words, cursors, touched, .. } = &mut *self.walk;
        let (cursor, count) = &mut cursors[at];
        if cursor.is_fresh() {
            touched.push(field);
        }
        let mut value = cursor.begin();
        if !value.is_beyond() {
            for token in self.tokenizer.iter(text, languages) {
                let Some(piece) = Piece::of(&token) else { continue };
                let taken = value.piece(piece, |word, position| {
                    *count += 1;
                    words.push((self.terms.number(word.as_bytes()), u32::from(field.0) << 16 | u32::from(position)));
                });
                if taken.is_break() {
                    break;
                }
                checkpoint.tick(runtime).await;
            }
        }
        cursor.end(&value);
    }
}

/// Gathers the leaves that are indexed, null or with whether they are literals.
struct GatheringVisitor<'r> {
    roles: &'r [FieldRole],
    leaves: Vec<(FieldId, Option<(String, bool)>)>,
}

impl LeafVisitor for GatheringVisitor<'_> {
    fn enters(&mut self, field: FieldId) -> bool {
        self.roles.get(usize::from(field.0)).is_some_and(|role| role.enters)
    }

    fn leaf(&mut self, field: FieldId, leaf: Leaf<'_>) {
        if self.roles.get(usize::from(field.0)).is_some_and(|role| role.searchable) {
            self.leaves.push((
                field,
                match leaf {
                    Leaf::Null => None,
                    Leaf::Text(text) => Some((text.to_owned(), false)),
                    Leaf::Literal(text) => Some((text.to_owned(), true)),
                },
            ));
        }
    }
}

impl LeafVisitor for Visitor<'_> {
    fn enters(&mut self, field: FieldId) -> bool {
        self.roles.get(usize::from(field.0)).is_some_and(|role| role.enters)
    }

    fn leaf(&mut self, field: FieldId, leaf: Leaf<'_>) {
        let at = usize::from(field.0);
        let Some(role) = self.roles.get(at).filter(|role| role.searchable) else { return };
        let WalkState { words, cursors, touched, scratch } = &mut *self.walk;
        let (cursor, count) = &mut cursors[at];
        if cursor.is_fresh() {
            touched.push(field);
        }
        let literal;
        let (text, languages) = match leaf {
            Leaf::Null => return cursor.skip_value(),
            Leaf::Text(text) => (text, role.languages.as_deref()),
            Leaf::Literal(text) => {
                literal = literal_text(text);
                (&*literal, None)
            }
        };
        let terms = &mut *self.terms;
        cursor.visit_value(self.tokenizer, languages, text, scratch, |word, position| {
            *count += 1;
            words.push((terms.number(word.as_bytes()), u32::from(field.0) << 16 | u32::from(position)));
        });
    }
}
